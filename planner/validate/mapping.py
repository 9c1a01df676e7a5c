"""What a row does not print of its mapping: degrees, micro-batch and recompute, by stated rules."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from planner.catalog.software import Software
from planner.catalog.types import ModelSpec
from planner.simulate.assemble import forecast_step
from planner.simulate.durations import Machine
from planner.workload.layout import Layout
from planner.workload.memory import worst_rank

# A run with no stated recompute is taken to have recomputed where its activations exceed memory by more than the memory
# model was ever too high on runs whose activation format is not printed (35-70 % on fp8 runs of MLPerf).
MEMORY_VETO = 1.7
DEGREES, DEEP = (1, 2, 4, 8), (16, 32)  # more stages than eight only where nothing else fits


def spread(*, ranks: int, per_node: int, kv_heads: int) -> tuple[int, int]:
    """Tensor degree, and what is left for context or stages, of a run with fewer sequences than GPUs: a node first."""
    tp = 1
    while tp * 2 <= min(ranks, per_node, max(1, kv_heads)):
        tp *= 2
    return tp, max(1, math.ceil(ranks / tp))


def interleaves(soft: Software) -> bool:
    """Recipes of these stacks interleave the pipeline by default."""
    return soft.framework == "nemo" or (soft.framework == "megatron" and soft.from_year >= 2024)


def most_chunks(*, layers: int, pp: int) -> int:
    """The most chunks, up to seven, that divide a stage's layers: what vendor recipes interleave."""
    return max(v for v in range(1, 8) if (layers // pp) % v == 0) if pp > 1 and layers % pp == 0 else 1


def _fits(*, layout: Layout, model: ModelSpec, machine: Machine, capacity_bytes: float) -> bool:
    rank = worst_rank(model=model, layout=layout, fusions=machine.software.fusions)
    return rank.peak_bytes + rank.reserved_bytes <= capacity_bytes


def fitting(*, layout: Layout, model: ModelSpec, machine: Machine, capacity_bytes: float) -> Layout:
    """The largest micro-batch, halving from the one given, that fits memory; one sequence where none does."""
    while layout.micro_batch > 1 and not _fits(
        layout=layout, model=model, machine=machine, capacity_bytes=capacity_bytes
    ):
        layout = replace(layout, micro_batch=layout.micro_batch // 2)
    return layout


def recomputed(*, layout: Layout, model: ModelSpec, machine: Machine, capacity_bytes: float) -> Layout:
    """The layout as it is, or with the lightest recompute that fits where none is out of the question."""
    rank = worst_rank(model=model, layout=layout, fusions=machine.software.fusions)
    if rank.peak_bytes <= MEMORY_VETO * capacity_bytes:
        return layout
    for mode in ("selective", "full"):
        lighter = replace(layout, recompute=mode, recompute_modules=layout.recompute_modules if mode != "full" else ())
        if _fits(layout=lighter, model=model, machine=machine, capacity_bytes=capacity_bytes):
            break
    return lighter


def _mappings(
    *, layout: Layout, model: ModelSpec, machine: Machine, with_cp: bool, stages: tuple[int, ...]
) -> Iterator[Layout]:
    per_node, kv = machine.network.scaleup_domain_gpus, max(1, model.kv_heads)
    for tp in (d for d in DEGREES if d <= min(8, per_node, kv) and model.heads % d == 0):
        for pp in (d for d in stages if model.layers % d == 0):
            for cp in DEGREES if with_cp else (layout.cp,):
                dp = layout.gpus // (tp * pp * cp)
                if dp * tp * pp * cp != layout.gpus or layout.global_batch % max(1, dp):
                    continue
                per_rank = layout.global_batch // dp
                chunks = most_chunks(layers=model.layers, pp=pp) if per_rank % pp == 0 else 1
                vpp = chunks if interleaves(machine.software) else 1
                yield replace(
                    layout, tp=tp, pp=pp, cp=cp, dp=dp, vpp=vpp, micro_batch=1, sequence_parallel=tp > 1,
                    recompute="none", schedule="interleaved" if vpp > 1 else "1f1b",
                )  # fmt: skip


@lru_cache(maxsize=512)
def fastest(*, layout: Layout, model: ModelSpec, machine: Machine, capacity_bytes: float, with_cp: bool) -> Layout:
    """The fastest mapping that fits, by the closed form; the layout itself where none does.

    Rows that print no mapping report the best that their authors found. Degrees of two, tensor parallelism inside a
    domain and over key-value heads, one sequence a micro-batch, all recompute or none.
    """
    for stages in (DEGREES, DEEP):
        found = []
        for kept in _mappings(layout=layout, model=model, machine=machine, with_cp=with_cp, stages=stages):
            for candidate in (kept, replace(kept, recompute="full")):
                if _fits(layout=candidate, model=model, machine=machine, capacity_bytes=capacity_bytes):
                    found.append(candidate)
                    break
        if found:
            return min(found, key=lambda c: forecast_step(model=model, layout=c, machine=machine).step_s)
    return layout
