"""What is over on a rank that does not fit, and the cheapest settings to relax, with the bytes each saves."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.catalog.types import ModelSpec
from planner.workload.layout import Layout
from planner.workload.memory import RankMemory, worst_rank
from planner.workload.memory_stack import MemoryStack

PARTS = ("weights", "gradients", "optimizer", "activations", "buffers", "reserved")
MAX_STEPS = 12


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One change of the plan: what to set, what it saves on the fullest rank, and what it costs.

    `cost_rank` orders kinds by what they take in return: 0 nothing, 1 a little communication, 2 recomputation of the
    attention core, 3 smaller kernels, 4 a third more forward work, 5 gathering weights, 6 the host link, 7 more GPUs in
    one model.
    """

    setting: str
    value: str
    saves_bytes: float
    fits: bool
    cost_rank: int
    why: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """How much the fullest rank lacks, its parts from large to small, and what can be relaxed.

    `relaxations` are single changes; `together` is a cheap chain of changes that ends in a plan that fits, empty when
    none was found.
    """

    stage: int
    over_bytes: float
    parts_bytes: tuple[tuple[str, float], ...]
    relaxations: tuple[Relaxation, ...]
    together: tuple[Relaxation, ...]


def _smaller(value: int) -> int:
    return value // 2 if value % 2 == 0 else 1


def _free_changes(layout: Layout) -> Iterator[tuple[str, str, Layout, int, str]]:
    if layout.tp > 1 and not layout.sequence_parallel:
        changed = replace(layout, sequence_parallel=True)
        yield "sequence_parallel", "true", changed, 0, "splits norms and residuals over the tensor-parallel ranks"
    if layout.zero_stage < 1 and layout.dp * layout.cp > 1:
        changed = replace(layout, zero_stage=1)
        yield "zero_stage", "1", changed, 1, "splits the optimizer over the data-parallel ranks"
    if layout.recompute == "none":
        changed = replace(layout, recompute="selective")
        yield "recompute", "selective", changed, 2, "computes the attention core again in the backward pass"
    if layout.micro_batch > 1:
        size = _smaller(layout.micro_batch)
        changed = replace(layout, micro_batch=size)
        yield "micro_batch_sequences", str(size), changed, 3, "holds fewer tokens at a time; kernels get smaller"


def _paid_changes(*, layout: Layout, model: ModelSpec) -> Iterator[tuple[str, str, Layout, int, str]]:
    if layout.vpp > 1:
        changed = replace(layout, vpp=1, schedule="1f1b", cell_layers=())
        yield "vpp", "1", changed, 3, "holds fewer micro-batches; the bubble grows"
    if layout.recompute != "full":
        changed = replace(layout, recompute="full", recompute_modules=(), recompute_method="", recompute_layers=0)
        yield "recompute", "full", changed, 4, "keeps the input of a layer alone; a third more forward work"
    if layout.zero_stage < 3 and layout.pp == 1 and layout.dp * layout.cp > 1:
        changed = replace(layout, zero_stage=3)
        yield "zero_stage", "3", changed, 5, "splits weights and gradients too; gathers them for every pass"
    if layout.optimizer_offload_frac < 1:
        changed = replace(layout, optimizer_offload_frac=1.0)
        yield "optimizer_offload", "host", changed, 6, "keeps optimizer states in host memory"
    yield from _wider(layout=layout, model=model)


def _wider(*, layout: Layout, model: ModelSpec) -> Iterator[tuple[str, str, Layout, int, str]]:
    """Twice the split of the model over the same GPUs, where the data-parallel degree allows it."""
    if layout.dp % 2:
        return
    half = replace(layout, dp=layout.dp // 2, shard_ranks=0)
    if layout.tp < 8 and model.heads % (2 * layout.tp) == 0:
        yield "tp", str(2 * layout.tp), replace(half, tp=2 * layout.tp), 7, "splits every layer further"
    if layout.pp * 2 * layout.vpp <= model.layers:
        changed = replace(half, pp=2 * layout.pp, cell_layers=(), zero_stage=min(layout.zero_stage, 1))
        yield "pp", str(2 * layout.pp), changed, 7, "puts fewer layers on a GPU"
    if layout.sequence >= 8192:
        yield "cp", str(2 * layout.cp), replace(half, cp=2 * layout.cp), 7, "splits every sequence further"
    if model.moe_experts and model.moe_experts % (2 * layout.ep) == 0 and 2 * layout.ep <= layout.dp * layout.cp:
        yield "ep", str(2 * layout.ep), replace(layout, ep=2 * layout.ep), 7, "puts fewer experts on a GPU"


def _options(
    *, model: ModelSpec, layout: Layout, fusions: frozenset[str], capacity_bytes: float, stack: MemoryStack | None
) -> list[tuple[Relaxation, Layout]]:
    before = _need(worst_rank(model=model, layout=layout, fusions=fusions, stack=stack))
    out = []
    for setting, value, changed, cost, why in (*_free_changes(layout), *_paid_changes(layout=layout, model=model)):
        after = _need(worst_rank(model=model, layout=changed, fusions=fusions, stack=stack))
        if after < before:
            out.append((Relaxation(setting, value, before - after, after <= capacity_bytes, cost, why), changed))
    return sorted(out, key=lambda o: (not o[0].fits, o[0].cost_rank, -o[0].saves_bytes))


def relaxations(
    *,
    model: ModelSpec,
    layout: Layout,
    fusions: frozenset[str],
    capacity_bytes: float,
    stack: MemoryStack | None = None,
) -> tuple[Relaxation, ...]:
    """Single changes that save memory on the fullest rank: those that make it fit first, cheapest first.

    Among changes of the same cost the one that saves more comes first. GPUs and global batch stay as they are.
    """
    options = _options(model=model, layout=layout, fusions=fusions, capacity_bytes=capacity_bytes, stack=stack)
    return tuple(change for change, _ in options)


def chain(
    *,
    model: ModelSpec,
    layout: Layout,
    fusions: frozenset[str],
    capacity_bytes: float,
    stack: MemoryStack | None = None,
) -> tuple[Relaxation, ...]:
    """Changes taken one after the other, the cheapest at each step, until the plan fits; empty when it never does."""
    taken: list[Relaxation] = []
    for _ in range(MAX_STEPS):
        options = _options(model=model, layout=layout, fusions=fusions, capacity_bytes=capacity_bytes, stack=stack)
        if not options:
            return ()
        change, layout = options[0]
        taken.append(change)
        if change.fits:
            return tuple(taken)
    return ()


def _need(rank: RankMemory) -> float:
    return rank.peak_bytes + rank.reserved_bytes


def shortage(
    *,
    model: ModelSpec,
    layout: Layout,
    fusions: frozenset[str],
    capacity_bytes: float,
    stack: MemoryStack | None = None,
) -> Shortage | None:
    """What is over, by how much, and what to relax; None for a plan that fits."""
    rank = worst_rank(model=model, layout=layout, fusions=fusions, stack=stack)
    over = _need(rank) - capacity_bytes
    if over <= 0:
        return None
    parts = sorted(((p, float(getattr(rank, f"{p}_bytes"))) for p in PARTS), key=lambda kv: -kv[1])
    single = relaxations(model=model, layout=layout, fusions=fusions, capacity_bytes=capacity_bytes, stack=stack)
    together = chain(model=model, layout=layout, fusions=fusions, capacity_bytes=capacity_bytes, stack=stack)
    return Shortage(rank.stage, over, tuple(parts), single, together)
