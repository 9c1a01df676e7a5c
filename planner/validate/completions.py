"""What a row leaves open, closed for the memory forecast: the first completion of the plan that fits.

Published tables leave out the recompute policy, the micro-batch, at times the whole mapping. Memory then takes, in a
fixed order, the completion nearest to the documented defaults that fits the GPU; a plan is refused only when none does.
The rule is the same for runs that ran and for runs that did not.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner import catalog
from planner.catalog.types import ModelSpec
from planner.simulate.durations import Machine
from planner.workload.layout import Layout
from planner.workload.memory import worst_rank

RECOMPUTE_ORDER = ("none", "selective", "full")
MEGATRON_LIKE = {"megatron", "megatron-deepspeed", "nemo", "megascale", "simumax"}
BLACKWELL = "blackwell"


def _blank(row: Mapping[str, str], key: str) -> bool:
    return not (row.get(key) or "").strip()


def _notes(row: Mapping[str, str]) -> str:
    return (row.get("notes") or "").lower()


def _recomputes(*, layout: Layout, framework: str, assumed: tuple[str, ...]) -> tuple[str, ...]:
    if "recompute" in assumed:
        # torchtitan checkpoints operator-selectively unless told otherwise; plain Megatron-Core papers that do not name
        # full recompute do not use it, while vendor recipes (nemo) switch it on model by model without printing it.
        return {"torchtitan": RECOMPUTE_ORDER[1:], "megatron": RECOMPUTE_ORDER[:2]}.get(framework, RECOMPUTE_ORDER)
    if layout.recompute == "selective" and framework not in MEGATRON_LIKE:
        return ("selective", "full")  # outside Megatron the word does not say which tensors are dropped
    return (layout.recompute,)


def _mappings(*, row: Mapping[str, str], layout: Layout, layers: int) -> Iterator[Layout]:
    """The layout as assumed, then every filling of blank tp, pp, cp by powers of two, the least split first."""
    yield layout
    open_keys = [k for k in ("tp", "pp", "cp") if _blank(row, k)]
    if not open_keys:
        return
    per_node = int(float(row.get("gpus_per_node") or 8))
    limit = {"tp": min(per_node, 8), "pp": min(layers, 64), "cp": 64}
    powers = [2**i for i in range(7)]
    grid = [
        (tp, pp, cp)
        for tp in (powers if "tp" in open_keys else [layout.tp])
        for pp in (powers if "pp" in open_keys else [layout.pp])
        for cp in (powers if "cp" in open_keys else [layout.cp])
        if tp <= limit["tp"] and pp <= limit["pp"] and cp <= limit["cp"]
    ]
    for tp, pp, cp in sorted(grid, key=lambda g: (g[0] * g[1] * g[2], g[1], g[2])):
        split = tp * pp * cp
        if layout.gpus % split or layout.global_batch < layout.gpus // split:
            continue
        dp = layout.gpus // split
        local = max(1, layout.global_batch // dp)
        yield replace(
            layout,
            tp=tp,
            pp=pp,
            cp=cp,
            dp=dp,
            micro_batch=min(layout.micro_batch, local),
            sequence_parallel=layout.sequence_parallel or tp > 1,
        )


def _variants(*, row: Mapping[str, str], layout: Layout, assumed: tuple[str, ...], moe: bool) -> Iterator[Layout]:
    """Sharding, expert-tensor split and micro-batch where the row does not print them."""
    zeros = (layout.zero_stage, 3) if _blank(row, "zero_stage") and layout.zero_stage < 3 else (layout.zero_stage,)
    folds = (1, layout.tp) if moe and layout.tp > 1 and layout.ep * layout.tp <= layout.gpus // layout.pp else (1,)
    # "in some rows" is all such a table says: checkpoints may lie on the device or on the host.
    hosts: tuple[tuple[str, ...], ...] = ((), ("input",)) if "checkpoints on cpu" in _notes(row) else ((),)
    sizes = [layout.micro_batch]
    while "mbs" in assumed and sizes[-1] > 1:
        sizes.append(sizes[-1] // 2)
    for zero in zeros:
        for etp in folds:
            for size in sizes:
                for host in hosts:
                    yield replace(layout, zero_stage=zero, etp=etp, micro_batch=size, offload_modules=host)


def _stated(*, row: Mapping[str, str], layout: Layout, machine: Machine) -> Layout:
    """What the row or its framework does say about memory and the time forecast does not need."""
    framework = machine.software.framework
    if framework == "nemo" and layout.precision == "fp8":
        # Inferred from MLPerf readings: weights live in 8 bits alone, with a transposed copy before Blackwell.
        arch = catalog.gpu(machine.gpu).arch.lower()
        layout = replace(layout, weight_bytes=1.0 if arch.startswith(BLACKWELL) else 2.0)
    if framework == "nemo":
        # Several public performance recipes set grad_reduce_in_fp32 = False; taken for all of them.
        layout = replace(layout, gradient_bytes=2)
    if framework == "megatron-deepspeed" and layout.zero_stage <= 1:
        # fp16: 16-bit gradients alone; bf16: they stand beside the fp32 sums that the optimizer accumulates.
        layout = replace(layout, gradient_bytes=2 if layout.precision == "fp16" else 6)
    every = re.search(r"checkpoint every (\d+) layers", _notes(row))
    if every:
        layout = replace(layout, recompute_method="uniform", recompute_layers=int(every.group(1)))
    if framework == "torchtitan" and layout.pp > 1 and layout.zero_stage == 3:
        # Under a pipeline its FSDP keeps weights gathered and gradients whole between micro-batches.
        layout = replace(layout, zero_stage=1)
    return layout


def memory_layout_of_row(
    *,
    row: Mapping[str, str],
    model: ModelSpec,
    layout: Layout,
    machine: Machine,
    capacity_bytes: float,
    assumed: tuple[str, ...],
) -> Layout:
    """The layout that memory is counted for; the least hungry completion when none fits."""
    layout = _stated(row=row, layout=layout, machine=machine)
    recomputes = _recomputes(layout=layout, framework=machine.software.framework, assumed=assumed)
    best, least = layout, float("inf")
    for mapping in _mappings(row=row, layout=layout, layers=model.layers):
        for variant in _variants(row=row, layout=mapping, assumed=assumed, moe=bool(model.moe_experts)):
            for mode in recomputes:
                candidate = replace(variant, recompute=mode)
                rank = worst_rank(model=model, layout=candidate, fusions=machine.software.fusions)
                need = rank.peak_bytes + rank.reserved_bytes
                if need <= capacity_bytes:
                    return candidate
                if need < least:
                    best, least = candidate, need
    return best
