"""The plan space of a scenario: every value of every axis, and which combinations can exist at all."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from planner.catalog.types import GpuSpec, ModelSpec
from planner.workload.layout import Layout

ZERO_STAGES = (0, 1, 2, 3)
RECOMPUTES = ("none", "selective", "full")
MOST_SEQUENCES = 64  # of a micro-batch
MOST_TENSOR_RANKS = 64  # beyond the largest scale-up domain that anybody splits a layer over
LEAST_CONTEXT_TOKENS = 256  # of a sequence on one context rank; shorter pieces are not worth an exchange
SCHEDULES = ("1f1b", "interleaved", "gpipe", "zb1p", "zb2p", "dualpipev")


@dataclass(frozen=True, slots=True)
class Axes:
    """Values tried for each choice; the space is their product."""

    tp: tuple[int, ...]
    pp: tuple[int, ...]
    vpp: tuple[int, ...]
    cp: tuple[int, ...]
    ep: tuple[int, ...]
    etp: tuple[int, ...]
    micro_batch: tuple[int, ...]
    zero_stage: tuple[int, ...]
    recompute: tuple[str, ...]
    sequence_parallel: tuple[bool, ...]
    precision: tuple[str, ...]
    schedule: tuple[str, ...]
    dp_overlap: tuple[bool, ...]
    pp_overlap: tuple[bool, ...]
    tp_overlap: tuple[bool, ...]
    mode: tuple[str, ...]

    @property
    def plans(self) -> int:
        """Combinations, possible or not."""
        total = 1
        for name in self.__slots__:
            total *= len(getattr(self, name))
        return total

    @property
    def inner(self) -> int:
        """Combinations of the choices that do not move the placement."""
        total = 1
        for name in self.__slots__[7:]:
            total *= len(getattr(self, name))
        return total


def _powers(limit: int) -> tuple[int, ...]:
    out, size = [], 1
    while size <= limit:
        out.append(size)
        size *= 2
    return tuple(out)


def _divisors(n: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, n + 1) if n % d == 0)


def axes_of(
    *,
    model: ModelSpec,
    gpu: GpuSpec,
    gpus: int,
    domain_gpus: int,
    global_batch: int,
    sequence: int,
    precision: str | None,
) -> Axes:
    """The axes for a model on a cluster; `precision` fixes the dtype, None tries bf16, fp16 and fp8."""
    experts = _powers(min(model.moe_experts, gpus)) if model.moe_experts else (1,)
    slots = sorted(set(_divisors(model.layers)) | set(_divisors(model.layers + 2)))
    pipeline = tuple(p for p in slots if p <= min(gpus, model.layers))
    known = tuple(d for d in ("bf16", "fp16", "fp8") if gpu.peak_flops.get(d))
    dtypes = (precision,) if precision else (known or ("bf16",))
    context = tuple(c for c in _powers(max(1, min(gpus, sequence // LEAST_CONTEXT_TOKENS))) if sequence % (2 * c) == 0)
    tensor = tuple(t for t in _divisors(gpus) if t <= MOST_TENSOR_RANKS and model.heads % t == 0)
    return Axes(
        tp=tensor,
        pp=pipeline,
        vpp=tuple(v for v in slots if v <= max(1, model.layers // 2)),
        cp=context or (1,),
        ep=tuple(e for e in experts if model.moe_experts % e == 0) if model.moe_experts else (1,),
        etp=tuple(t for t in tensor if t <= domain_gpus) if model.moe_experts else (1,),
        micro_batch=tuple(d for d in _divisors(global_batch) if d <= MOST_SEQUENCES),
        zero_stage=ZERO_STAGES,
        recompute=RECOMPUTES,
        sequence_parallel=(False, True),
        precision=dtypes,
        schedule=SCHEDULES,
        dp_overlap=(False, True),
        pp_overlap=(False, True),
        tp_overlap=(False, True),
        mode=("eager", "graph"),
    )


@dataclass(frozen=True, slots=True)
class Place:
    """One placement and the micro-batches that divide it; the layout has the first of them."""

    layout: Layout
    micro_batches: tuple[int, ...]  # sequences


def places(*, axes: Axes, model: ModelSpec, gpus: int, global_batch: int, sequence: int) -> Iterator[Place]:
    """Every way to place the model that divides, the inner choices at their first value.

    Experts are whole on a rank, or split as the rest of the layer is.
    """
    for tp, pp, cp in product(axes.tp, axes.pp, axes.cp):
        dp, rest = divmod(gpus, tp * pp * cp)
        if rest or dp == 0 or global_batch % dp or model.heads % tp or (model.kv_heads % tp and tp % model.kv_heads):
            continue
        sizes = tuple(n for n in axes.micro_batch if global_batch // dp % n == 0)
        if not sizes or (cp > 1 and sequence % (2 * cp)):
            continue
        for vpp, ep, etp in product(axes.vpp, axes.ep, axes.etp):
            if (dp * cp * tp) % (ep * etp) or (etp > 1 and (model.moe_ffn % etp or etp != tp)):
                continue
            cells = pp * vpp
            if cells > model.layers or (model.layers % cells and (model.layers + 2) % cells) or (vpp > 1 and pp == 1):
                continue
            layout = Layout(
                tp=tp,
                pp=pp,
                vpp=vpp,
                dp=dp,
                cp=cp,
                ep=ep,
                etp=etp,
                micro_batch=sizes[0],
                global_batch=global_batch,
                sequence=sequence,
                schedule="interleaved" if vpp > 1 else "1f1b",
            )
            yield Place(layout, sizes)


def placements(*, axes: Axes, model: ModelSpec, gpus: int, global_batch: int, sequence: int) -> Iterator[Layout]:
    """Every placement with each of its micro-batches."""
    for place in places(axes=axes, model=model, gpus=gpus, global_batch=global_batch, sequence=sequence):
        for size in place.micro_batches:
            yield replace(place.layout, micro_batch=size)


def schedules_of(*, axes: Axes, layout: Layout) -> tuple[str, ...]:
    """Schedules that exist for a placement."""
    if layout.pp == 1:
        known = {"1f1b"}
    elif layout.vpp > 1:
        in_a_v = layout.vpp == 2 and layout.micro_batches >= 2 * layout.pp
        known = {"interleaved", "dualpipev"} if in_a_v else {"interleaved"}
    else:
        known = {"1f1b", "gpipe", "zb1p", "zb2p"}
    return tuple(s for s in axes.schedule if s in known)
