"""Operators to seconds: picks the kernel or collective model and adds up a phase of a layer by cause."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from planner.cost.collective import collective_s
from planner.cost.kernels import attention_s, grouped_matmul_s, kernel_floor_s, matmul_s, memory_bound_s
from planner.cost.profiled_operator import host_call_s, profiled_operator
from planner.cost.topology import axis_group
from planner.cost.types import Estimate, Group, Network
from planner.workload.layout import Layout
from planner.workload.operators import Operator

# Host seconds per framework call in eager mode. Between two measurements: the H200 yardstick (1.9 ms a GPT layer of
# about 39 calls) and vTrain's A100 hosts (3.4 ms a Megatron layer of about 57 calls with full recompute).
HOST_CALL_S = 55e-6
# Extra host time of a collective call (stream events, work object), the same two sources' TP 1 to TP 2 step.
HOST_COLLECTIVE_S = 40e-6

PHASES = ("forward", "recompute", "backward")
CAUSES = ("compute_matmul", "compute_attention", "compute_memory_bound", "tp", "cp", "ep")
# How far each label may be off, one standard deviation of the logarithm, where a kernel states none.
LOW_PRECISION = {"fp8", "fp8_rowwise", "fp8_block", "mxfp8", "nvfp4"}


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """Seconds of one phase by cause; `host_s` runs beside the GPU, `links` is time on each link.

    `gap_factor` is set where the kernel clock ran a measured step: its launch gaps over those of phases one by one.
    """

    compute_matmul_s: float = 0.0
    compute_attention_s: float = 0.0
    compute_memory_bound_s: float = 0.0
    tp_s: float = 0.0
    cp_s: float = 0.0
    ep_s: float = 0.0
    tp_link_s: float = 0.0
    cp_link_s: float = 0.0
    ep_link_s: float = 0.0
    host_s: float = 0.0
    flops: float = 0.0
    labels: tuple[tuple[str, float], ...] = ()
    gap_factor: float | None = None

    @property
    def compute_s(self) -> float:
        """GPU seconds that are not communication."""
        return self.compute_matmul_s + self.compute_attention_s + self.compute_memory_bound_s

    @property
    def gpu_s(self) -> float:
        """Compute and exposed communication in order."""
        return self.compute_s + self.tp_s + self.cp_s + self.ep_s

    @property
    def wall_s(self) -> float:
        """GPU and host joined by a soft maximum (exponent 3): per-kernel gaps fluctuate within a layer.

        Source: form tried on public rows; a hard maximum fits a single GPU step, a soft one Megatron runs. Measured
        host times take the hard one, with the run-ahead of the host that the kernel clock found.
        """
        if self.gap_factor is not None:
            return self.gpu_s + self.gap_factor * max(0.0, self.host_s - self.gpu_s)
        if self.host_s <= 0:
            return self.gpu_s
        return float((self.gpu_s**3 + self.host_s**3) ** (1 / 3))


# Overlapped expert exchange holds 20 of 132 multiprocessors (DeepSeek-V3, arXiv 2412.19437 section 3.2.2).
EP_HELD = 20 / 132


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how operators run: GPU part, network, kernel families and overlap; `profile` names what is measured."""

    gpu: str
    network: Network
    attention: str = "flash2"
    tp_overlap_frac: float = 0.0
    cp_overlap: bool = True
    ep_overlap: bool = False
    host_scale: float = 1.0
    hot: bool = True
    profile: str = ""


def _matmul_dtype(*, op: Operator, precision: str) -> str:
    if precision in LOW_PRECISION and not op.low_precision:
        return "bf16"
    return precision


@lru_cache(maxsize=200_000)
def operator_s(*, op: Operator, layout: Layout, setting: Setting) -> Estimate:
    """Seconds of one operator on one rank.

    Raises:
        ValueError: an operator kind this room does not know.
    """
    state = "hot" if setting.hot else "burst"
    if setting.profile:
        dtype = _matmul_dtype(op=op, precision=layout.precision)
        found = profiled_operator(op=op, dtype=dtype, attention=setting.attention, profile=setting.profile)
        if found is not None:
            return found
    if op.kind == "matmul":
        dtype = _matmul_dtype(op=op, precision=layout.precision)
        return matmul_s(gpu=setting.gpu, dtype=dtype, m=op.m, n=op.n, k=op.k, batch=op.batch, state=state)
    if op.kind == "grouped_matmul":
        dtype = _matmul_dtype(op=op, precision=layout.precision)
        return grouped_matmul_s(
            gpu=setting.gpu,
            dtype=dtype,
            groups=op.groups,
            m_per_group=op.m,
            n=op.n,
            k=op.k,
            state=state,
            output_bytes=4.0 if op.name.endswith("_wgrad") else 2.0,
            in_kernel=op.in_kernel,
        )
    if op.kind == "attention":
        return attention_s(
            gpu=setting.gpu,
            dtype="bf16",
            batch=op.batch,
            heads=op.heads,
            kv_heads=op.kv_heads,
            seq_q=op.seq_q,
            seq_kv=op.seq_kv,
            head_dim=op.head_dim,
            causal=op.causal,
            direction="bwd" if op.backward_pass else "fwd",
            implementation=setting.attention,
        )
    if op.kind == "memory":
        base = memory_bound_s(gpu=setting.gpu, nbytes=op.nbytes)
        extra = max(0.0, op.launches - 1) * kernel_floor_s(gpu=setting.gpu).seconds
        return Estimate(base.seconds + extra, base.label, base.spread_frac, base.source)
    if op.kind == "collective":
        group = axis_group(axis=op.axis, layout=layout, network=setting.network)
        payload = op.nbytes * _copies_sent_frac(group=group, copies=op.copies)
        return collective_s(op=op.collective, payload_bytes=payload, group=group, network=setting.network)
    raise ValueError(f"unknown operator kind {op.kind!r}")


def _copies_sent_frac(*, group: Group, copies: int) -> float:
    """Share of a token's copies that travel when a node, or inside a domain a rank, gets one (arXiv 2412.19437).

    With `copies` experts drawn at random from N places, N (1 - (1 - 1/N)^copies) places are met.
    """
    nodes = group.size / group.per_domain
    places = nodes if nodes > 1 else float(group.size)
    if copies <= 1 or places <= 1:
        return 1.0
    return float(places * (1 - (1 - 1 / places) ** copies) / copies)


def phase_cost(*, operators: tuple[Operator, ...], phase: str, layout: Layout, setting: Setting) -> PhaseCost:
    """Seconds by cause of all operators of a phase.

    Tensor-parallel collectives are exposed except for the share the framework hides under its own matmuls;
    context-parallel exchange hides under attention (ring) up to the attention time; expert all-to-all is exposed
    unless two micro-batches are in flight: then it hides under the compute of the other one, which runs on what the
    exchange leaves of the multiprocessors.
    """
    sums = dict.fromkeys(CAUSES, 0.0)
    host = flops = 0.0
    call_s = (host_call_s(setting.profile) if setting.profile else None) or HOST_CALL_S
    labels: dict[str, float] = {}
    for op in operators:
        if op.phase != phase:
            continue
        estimate = operator_s(op=op, layout=layout, setting=setting)
        cause = {
            "matmul": "compute_matmul",
            "grouped_matmul": "compute_matmul",
            "attention": "compute_attention",
            "memory": "compute_memory_bound",
            "collective": "ep" if op.axis == "etp" else op.axis,
        }[op.kind]
        sums[cause] += estimate.seconds
        labels[estimate.label] = labels.get(estimate.label, 0.0) + estimate.seconds
        host += op.launches * call_s + (HOST_COLLECTIVE_S if op.kind == "collective" else 0.0)
        flops += op.flops
    return joined(sums=sums, setting=setting, host_s=host * setting.host_scale, flops=flops, labels=labels)


def joined(
    *,
    sums: Mapping[str, float],
    setting: Setting,
    host_s: float,
    flops: float,
    labels: Mapping[str, float],
    gap_factor: float | None = None,
) -> PhaseCost:
    """A phase from its seconds by cause, with what overlap hides taken off the exchanges."""
    cp_hidden = min(sums["cp"], sums["compute_attention"]) if setting.cp_overlap else 0.0
    compute = sums["compute_matmul"] + sums["compute_attention"] + sums["compute_memory_bound"]
    ep_hidden = min(sums["ep"], compute) if setting.ep_overlap else 0.0
    matmul = sums["compute_matmul"] + ep_hidden * EP_HELD / (1.0 - EP_HELD)
    return PhaseCost(
        compute_matmul_s=matmul,
        compute_attention_s=sums["compute_attention"],
        compute_memory_bound_s=sums["compute_memory_bound"],
        tp_s=sums["tp"] - min(setting.tp_overlap_frac * sums["tp"], matmul),
        cp_s=sums["cp"] - cp_hidden,
        ep_s=sums["ep"] - ep_hidden,
        tp_link_s=sums["tp"],
        cp_link_s=sums["cp"],
        ep_link_s=sums["ep"],
        host_s=host_s,
        flops=flops,
        labels=tuple(sorted(labels.items())),
        gap_factor=gap_factor,
    )
