"""Answer rows gathered into groups, ranking and summary (contract 5)."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from planner import SCHEMA_VERSION

TIME_METRICS = {"step_time_s", "tokens_per_s_per_gpu", "mfu_pct", "tflops_per_gpu"}
RANK_KEYS = ("source", "model", "gpu", "n_gpus", "seq", "gbs", "precision")
MEMORY_METRICS = {"memory_gb", "memory_steady_gb"}
TIE_FRAC = 0.02


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _by_config(answers: Sequence[Mapping[str, Any]], key: str, value: str) -> list[float]:
    """Absolute errors averaged within a configuration, so several metrics of a run count once."""
    cells: dict[str, list[float]] = defaultdict(list)
    for a in answers:
        part = a.get(key)
        if part and part.get(value) is not None:
            cells[a["config"]].append(abs(part[value]))
    return [statistics.fmean(v) for v in cells.values()]


def _scores(answers: Sequence[Mapping[str, Any]], key: str) -> dict[str, float | None] | None:
    rows = [a for a in answers if a.get(key) and a[key].get("error_pct") is not None]
    if not rows:
        return None
    by_config = _by_config(rows, key, "error_pct")
    inside = [a[key]["p10"] <= a["measured"] <= a[key]["p90"] for a in rows]
    width = [(a[key]["p90"] - a[key]["p10"]) / a[key]["predicted"] for a in rows if a[key]["predicted"]]
    signed = [
        a[key]["error_pct"] * (-1 if a["metric"] in {"tokens_per_s_per_gpu", "mfu_pct", "tflops_per_gpu"} else 1)
        for a in rows
    ]
    return {
        "mape_pct": _mean(by_config),
        "median_ape_pct": statistics.median(by_config),
        "bias_pct": _mean(signed),
        "worst_pct": max(by_config),
        "coverage_frac": sum(inside) / len(inside),
        "width_frac": statistics.median(width) if width else None,
    }


MEMORY_METRICS = {"memory_gb", "memory_steady_gb"}


def group_rows(
    answers: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, str]], *, memory: bool = False
) -> list[dict[str, Any]]:
    """Scores of each group over time-like rows, or over memory rows alone (`memory`)."""
    members: dict[str, list[tuple[Mapping[str, Any], Mapping[str, str]]]] = defaultdict(list)
    for a, r in zip(answers, rows, strict=True):
        is_memory = a["metric"] in MEMORY_METRICS
        if a["skipped"] is None and is_memory == memory and a["metric"] != "oom":
            members[a["group"]].append((a, r))
    out = []
    for name in sorted(members):
        pairs = members[name]
        group = [a for a, _ in pairs]
        trust = Counter(r.get("trust") or "" for _, r in pairs).most_common(1)[0][0]
        base = _by_config(group, "baseline", "error_pct")
        out.append(
            {
                "group": name,
                "trust": trust,
                "n_rows": len(group),
                "n_configs": len({a["config"] for a in group}),
                "zero_shot": _scores(group, "zero_shot"),
                "site": _scores(group, "site"),
                "baseline": {"mape_pct": _mean(base)} if base else None,
            }
        )
    return out


def ranking(answers: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Rank correlation and regret of plans of the same workload; repeats averaged, plans within 2 % tied."""
    from scipy.stats import spearmanr

    plans: dict[tuple[str, ...], dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for a, r in zip(answers, rows, strict=True):
        if a["skipped"] is not None or a["metric"] not in {"step_time_s", "tokens_per_s_per_gpu"} or not a["zero_shot"]:
            continue
        sign = 1 if a["metric"] == "step_time_s" else -1
        plans[tuple(r.get(k) or "" for k in RANK_KEYS)][a["config"]].append(
            (a["measured"] ** sign, a["zero_shot"]["predicted"] ** sign)
        )
    out = []
    for key, configs in sorted(plans.items()):
        if len(configs) < 5:
            continue
        measured = [statistics.fmean(m for m, _ in v) for v in configs.values()]
        predicted = [statistics.fmean(p for _, p in v) for v in configs.values()]
        rho = float(spearmanr(_tied(measured), _tied(predicted)).statistic)
        chosen = min(range(len(predicted)), key=lambda i: predicted[i])
        out.append(
            dict(zip(RANK_KEYS, key, strict=True))
            | {
                "n_plans": len(configs),
                "spearman": None if math.isnan(rho) else rho,
                "regret_frac": measured[chosen] / min(measured) - 1,
            }
        )
    return out


def _tied(values: Sequence[float]) -> list[int]:
    """Ranks where a value within 2 % of the previous distinct one shares its rank."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0] * len(values)
    rank, anchor = 0, values[order[0]]
    for i in order:
        if values[i] > anchor * (1 + TIE_FRAC):
            rank, anchor = rank + 1, values[i]
        ranks[i] = rank
    return ranks


def _summary_scores(
    *, groups: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]], key: str, judged: set[str]
) -> dict[str, Any] | None:
    scored = [g[key] for g in groups if g[key]]
    if not scored and key == "site":
        return None
    everything = _scores([a for a in answers if a["skipped"] is None and a["metric"] in judged], key) or {}
    return {
        "mean_group_mape_pct": _mean([g["mape_pct"] for g in scored]),
        "median_group_mape_pct": statistics.median([g["mape_pct"] for g in scored]) if scored else None,
        "bias_pct": everything.get("bias_pct"),
        "coverage_frac": everything.get("coverage_frac"),
        "width_frac": everything.get("width_frac"),
    }


def summarise(
    *, kind: str, engine: str, profile: str, answers: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """The document of contract 5."""
    groups = group_rows(answers, rows, memory=kind == "memory")
    ranks = ranking(answers, rows) if kind == "runs" else []
    judged = {"memory": MEMORY_METRICS, "runs": TIME_METRICS, "steps": TIME_METRICS}.get(
        kind, {a["metric"] for a in answers}
    )
    base = [g["baseline"]["mape_pct"] for g in groups if g["baseline"]]
    rhos = [r["spearman"] for r in ranks if r["spearman"] is not None]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "engine": engine,
        "profile": profile,
        "rows": list(answers),
        "groups": groups,
        "ranking": ranks,
        "summary": {
            "n_rows": len(answers),
            "n_forecast": sum(a["skipped"] is None for a in answers),
            "skipped": dict(Counter(a["skipped"].split(":")[0] for a in answers if a["skipped"])),
            "zero_shot": _summary_scores(groups=groups, answers=answers, key="zero_shot", judged=judged),
            "site": _summary_scores(groups=groups, answers=answers, key="site", judged=judged),
            "baseline": {"median_group_mape_pct": statistics.median(base) if base else None},
            "ranking": {"spearman": _mean(rhos), "regret_frac": _mean([r["regret_frac"] for r in ranks])},
        },
    }
