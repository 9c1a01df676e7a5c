"""What the roadmap reads off a simulated stack: spread of a gain, ceilings, what is avoidable."""

from planner.cost.kernels import memory_bound_s
from planner.cost.rates import hot_rate
from planner.simulate.stack_step import StackStep
from planner.workload.operators import layer_operators
from planner.workload.torch_rank import POINTWISE
from planner.workload.transforms import Stack

# Spread of a forecast gain: half of it, at least 3 % of the step; a test counts measured gains inside P10-P90.
SIGMA_FLOOR, SIGMA_OF_GAIN = 0.03, 0.5


def gain_sigma(log_gain: float) -> float:
    """One standard deviation of the logarithm of a speed-up."""
    return max(SIGMA_FLOOR, SIGMA_OF_GAIN * abs(log_gain))


def avoidable_frac(*, stack: Stack, step: StackStep) -> dict[str, float]:
    """Shares of the step between achieved and attainable: `compute` and `memory`.

    Products and attention against the sustained rate of a large product, memory-bound work against the traffic of a
    fused list.
    """
    flops = step.answer.hardware_flops_per_s_per_gpu * step.answer.step_s
    attainable = flops / hot_rate(gpu=stack.gpu, dtype=stack.layout.precision).plateau_flops
    matmul = step.part("compute_matmul", "compute_attention")
    fused = stack.with_software(fusions=stack.software.fusions | POINTWISE | {"cross_entropy"})
    memory = step.part("compute_memory_bound")
    return {
        "compute": max(0.0, matmul - attainable) / step.step_s,
        "memory": max(0.0, memory - _fused_memory_s(stack=fused, like=step)) / step.step_s,
    }


def ceilings(*, stack: Stack, step: StackStep) -> dict[str, float]:
    """Shares of the step that each kind of work could win at most.

    glue: the GPU idles for its host. operator: achieved against attainable rate. parallel: exposed communication and
    bubble. What algorithms could win no trace tells; only a pilot run does.
    """
    exposed = sum(v for k, v in step.parts_s if k.startswith("exposed_"))
    idle = step.part("launch_gap", "straggler") + max(0.0, step.part("other"))
    return {
        "glue": idle / step.step_s,
        "operator": sum(avoidable_frac(stack=stack, step=step).values()),
        "parallel": (exposed + step.part("bubble")) / step.step_s,
    }


def _fused_memory_s(*, stack: Stack, like: StackStep) -> float:
    """Memory-bound seconds of a fused stack, estimated by traffic from those of the unfused one."""
    ops = layer_operators(
        model=stack.model, layout=stack.layout, moe=bool(stack.model.moe_experts), fusions=stack.software.fusions
    )
    nbytes = sum(op.nbytes for op in ops if op.kind == "memory")
    per_step = stack.model.layers * stack.layout.micro_batches / stack.layout.pp
    seconds = memory_bound_s(gpu=stack.gpu, nbytes=nbytes * per_step).seconds
    return min(like.part("compute_memory_bound"), seconds)
