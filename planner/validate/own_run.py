"""One logged run as a row of the runs table, the columns that `planner fit` and `planner validate --runs` read."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.catalog.types import ModelSpec, NodeSpec
from planner.profile.training_log import LogError, Steady, TrainingLog
from planner.validate.setup import SkipRowError, model_of_row
from planner.workload.params import total_params

COLUMNS = (
    *("id", "source", "source_detail", "year", "model", "params_b", "layers", "hidden", "heads", "kv_heads", "ffn"),
    *("vocab", "seq", "moe_experts", "moe_topk", "gpu", "n_gpus", "gpus_per_node", "intra_link", "inter_link", "tp"),
    *("pp", "vpp", "dp", "cp", "ep", "sp", "zero_stage", "mbs", "gbs", "precision", "recompute", "flash", "framework"),
    *("metric", "measured", "unit", "verified", "notes", "trust", "flops_def", "mfu_peak_tflops", "gpu_mem_gb"),
    *("gpu_mem_bw_gbs", "gpu_power_w", "head_dim", "moe_ffn_shared", "moe_dense_layers", "moe_ffn_dense", "scaleup"),
    *("scaleup_domain_gpus", "scaleout", "scaleout_gbps_per_node"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run ran: `gpus_per_node` of each node were used."""

    node: NodeSpec
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """GPUs of the run."""
        return self.nodes * self.gpus_per_node


def row_of_run(
    *,
    log: TrainingLog,
    steps: Steady,
    model: ModelSpec,
    place: Place,
    stated: Mapping[str, str],
    name: str,
    source: str,
    year: int,
) -> dict[str, str]:
    """A row with every column of COLUMNS.

    Args:
        log: the log; printed arguments fill columns that `stated` leaves out.
        steps: its steady part.
        model: its shape.
        place: its cluster.
        stated: columns that the user states, which win over the log except where both count the same thing.
        name: becomes the id.
        source: becomes the source; one name for all runs of a cluster.
        year: decides what the framework could do then.

    Raises:
        LogError: the log counts other GPUs than the cluster has, or a needed setting is neither stated nor printed.
    """
    printed = {column: str(value) for column, value, _ in log.settings}
    _check_gpus(log=log, place=place)
    settings = printed | {k: v for k, v in stated.items() if v}
    settings.pop("n_gpus", None)
    if steps.global_batch and not stated.get("gbs"):
        settings["gbs"] = str(steps.global_batch)
    for column, option in (("seq", "--sequence"), ("gbs", "--global-batch")):
        if not settings.get(column):
            raise LogError(f"{column} is not printed in the log: state it with {option}")
    batch, sequence = float(settings["gbs"]), float(settings["seq"])
    metric, unit, measured = _measured(steps=steps, batch=batch, sequence=sequence, gpus=place.gpus)
    row = dict.fromkeys(COLUMNS, "") | _shape(model) | _cluster(place) | settings
    row |= {
        "id": name,
        "source": source,
        "source_detail": f"{log.format} log, {log.lines} lines",
        "year": str(year),
        "framework": settings.get("framework") or log.framework,
        "metric": metric,
        "measured": f"{measured:.6g}",
        "unit": unit,
        "verified": "yes",
        "flops_def": "unknown",
    }
    return row | {"notes": "; ".join([*_notes(log=log, steps=steps), *_read_otherwise(row=row, model=model)])}


def _check_gpus(*, log: TrainingLog, place: Place) -> None:
    for column, value, line in log.settings:
        if column == "n_gpus" and value != place.gpus:
            cluster = f"{place.nodes} x {place.gpus_per_node} = {place.gpus}"
            raise LogError(f"the log counts {value} GPUs, the cluster given {cluster}", line=line)


def _measured(*, steps: Steady, batch: float, sequence: float, gpus: int) -> tuple[str, str, float]:
    """(metric, unit, value) that the runs table knows."""
    if steps.kind == "seconds":
        return "step_time_s", "s", steps.median
    if steps.kind == "samples_per_s":
        return "step_time_s", "s", batch / steps.median
    per_gpu = steps.median if steps.kind == "tokens_per_s_per_gpu" else steps.median / gpus
    return "tokens_per_s_per_gpu", "tokens/s/GPU", per_gpu


def _shape(model: ModelSpec) -> dict[str, str]:
    moe = bool(model.moe_experts)
    return {
        "model": model.name,
        "params_b": f"{total_params(model) / 1e9:.4g}",
        "layers": str(model.layers),
        "hidden": str(model.hidden),
        "heads": str(model.heads),
        "kv_heads": str(model.kv_heads),
        "head_dim": str(model.head_dim),
        "ffn": str(model.moe_ffn if moe else model.ffn),
        "vocab": str(model.vocab),
        "moe_experts": str(model.moe_experts) if moe else "",
        "moe_topk": str(model.moe_topk) if moe else "",
        "moe_ffn_shared": str(model.moe_shared_ffn) if moe else "",
        "moe_dense_layers": str(model.moe_dense_layers) if moe else "",
        "moe_ffn_dense": str(model.ffn) if moe else "",
    }


def _cluster(place: Place) -> dict[str, str]:
    node, many = place.node, place.nodes > 1
    return {
        "gpu": node.gpu,
        "n_gpus": str(place.gpus),
        "gpus_per_node": str(place.gpus_per_node),
        "scaleup_domain_gpus": str(min(node.scaleup_domain_gpus, place.gpus) or place.gpus_per_node),
        "scaleout": node.fabric if many else "none",
        "scaleout_gbps_per_node": f"{node.scaleout_bytes_per_s * 8 / 1e9:g}" if many else "",
    }


def _read_otherwise(*, row: Mapping[str, str], model: ModelSpec) -> list[str]:
    """Traits that the table has no column for and reads from the model's name, where that reading is wrong."""
    try:
        read = model_of_row(row, [])
    except SkipRowError as reason:
        return [f"the table skips this model: {reason}"]
    return [
        f"read as {trait} {getattr(read, trait)}, is {getattr(model, trait)}"
        for trait in ("activation", "norm", "position", "tied_embeddings", "causal")
        if getattr(read, trait) != getattr(model, trait)
    ]


def _notes(*, log: TrainingLog, steps: Steady) -> list[str]:
    words = [f"median of {steps.kept} step lines from line {steps.line}"]
    words.append(f"P10 {steps.p10:.6g}, P90 {steps.p90:.6g} ({steps.kind})")
    words += [f"{steps.dropped} warm-up lines dropped"] if steps.dropped else []
    words += [f"{steps.restarts} restarts"] if steps.restarts else []
    words += [f"{log.unusable} lines without a number"] if log.unusable else []
    if log.format == "HF Trainer summary":
        words.append("mean of the whole run, start-up included")
    return words


def csv_of_rows(rows: Sequence[Mapping[str, str]]) -> str:
    """The rows as CSV text: the table's columns, then any further ones of the rows.

    Raises:
        ValueError: a row that was read with more cells than its header has columns.
    """
    broken = next((i for i, r in enumerate(rows, 1) if any(k is None for k in r)), None)
    if broken is not None:
        raise ValueError(f"row {broken} has more cells than the header has columns")
    further = dict.fromkeys(k for r in rows for k in r if k not in COLUMNS)
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=[*COLUMNS, *further], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
