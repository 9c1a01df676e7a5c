"""What a software stack adds to the bytes of a layout: kernels, copies, masks, workspaces."""

from dataclasses import dataclass

CUBLAS_WORKSPACE_BYTES = 8_519_680.0  # one handle's default `:4096:2:16:8` (PyTorch, CUDA semantics: cuBLAS workspaces)
CUBLAS_LARGE_WORKSPACE_BYTES = 33_554_432.0  # default on Hopper, and `:4096:8` that deterministic runs set
TE_WORKSPACE_BYTES = {"ampere": 4_194_304.0, "hopper": 33_554_432.0}  # Transformer Engine, get_cublas_workspace_size

CONTEXT_BYTES = 1.0e9  # driver context, library workspaces and communicator buffers of one process
RESERVE_FRAC = 0.06  # allocator reserved over allocated (SimuMax mem_factor 0.94)
# Token of the software table, kind of loss; the first that matches holds.
LOSS_TOKENS = (
    ("loss_in_place", "in_place"),
    ("loss_16bit", "kernel"),
    ("loss_compiled", "fused"),
    ("cross_entropy", "fused"),
)


@dataclass(frozen=True, slots=True)
class MemoryStack:
    """Choices of a stack that decide which tensors live.

    Attributes:
        attention: fused (nothing but the log-sum-exp), copied (flash kernel in another layout: its output is kept
            twice), unfused (scores kept), buffered (scores kept and their work buffer never freed).
        dropout: masks of the attention and residual dropout are kept.
        norm_copies: tensors kept by a norm besides the input of the next product.
        loss: fused (16-bit logits and one fp32 copy), compiled (a second fp32 copy), in_place (16-bit only), kernel
            (16-bit logits and a 16-bit copy that becomes their gradient), eager.
        mask: a boolean attention mask [b, 1, s, s] stands in memory.
        workspace_bytes: library workspaces of one process inside the allocator.
        cached_wgrad: a 16-bit dummy gradient per distinct weight shape stays resident.
        dispatcher: how tokens reach experts: alltoall, allgather (every rank of the group sees all tokens).
        combine_saved: expert outputs are kept for the gradient of the router's weights.
        expert_load: routed tokens of the fullest rank over the mean.
        op_selective: operator-selective checkpointing keeps every second product (torchtitan).
        gather_by_parameter: ZeRO-3 gathers parameter by parameter up to a limit (DeepSpeed).
        fp8_copies_bytes: bytes of 8-bit copies kept for each weight beside its 16-bit master.
        deferred_wgrad: micro-batches whose head products wait for the end of the step.
        softmax_bytes: width of the kept softmax (0 = that of the activations; 4 where an unfused one runs in fp32).
        bucket_elements: elements of the communication buckets for gradients and for weights.
        outside_bytes: driver context and communicator buffers of one process, outside the allocator.
        reserve_frac: what the allocator reserves over what it hands out.
        states_fragment: the reserve counts states too, not only what comes and goes.
        step_copy_stays: the fp32 copy of 16-bit gradients stays after the optimizer's step.
        activation_kept: the output of the MLP's activation is kept, not computed again from its input.
        logits_held: the pipeline engine keeps the last stage's 16-bit logits until the next micro-batch.
    """

    attention: str = "fused"
    dropout: bool = False
    norm_copies: int = 1
    loss: str = "eager"
    mask: bool = False
    workspace_bytes: float = 64e6
    cached_wgrad: bool = False
    dispatcher: str = "alltoall"
    combine_saved: bool = True
    expert_load: float = 1.0
    op_selective: bool = False
    gather_by_parameter: bool = False
    fp8_copies_bytes: float = 0.0
    deferred_wgrad: int = 0
    softmax_bytes: float = 0.0
    bucket_elements: float = 0.0
    logits_held: bool = False
    activation_kept: bool = True
    outside_bytes: float = CONTEXT_BYTES
    reserve_frac: float = RESERVE_FRAC
    states_fragment: bool = False
    step_copy_stays: bool = False

    @property
    def scores_kept(self) -> bool:
        """Whether attention scores are written to memory."""
        return self.attention in {"unfused", "buffered"}


# nvidia-smi over our allocator peak on 57 BigScience runs of 2022: the context and a tenth of everything. Fitted on
# either half of the configurations (8 and 16 % of states, 8 and 9 % of the rest, 2.0 and 0.3 GB) the sum is within
# 6.2 and 4.0 % of the other half's readings.
DEEPSPEED_RESERVE_FRAC = 0.10
DEEPSPEED_BUCKET = 5e8  # reduce_bucket_size and allgather_bucket_size (DeepSpeed configuration reference)


def stack_of(fusions: frozenset[str]) -> MemoryStack:
    """Memory behaviour of a software release by its table of fused operators."""
    deepspeed = "gather_by_parameter" in fusions
    return MemoryStack(
        attention="fused" if "flash" in fusions else "unfused",
        dropout="dropout" in fusions,
        norm_copies=1 if fusions & {"norm", "norm_native"} else 2,
        loss=next((kind for token, kind in LOSS_TOKENS if token in fusions), "eager"),
        cached_wgrad="wgrad_cache" in fusions,
        combine_saved=False,
        op_selective="op_selective" in fusions,
        gather_by_parameter=deepspeed,
        bucket_elements=DEEPSPEED_BUCKET if deepspeed else 0.0,
        logits_held=deepspeed,
        reserve_frac=DEEPSPEED_RESERVE_FRAC if deepspeed else RESERVE_FRAC,
        states_fragment=deepspeed,
        step_copy_stays=deepspeed,
        activation_kept="activation_recomputed" not in fusions,
    )


UB_STREAMS = 3  # tensor-parallel overlap through user buffers multiplies the engine's workspace by its streams
GROUPED_STREAMS = 4  # Transformer Engine runs grouped products on four streams, each with its workspace


def workspace_bytes(
    *, arch: str, transformer_engine: bool, deterministic: bool, grouped: bool = False, overlap: bool = False
) -> float:
    """Workspaces of two threads (forward, backward) that call cuBLAS, and those of Transformer Engine.

    Each thread that multiplies owns a cuBLAS handle and its workspace; large on Hopper, and on any part where
    deterministic mode asks for `:4096:8`.
    """
    large = deterministic or arch == "hopper"
    handles = 2 * (CUBLAS_LARGE_WORKSPACE_BYTES if large else CUBLAS_WORKSPACE_BYTES)
    engine = TE_WORKSPACE_BYTES["ampere" if arch in {"ampere", "volta"} else "hopper"] if transformer_engine else 0.0
    return handles + engine * ((UB_STREAMS if overlap else 1) + (GROUPED_STREAMS if grouped else 0))
