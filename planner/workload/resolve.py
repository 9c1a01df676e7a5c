"""A strategy as written becomes a layout in numbers: presets, defaults, and what memory decides.

Preset `stack` is what people do by default: DistributedDataParallel if it fits, else fully sharded data parallel with
the framework's own prefetch; the largest power-of-two micro-batch that fits; recompute only if nothing else fits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.catalog.software import Software, software
from planner.catalog.types import ModelSpec
from planner.scenario.strategy import Strategy
from planner.workload.exchange import PLAIN, Exchange, usual_zero_stages
from planner.workload.layout import Layout
from planner.workload.memory import RankMemory
from planner.workload.torch_rank import fullest_rank

RECOMPUTE_ORDER = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A layout, the software it runs on, and how each open field was closed."""

    layout: Layout
    software: Software
    memory: RankMemory
    fits: bool
    cuda_graph: bool
    choices: tuple[tuple[str, str], ...]
    p2p_overlap: bool = True
    ep_overlap: bool = False
    compiled: str = ""


def _software(*, strategy: Strategy, hybrid: bool) -> tuple[Software, bool]:
    frame = strategy.framework
    name = frame.name if frame is not None and frame.name else ("megatron" if hybrid else "pytorch")
    year = frame.release if frame is not None and frame.release else 2024
    mode = frame.mode if frame is not None and frame.mode else "eager"
    soft = software(framework=name, year=int(year))
    if mode in {"compile", "regional"}:
        # A compiled block leaves the loss eager; the whole model has it inside.
        fused = {"norm", "activation", "residual", "rope"} | ({"cross_entropy"} if mode == "compile" else set())
        soft = replace(soft, fusions=soft.fusions | fused, host_scale=0.6 * soft.host_scale)
    return _with_overlap(soft=soft, strategy=strategy), mode == "graph"


def _with_overlap(*, soft: Software, strategy: Strategy) -> Software:
    overlap = strategy.overlap
    if overlap is None:
        return soft
    if overlap.dp is not None:
        soft = replace(soft, dp_overlap=overlap.dp, gather_overlap=overlap.dp)
    if overlap.tp is not None:
        # Half of the collective is what userbuffer chunking hides on published Megatron runs.
        soft = replace(soft, tp_overlap_frac=max(soft.tp_overlap_frac, 0.5) if overlap.tp else 0.0)
    return soft


def _exchange(*, strategy: Strategy, model: ModelSpec) -> Exchange:
    asked = strategy.gradient_compression
    return PLAIN if asked is None else Exchange(side=model.hidden, **asked.model_dump())


def _powers_down(limit: int) -> Iterator[int]:
    size = 1
    while size * 2 <= limit:
        size *= 2
    while size >= 1:
        yield size
        size //= 2


def _recomputes(strategy: Strategy) -> tuple[str, ...]:
    """Policies to try; naming modules or layers says which."""
    stated = "selective" if strategy.recompute_modules else "full" if strategy.recompute_layers else None
    fixed = strategy.recompute or stated
    return (fixed,) if fixed else RECOMPUTE_ORDER


def resolve_strategy(
    *, strategy: Strategy, model: ModelSpec, gpus: int, global_batch: int, sequence: int, capacity_bytes: float
) -> Resolved:
    """Close every open field of a strategy for `gpus` GPUs of `capacity_bytes` each.

    Raises:
        ValueError: degrees that do not multiply to the cluster or a batch that cannot be divided.
    """
    tp, pp, cp = strategy.tp or 1, strategy.pp or 1, strategy.cp or 1
    if gpus % (tp * pp * cp):
        raise ValueError(f"tp {tp} x pp {pp} x cp {cp} does not divide {gpus} GPUs")
    dp = strategy.dp or gpus // (tp * pp * cp)
    if global_batch % dp:
        raise ValueError(f"a global batch of {global_batch} sequences does not divide over {dp} data-parallel ranks")
    ep, etp = strategy.ep or 1, strategy.etp or 1
    if ep > 1 and tp * cp * dp % (ep * etp):
        raise ValueError(f"ep {ep} x etp {etp} does not divide the {tp * cp * dp} ranks of a stage")
    micro = strategy.micro_batch_sequences
    if micro and global_batch // dp % micro:
        raise ValueError(f"a micro-batch of {micro} does not divide the {global_batch // dp} sequences of a rank")
    hybrid = tp * pp * cp > 1
    soft, graph = _software(strategy=strategy, hybrid=hybrid)
    vpp = strategy.vpp or 1
    base = Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        cp=cp,
        ep=ep,
        etp=etp,
        sequence_parallel=bool(strategy.sequence_parallel),
        global_batch=global_batch,
        sequence=sequence,
        schedule=strategy.schedule or ("interleaved" if vpp > 1 else "1f1b"),
        precision={"amp": "bf16"}.get(strategy.precision or "bf16", strategy.precision or "bf16"),
        autocast=strategy.precision == "amp",
        optimizer=strategy.optimizer or "adamw",
        gradient_bytes=soft.gradient_bytes if hybrid else 2,
        recompute_modules=strategy.recompute_modules,
        recompute_method="block" if strategy.recompute_layers else "",
        recompute_layers=strategy.recompute_layers or 0,
        exchange=_exchange(strategy=strategy, model=model),
    )
    # Pipelines keep ZeRO-1: gathering weights for every micro-batch of every stage costs more than it saves.
    usual = (1,) if pp > 1 else ((1, 3) if hybrid else (0, 3))
    open_zeros = usual_zero_stages(exchange=base.exchange, usual=usual)
    zeros = (strategy.zero_stage,) if strategy.zero_stage is not None else open_zeros
    found = _first_that_fits(
        base=base, zeros=zeros, strategy=strategy, model=model, soft=soft, graph=graph, capacity=capacity_bytes
    )
    layout, memory, fits = found
    choices = tuple(
        (key, value)
        for key, was, value in (
            ("zero_stage", strategy.zero_stage, f"{layout.zero_stage}: the lightest that fits"),
            ("micro_batch_sequences", strategy.micro_batch_sequences, f"{layout.micro_batch}: the largest that fits"),
            ("recompute", strategy.recompute, f"{layout.recompute}: the least that fits"),
            ("framework", strategy.framework, f"{soft.framework} {soft.from_year}"),
            ("dp", strategy.dp, f"{layout.dp}: what is left of {gpus} GPUs"),
        )
        if was is None
    )
    beside = strategy.overlap is None or strategy.overlap.pp is not False
    # DualPipe pairs the forward of one micro-batch with the backward of another to hide the all-to-all of each.
    asked = strategy.overlap.ep if strategy.overlap is not None else None
    paired = layout.schedule == "dualpipev" if asked is None else asked
    compiled = _compiled(strategy)
    return Resolved(layout, soft, memory, fits, graph, choices, beside, ep_overlap=paired, compiled=compiled)


def _compiled(strategy: Strategy) -> str:
    mode = strategy.framework.mode if strategy.framework is not None else "eager"
    return {"compile": "whole", "regional": "regional"}.get(mode, "")


def _first_that_fits(
    *,
    base: Layout,
    zeros: tuple[int, ...],
    strategy: Strategy,
    model: ModelSpec,
    soft: Software,
    graph: bool,
    capacity: float,
) -> tuple[Layout, RankMemory, bool]:
    """In order: no recompute before recompute, light sharding before heavy, large micro-batch before small."""
    local = base.global_batch // base.dp
    sizes = (
        [strategy.micro_batch_sequences]
        if strategy.micro_batch_sequences
        else ([1] if base.pp > 1 else [s for s in _powers_down(local) if local % s == 0])
    )
    last: tuple[Layout, RankMemory] | None = None
    for recompute in _recomputes(strategy):
        for zero in zeros:
            for size in sizes:
                layout = replace(base, zero_stage=zero, micro_batch=size, recompute=recompute)
                memory = fullest_rank(
                    model=model, layout=layout, software=soft, compiled=_compiled(strategy), cuda_graph=graph
                )
                last = (layout, memory)
                if memory.peak_bytes + memory.reserved_bytes <= capacity:
                    return layout, memory, True
    assert last is not None
    return last[0], last[1], False
