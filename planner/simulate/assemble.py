"""One step, whole: durations, order of work and memory joined into time, breakdown and utilization."""

from dataclasses import dataclass, replace
from statistics import NormalDist

from planner import catalog
from planner.catalog.types import ModelSpec
from planner.cost.operator import PhaseCost
from planner.simulate.durations import Durations, Machine, Piece, build
from planner.simulate.fast import step_fast
from planner.simulate.measured_pieces import measured_rank
from planner.simulate.plan import StepResult
from planner.simulate.step import step_events
from planner.workload.effects import Optimised
from planner.workload.layout import Layout
from planner.workload.memory import RankMemory
from planner.workload.params import model_flops_per_token
from planner.workload.torch_rank import fullest_rank

BREAKDOWN = (
    "compute_matmul",
    "compute_attention",
    "compute_memory_bound",
    "launch_gap",
    "exposed_tp",
    "exposed_pp",
    "exposed_dp",
    "exposed_cp",
    "exposed_ep",
    "bubble",
    "optimizer",
    "straggler",
    "other",
)
BUSY_PARTS = ("compute_matmul", "compute_attention", "compute_memory_bound", "optimizer")
# Shares of the step that the two streams hold a link, multiplied. On four pipelined layouts from 175B to 1T, over NICs
# at 5 to 100 % of their rate, events differ from the recurrence by at most 2 % below this and by up to 29 % above.
SHARING_FROM = 0.005
PEAK_DTYPE = {
    "amp": "bf16",
    "fp8_rowwise": "fp8",
    "fp8_block": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """One training step of one layout on one machine. Seconds are P50; breakdown parts add up to `step_s`.

    Attributes:
        optimised: the optimisations that it holds, None where the strategy names none.
        measured_sigma: one standard deviation of the logarithm of a rank's step whose kernels a profile measured; None
            where none did.
    """

    step_s: float
    breakdown_s: tuple[tuple[str, float], ...]
    link_busy_s: tuple[tuple[str, float], ...]
    compute_busy_frac: float
    hbm_busy_frac: float
    tokens_per_s: float
    model_flops_per_s_per_gpu: float
    full_attention_flops_per_s_per_gpu: float
    hardware_flops_per_s_per_gpu: float
    peak_flops: float
    memory: RankMemory
    capacity_bytes: float
    launch_frac: float
    label_share: tuple[tuple[str, float], ...]
    engine: str
    optimised: Optimised | None = None
    measured_sigma: float | None = None

    @property
    def effective_s(self) -> float:
        """Seconds for the work of one step of the strategy without optimisations that save tokens or steps."""
        return self.step_s * (self.optimised.work_factor if self.optimised is not None else 1.0)

    @property
    def applied(self) -> tuple[str, ...]:
        """Optimisations of the strategy that act."""
        return self.optimised.applied if self.optimised is not None else ()

    @property
    def memory_over_bytes(self) -> float:
        """Bytes that the fullest rank lacks, zero when it fits."""
        return max(0.0, self.memory.peak_bytes + self.memory.reserved_bytes - self.capacity_bytes)

    @property
    def fits(self) -> bool:
        """Whether the fullest rank fits its GPU."""
        return self.memory_over_bytes <= 0


def with_site(*, answer: StepAnswer, compute_factor: float, network_factor: float, host_factor: float) -> StepAnswer:
    """The same step where kernels, exposed communication and launch gaps take other times than forecast by default."""

    def factor(part: str) -> float:
        if part.startswith("exposed_"):
            return network_factor
        return host_factor if part == "launch_gap" else compute_factor

    parts = tuple((name, seconds * factor(name)) for name, seconds in answer.breakdown_s)
    links = tuple((k, v * network_factor) for k, v in answer.link_busy_s)
    return replace(_restated(answer=answer, parts=parts), link_busy_s=links)


def expected_maximum(*, ranks: int) -> float:
    """Mean of the largest of `ranks` standard normal values, 0 for one rank (Blom 1958, within 0.02)."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


def with_jitter(*, answer: StepAnswer, jitter_frac: float, ranks: int) -> StepAnswer:
    """The same step where ranks differ: it waits for the slowest of them.

    Args:
        answer: the step of equal ranks.
        jitter_frac: standard deviation of a rank's own work over its mean, independent and normal from rank to rank.
        ranks: how many work in step.
    """
    named = dict(answer.breakdown_s)
    work = sum(named[k] for k in BUSY_PARTS)
    wait = jitter_frac * expected_maximum(ranks=ranks) * work
    parts = tuple((k, v + wait if k == "straggler" else v) for k, v in answer.breakdown_s)
    return _restated(answer=answer, parts=parts)


def _restated(*, answer: StepAnswer, parts: tuple[tuple[str, float], ...]) -> StepAnswer:
    """The same work in another step time."""
    step = sum(seconds for _, seconds in parts)
    ratio = answer.step_s / step
    named = dict(parts)
    return replace(
        answer,
        step_s=step,
        breakdown_s=parts,
        compute_busy_frac=sum(named[k] for k in BUSY_PARTS) / step,
        hbm_busy_frac=(named["compute_memory_bound"] + named["optimizer"]) / step,
        tokens_per_s=answer.tokens_per_s * ratio,
        model_flops_per_s_per_gpu=answer.model_flops_per_s_per_gpu * ratio,
        full_attention_flops_per_s_per_gpu=answer.full_attention_flops_per_s_per_gpu * ratio,
        hardware_flops_per_s_per_gpu=answer.hardware_flops_per_s_per_gpu * ratio,
        launch_frac=named["launch_gap"] / step,
    )


def peak_flops(*, gpu: str, precision: str) -> float:
    """Dense peak of the matmul dtype, of the nearest one where the part lacks it (bf16 on V100: fp16)."""
    peaks = catalog.gpu(gpu).peak_flops
    dtype = PEAK_DTYPE.get(precision, precision)
    for choice in (dtype, "fp8" if dtype == "fp4" else dtype, "bf16", "fp16", "fp32"):
        if peaks.get(choice):
            return peaks[choice]
    raise ValueError(f"{gpu} has no peak rate for {precision}")


def _sums(*, durations: Durations, m: int, p: int) -> dict[str, float]:
    """Seconds per GPU (mean over stages) by cause over all micro-batches."""
    pieces: list[tuple[Piece, float]] = [*durations.layers, (durations.head, 1.0), (durations.embedding, 1.0)]
    out = dict.fromkeys(
        (
            "compute_matmul",
            "compute_attention",
            "compute_memory_bound",
            "launch_gap",
            "exposed_tp",
            "exposed_cp",
            "exposed_ep",
            "tp_link",
            "cp_link",
            "ep_link",
            "flops",
        ),
        0.0,
    )
    for piece, count in pieces:
        for cost in (piece.forward, piece.recompute, piece.backward):
            _add(out=out, cost=cost, factor=count * m / p)
    return out


def _add(*, out: dict[str, float], cost: PhaseCost, factor: float) -> None:
    out["compute_matmul"] += factor * cost.compute_matmul_s
    out["compute_attention"] += factor * cost.compute_attention_s
    out["compute_memory_bound"] += factor * cost.compute_memory_bound_s
    out["launch_gap"] += factor * (cost.wall_s - cost.gpu_s)
    out["exposed_tp"] += factor * cost.tp_s
    out["exposed_cp"] += factor * cost.cp_s
    out["exposed_ep"] += factor * cost.ep_s
    out["tp_link"] += factor * cost.tp_link_s
    out["cp_link"] += factor * cost.cp_link_s
    out["ep_link"] += factor * cost.ep_link_s
    out["flops"] += factor * cost.flops


def _labels(durations: Durations) -> tuple[tuple[str, float], ...]:
    shares: dict[str, float] = {}
    for piece, count in (*durations.layers, (durations.head, 1.0)):
        for cost in (piece.forward, piece.recompute, piece.backward):
            for label, seconds in cost.labels:
                shares[label] = shares.get(label, 0.0) + seconds * count
    total = sum(shares.values()) or 1.0
    return tuple(sorted(((k, v / total) for k, v in shares.items()), key=lambda kv: -kv[1]))


def _sharing_matters(result: StepResult) -> bool:
    """Whether two streams meet on a shared link often enough to move the step by more than about 3 %."""
    dp, pp = max(result.dp_link_busy_s), max(result.pp_link_busy_s)
    return dp * pp > SHARING_FROM * result.step_s**2


def forecast_step(
    *,
    model: ModelSpec,
    layout: Layout,
    machine: Machine,
    engine: str = "fast",
    capacity_bytes: float | None = None,
    memory_layout: Layout | None = None,
    memory_model: ModelSpec | None = None,
) -> StepAnswer:
    """Time, breakdown, utilization and memory of one step.

    `engine` is `fast` (recurrence) or `events` (SimPy); both evaluate the same plan. `capacity_bytes` is the board's
    memory where it differs from the catalogue part; `memory_layout` and `memory_model` are what memory is counted
    for where the recompute policy of a run is not known or products are padded on the way.
    """
    durations = build(model=model, layout=layout, machine=machine)
    result: StepResult = step_events(durations.plan) if engine == "events" else step_fast(durations.plan)
    if engine != "events" and durations.plan.shared_link and _sharing_matters(result):
        result, engine = step_events(durations.plan), "events, forced by link sharing"
    sums = _sums(durations=durations, m=layout.micro_batches, p=layout.pp)
    parts = {name: sums.get(name, 0.0) for name in BREAKDOWN}
    stages = len(result.bubble_s)
    parts["bubble"] = sum(result.bubble_s) / stages
    parts["exposed_pp"] = sum(result.exposed_pp_s) / stages
    parts["exposed_dp"] = sum(result.exposed_dp_s) / stages
    parts["optimizer"] = sum(result.optimizer_s) / stages
    parts["other"] = 0.0
    parts["other"] = result.step_s - sum(parts.values())
    tokens = layout.global_batch * layout.sequence
    per_gpu = tokens / result.step_s / layout.gpus
    causal = model_flops_per_token(model=model, sequence=layout.sequence)
    full = model_flops_per_token(model=model, sequence=layout.sequence, causal=False)
    found = measured_rank(model=model, layout=layout, rank=machine.rank) if machine.profile else None
    compute = parts["compute_matmul"] + parts["compute_attention"] + parts["compute_memory_bound"] + parts["optimizer"]
    links = {
        "tp": sums["tp_link"],
        "cp": sums["cp_link"],
        "ep": sums["ep_link"],
        "dp": max(result.dp_link_busy_s),
        "pp": max(result.pp_link_busy_s),
    }
    return StepAnswer(
        step_s=result.step_s,
        breakdown_s=tuple(parts.items()),
        link_busy_s=tuple(links.items()),
        compute_busy_frac=compute / result.step_s,
        hbm_busy_frac=(parts["compute_memory_bound"] + parts["optimizer"]) / result.step_s,
        tokens_per_s=tokens / result.step_s,
        model_flops_per_s_per_gpu=causal * per_gpu,
        full_attention_flops_per_s_per_gpu=full * per_gpu,
        # Each rank's operator list holds its own shard, so the mean over ranks is exact.
        hardware_flops_per_s_per_gpu=sums["flops"] / result.step_s,
        peak_flops=peak_flops(gpu=machine.gpu, precision=layout.precision),
        memory=fullest_rank(
            model=memory_model or model,
            layout=memory_layout or layout,
            software=machine.software,
            compiled=machine.compiled,
            cuda_graph=machine.cuda_graph,
        ),
        capacity_bytes=capacity_bytes or catalog.gpu(machine.gpu).mem_bytes,
        launch_frac=parts["launch_gap"] / result.step_s,
        label_share=_labels(durations),
        engine=engine,
        measured_sigma=found.sigma if found is not None else None,
    )
