"""Published training runs: each row forecast, compared, grouped and ranked (contract 5)."""

import csv
import gzip
import hashlib
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from planner.profile.site import Site, site_sigma
from planner.simulate.assemble import StepAnswer, forecast_step, peak_flops, with_site
from planner.validate.band import band_sigma
from planner.validate.impossible import impossible_flags
from planner.validate.setup import Setup, SkipRowError, number, setup_of_row
from planner.validate.site import SiteFits, fit_site
from planner.validate.summary import TIME_METRICS
from planner.validate.units import predicted_value

NOT_CONFIG = {"id", "source_detail", "metric", "measured", "unit", "verified", "trust", "notes"}
Row = Mapping[str, str]
Z80 = 1.2815515655446004


def packaged_rows() -> list[dict[str, str]]:
    """The public rows that travel with the package."""
    raw = files("planner.validate").joinpath("data/published_runs.csv.gz").read_bytes()
    return list(csv.DictReader(gzip.decompress(raw).decode("utf-8").splitlines()))


def config_hash(row: Row) -> str:
    """Hash of all settings of a row: everything but identity, figure and remarks."""
    text = "\x1f".join(f"{k}={row.get(k) or ''}" for k in sorted(k for k in row if k and k not in NOT_CONFIG))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def group_of(row: Row) -> str:
    """Source | gpu | 1-node or multi-node."""
    gpus, per_node = number(row, "n_gpus") or 0, number(row, "gpus_per_node") or 8
    return f"{row.get('source')} | {row.get('gpu')} | {'1-node' if gpus <= per_node else 'multi-node'}"


@lru_cache(maxsize=1)
def _mfu_table() -> dict[tuple[str, str], float]:
    """Median causal MFU of the packaged public configurations by (gpu, precision) and by (gpu, '')."""
    table: dict[tuple[str, str], dict[str, float]] = {}
    for row in packaged_rows():
        mfu = _measured_mfu(row)
        if mfu is not None:
            for key in ((row["gpu"], row["precision"]), (row["gpu"], "")):
                table.setdefault(key, {})[config_hash(row)] = mfu
    return {key: statistics.median(values.values()) for key, values in table.items()}


@lru_cache(maxsize=64)
def mfu_spread(gpu: str) -> tuple[float, float]:
    """Median causal MFU of packaged configurations on 64 GPUs or more of a part, and the spread of its logarithm.

    With fewer than eight such configurations those of every part count.
    """
    found: dict[str, float] = {}
    everywhere: dict[str, float] = {}
    for row in packaged_rows():
        mfu = _measured_mfu(row) if (number(row, "n_gpus") or 0) >= 64 else None
        if mfu is not None:
            everywhere[config_hash(row)] = mfu
            if row["gpu"] == gpu:
                found[config_hash(row)] = mfu
    logs = [math.log(v) for v in (found if len(found) >= 8 else everywhere).values()]
    return math.exp(statistics.median(logs)), statistics.stdev(logs)


def _measured_mfu(row: Row) -> float | None:
    """Causal-halved MFU that a row's figure implies."""
    measured = number(row, "measured")
    if row.get("metric") not in {"step_time_s", "tokens_per_s_per_gpu"} or not measured:
        return None
    try:
        setup = setup_of_row(row)
    except SkipRowError:
        return None
    from planner.workload.params import model_flops_per_token

    layout = setup.layout
    per_gpu = (
        layout.global_batch * layout.sequence / layout.gpus / measured if row["metric"] == "step_time_s" else measured
    )
    flops = model_flops_per_token(model=setup.model, sequence=layout.sequence) * per_gpu
    return flops / peak_flops(gpu=setup.machine.gpu, precision=layout.precision)


def _baseline(*, row: Row, setup: Setup, answer: StepAnswer) -> float | None:
    """The same metric if the run reached the usual MFU of its GPU and precision."""
    table = _mfu_table()
    mfu = table.get((row.get("gpu") or "", row.get("precision") or ""), table.get((row.get("gpu") or "", "")))
    ours = answer.model_flops_per_s_per_gpu / answer.peak_flops
    if mfu is None or row.get("metric") in {"memory_gb", "oom", "time_to_train_min", "scaling_efficiency_pct"}:
        return None
    value = predicted_value(row=row, answer=answer, layout=setup.layout, peak_default=answer.peak_flops)
    if value is None:
        return None
    return value * ours / mfu if row.get("metric") == "step_time_s" else value * mfu / ours


@lru_cache(maxsize=8192)
def _answer(setup: Setup, engine: str) -> StepAnswer:
    return forecast_step(
        model=setup.model,
        layout=setup.layout,
        machine=setup.machine,
        engine=engine,
        capacity_bytes=setup.capacity_bytes,
        memory_layout=setup.memory_layout,
    )


def step_of_row(*, row: Row, engine: str = "fast") -> StepAnswer:
    """The forecast step behind a row.

    Raises:
        SkipRowError: a row that contract 5 skips.
    """
    return _answer(setup_of_row(row), engine)


def _blank(*, index: int, row: Row, skipped: str | None) -> dict[str, Any]:
    return {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": config_hash(row),
        "group": group_of(row),
        "metric": row.get("metric") or "",
        "unit": row.get("unit") or "",
        "measured": number(row, "measured"),
        "skipped": skipped,
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }


def _error(*, predicted: float, measured: float) -> float:
    return 100.0 * (predicted - measured) / measured


def validate_row(*, index: int, row: Row, engine: str = "fast") -> dict[str, Any]:
    """One answer row: forecast, band, baseline, fit and flags, or the reason it is skipped."""
    if row.get("metric") == "time_to_train_min":
        return _blank(index=index, row=row, skipped="convergence: time to train depends on steps to target")
    try:
        setup = setup_of_row(row)
    except SkipRowError as error:
        return _blank(index=index, row=row, skipped=str(error))
    answer = _answer(setup, engine)
    out = _blank(index=index, row=row, skipped=None)
    out["fits"], out["memory_over_gb"] = answer.fits, answer.memory_over_bytes / 1e9
    out["assumed"] = list(setup.assumed)
    measured = out["measured"]
    if row.get("metric") == "oom":
        predicted = 0.0 if answer.fits else 1.0
        out["zero_shot"] = {
            "predicted": predicted,
            "p10": predicted,
            "p90": predicted,
            "error_pct": None if not measured else _error(predicted=predicted, measured=measured),
        }
        return out
    if row.get("metric") == "scaling_efficiency_pct":
        value: float | None = _scaling_pct(row=row, setup=setup, answer=answer, engine=engine)
    else:
        value = predicted_value(row=row, answer=answer, layout=setup.layout, peak_default=answer.peak_flops)
    if value is None or not measured:
        out["skipped"] = "setting_missing: metric or measured value not usable"
        return out
    sigma = band_sigma(answer=answer, setup=setup, metric=row.get("metric") or "")
    out["zero_shot"] = {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": _error(predicted=value, measured=measured),
    }
    base = _baseline(row=row, setup=setup, answer=answer)
    if base is not None:
        out["baseline"] = {"predicted": base, "error_pct": _error(predicted=base, measured=measured)}
    if not answer.fits:
        out["flags"].append("refused_but_ran")
    if row.get("metric") in TIME_METRICS:
        out["flags"] += impossible_flags(row=row, setup=setup, answer=answer, measured=measured, predicted=value)
    return out


def _scaling_pct(*, row: Row, setup: Setup, answer: StepAnswer, engine: str) -> float:
    """Tokens/s/GPU over that of the row's own base: one node or one GPU, the global batch fixed or grown with the GPUs.

    Without data parallelism to take away, the base is the unsplit model on one GPU.
    """
    layout, notes = setup.layout, row.get("notes") or ""
    base = setup.machine.network.gpus_per_node if "vs one node" in notes else 1
    shrink = max(1, layout.gpus // base)
    fixed = re.search(r"fixed (global )?batch", notes) is not None
    batch = layout.global_batch if fixed else max(1, layout.global_batch // shrink)
    if layout.dp >= shrink:
        small = replace(layout, dp=layout.dp // shrink, global_batch=batch)
    else:
        small = replace(layout, tp=1, pp=1, vpp=1, cp=1, dp=1, sequence_parallel=False, global_batch=batch)
    one = _answer(replace(setup, layout=small, memory_layout=small), engine)
    return 100.0 * (answer.tokens_per_s / layout.gpus) / (one.tokens_per_s / small.gpus)


def log_ratio(answer: Mapping[str, Any]) -> float | None:
    """log(measured seconds / forecast seconds) of an answer row about speed."""
    scored, metric = answer["zero_shot"], answer["metric"]
    if not scored or answer["skipped"] or metric not in TIME_METRICS or not answer["measured"]:
        return None
    value = math.log(answer["measured"] / scored["predicted"])
    return value if metric == "step_time_s" else -value


@lru_cache(maxsize=8)
def site_fits(engine: str, sources: frozenset[str]) -> SiteFits:
    """Site constants of packaged sources."""
    fits = SiteFits()
    for i, row in enumerate(packaged_rows()):
        if (row.get("source") or "") not in sources:
            continue
        answer = validate_row(index=i, row=row, engine=engine)
        ratio = log_ratio(answer)
        if ratio is not None:
            step = _answer(setup_of_row(row), engine)
            source, gpu = row.get("source") or "", row.get("gpu") or ""
            fits.add(source=source, gpu=gpu, config=answer["config"], answer=step, log_ratio=ratio)
    return fits


def _with_site(*, answer: dict[str, Any], row: Row, fits: SiteFits, engine: str) -> dict[str, Any]:
    """The answer with its `site` forecast: packaged rows of the same source and part, another configuration."""
    if log_ratio(answer) is None:
        return answer
    step = _answer(setup_of_row(row), engine)
    found = fits.log_factor(
        source=row.get("source") or "", gpu=row.get("gpu") or "", config=answer["config"], answer=step
    )
    if found is None:
        return answer
    shift, count = found
    factor = math.exp(shift if answer["metric"] == "step_time_s" else -shift)
    zero = answer["zero_shot"]
    half = 0.5 * math.log(zero["p90"] / zero["p10"]) * (0.65 if count >= 5 else 0.8)
    value = zero["predicted"] * factor
    answer["site"] = {
        "predicted": value,
        "p10": value * math.exp(-half),
        "p90": value * math.exp(half),
        "error_pct": _error(predicted=value, measured=answer["measured"]),
    }
    return answer


def _with_named_site(*, answer: dict[str, Any], row: Row, site: Site, engine: str) -> dict[str, Any]:
    """The answer with its `site` forecast by the constants of a site file; a run they were fitted to is flagged."""
    if log_ratio(answer) is None:
        return answer
    setup = setup_of_row(row)
    step = _answer(setup, engine)
    fitted = with_site(
        answer=step,
        compute_factor=site.compute_factor,
        network_factor=site.network_factor,
        host_factor=site.host_factor,
    )
    factor = fitted.step_s / step.step_s
    value = answer["zero_shot"]["predicted"] * (factor if answer["metric"] == "step_time_s" else 1 / factor)
    default = band_sigma(answer=step, setup=setup, metric=answer["metric"])
    half = Z80 * site_sigma(site=site, default_sigma=default)
    answer["site"] = {
        "predicted": value,
        "p10": value * math.exp(-half),
        "p90": value * math.exp(half),
        "error_pct": _error(predicted=value, measured=answer["measured"]),
    }
    if answer["config"] in site.configs:
        answer["flags"].append("site_fitted_to_this_run")
    return answer


def fit_rows(*, rows: Sequence[Row], name: str, engine: str = "fast") -> tuple[Site, int]:
    """A site from measured runs, and how many of them were usable.

    Raises:
        ValueError: no run can be used; the message names the first reason.
    """
    usable, configs, reasons = [], [], []
    for i, row in enumerate(rows):
        answer = validate_row(index=i, row=row, engine=engine)
        ratio = log_ratio(answer)
        if ratio is None:
            reasons.append(answer["skipped"] or f"metric {answer['metric']!r} says nothing of speed")
        else:
            usable.append((_answer(setup_of_row(row), engine), ratio))
            configs.append(answer["config"])
    if not usable:
        raise ValueError(f"none of {len(rows)} rows can be used: {reasons[0] if reasons else 'no rows'}")
    return fit_site(name=name, runs=usable, configs=configs), len(usable)


def validate_runs(
    *, rows: Sequence[Row] | None = None, engine: str = "fast", group: str | None = None, site: Site | None = None
) -> dict[str, Any]:
    """The whole answer of `planner validate --runs`.

    Args:
        rows: measured runs; None = the packaged public ones.
        engine: fast or events.
        group: keeps groups whose name contains this text.
        site: constants for the `site` column; None = those of packaged rows of the same source and part.
    """
    from planner.validate.summary import summarise

    data = list(rows) if rows is not None else packaged_rows()
    answers = [validate_row(index=i, row=r, engine=engine) for i, r in enumerate(data)]
    pairs = list(zip(answers, data, strict=True))
    if site is not None:
        answers = [_with_named_site(answer=a, row=r, site=site, engine=engine) for a, r in pairs]
    else:
        fits = site_fits(engine, frozenset(row.get("source") or "" for row in data))
        answers = [_with_site(answer=a, row=r, fits=fits, engine=engine) for a, r in pairs]
    pairs = [(a, r) for a, r in zip(answers, data, strict=True) if group is None or group.lower() in a["group"].lower()]
    return summarise(
        kind="runs", engine=engine, profile="catalog", answers=[a for a, _ in pairs], rows=[r for _, r in pairs]
    )
