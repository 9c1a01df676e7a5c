"""A resolved parallel layout: every degree is a number, nothing is left open."""

from dataclasses import dataclass
from functools import lru_cache

from planner.workload.exchange import PLAIN, Exchange


@dataclass(frozen=True, slots=True)
class Layout:
    """How one model is spread over GPUs and how one step is cut into micro-batches.

    Attributes:
        vpp: model chunks a pipeline stage holds (1 = not interleaved).
        etp: tensor-parallel degree inside an expert.
        micro_batch: sequences in a micro-batch on one data-parallel rank.
        global_batch: sequences in an optimizer step over all ranks.
        recompute: none, selective (attention core) or full (whole layer).
        precision: dtype of the matmuls: fp32, tf32, fp16, bf16, fp8, fp8_rowwise, fp8_block, mxfp8, nvfp4.
        gradient_bytes: bytes of one accumulated and exchanged gradient.
        shard_ranks: ranks over which ZeRO shards (0 = all of dp x cp).
        autocast: fp32 weights cast to the compute dtype at each use.
        recompute_method: with full recompute, uniform (every group of `recompute_layers`) or block (the first
            `recompute_layers` of a chunk); blank = every layer by itself.
        recompute_modules: with selective recompute, the modules that run again (`planner.workload.recompute`); blank =
            the attention core.
        offload_modules: activations kept in host memory between forward and backward pass.
        microbatch_group: micro-batches that pass a chunk before the next chunk starts (0 = pp).
        cell_layers: layers of each model chunk in the order data passes them; blank = even split.
        mtp_layers: multi-token-prediction layers behind the last stage, each with its own logits.
        weight_bytes: bytes of a weight where the precision does not say it (8-bit frozen weights), 0 = it does.
        optimizer_offload_frac: share of the optimizer states kept in host memory.
        exchange: how gradients and weights are exchanged where it is not the plain way.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = False
    zero_stage: int = 0
    micro_batch: int = 1
    global_batch: int = 1
    sequence: int = 2048
    schedule: str = "1f1b"
    recompute: str = "none"
    precision: str = "bf16"
    optimizer: str = "adamw"
    gradient_bytes: int = 4
    shard_ranks: int = 0
    autocast: bool = False
    lora_rank: int = 0
    recompute_method: str = ""
    recompute_layers: int = 0
    recompute_modules: tuple[str, ...] = ()
    offload_modules: tuple[str, ...] = ()
    microbatch_group: int = 0
    cell_layers: tuple[int, ...] = ()
    mtp_layers: int = 0
    weight_bytes: float = 0.0
    optimizer_offload_frac: float = 0.0
    exchange: Exchange = PLAIN

    @property
    def gpus(self) -> int:
        """GPUs used: tp x pp x cp x dp (expert parallelism lies inside them)."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def micro_batches(self) -> int:
        """Micro-batches each data-parallel rank runs in a step, at least one."""
        return max(1, round(self.global_batch / (self.dp * self.micro_batch)))

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank, after context parallelism."""
        return self.micro_batch * self.sequence / self.cp

    @property
    def sharded_over(self) -> int:
        """Ranks that share optimizer states (and more from ZeRO-2 on)."""
        return self.shard_ranks or self.dp * self.cp

    @property
    def trained_frac(self) -> float:
        """Share of the parameters that have gradients; adapters are about a hundredth of the model."""
        return 0.01 if self.lora_rank else 1.0

    @property
    def compute_bytes(self) -> int:
        """Bytes of an activation element."""
        return 4 if self.precision in {"fp32", "tf32"} else 2


def layers_per_chunk(*, layers: int, layout: Layout, embedding_slots: bool = True) -> tuple[tuple[int, ...], ...]:
    """Decoder layers of each [stage][chunk].

    Where the layer count does not divide by pp x vpp but count + 2 does, embedding and head each take a slot
    (Llama 3 405B and BLOOM do this); otherwise the first chunks get one layer more.
    """
    cells = layout.pp * layout.vpp
    if len(layout.cell_layers) == cells and sum(layout.cell_layers) == layers:
        return tuple(tuple(layout.cell_layers[c * layout.pp + s] for c in range(layout.vpp)) for s in range(layout.pp))
    return _layers_per_chunk(layers, layout.pp, layout.vpp, embedding_slots)


@lru_cache(maxsize=8192)
def _layers_per_chunk(layers: int, pp: int, vpp: int, embedding_slots: bool) -> tuple[tuple[int, ...], ...]:
    cells = pp * vpp
    if layers % cells and embedding_slots and (layers + 2) % cells == 0:
        even = [(layers + 2) // cells] * cells
        even[0] -= 1
        even[-1] -= 1
    else:
        even = [layers // cells + (1 if i < layers % cells else 0) for i in range(cells)]
    # Virtual cell i lives on stage i mod pp: chunk-major order, as Megatron interleaves.
    return tuple(tuple(even[chunk * pp + stage] for chunk in range(vpp)) for stage in range(pp))


LayerKind = tuple[bool, bool]  # holds experts, runs again before its backward pass


def recomputed_block(layout: Layout) -> int:
    """Layers of each chunk that block recompute covers; 0 where recompute is of another kind."""
    return layout.recompute_layers if layout.recompute == "full" and layout.recompute_method == "block" else 0


def layers_by_kind(*, layout: Layout, dense: int, moe: int) -> tuple[tuple[LayerKind, int], ...]:
    """Layers of one chunk by kind, those there are: dense ones come first, and block recompute takes the first ones."""
    again = recomputed_block(layout) or dense + moe
    dense_again = min(dense, again)
    moe_again = min(moe, again - dense_again)
    counts = (
        ((False, True), dense_again),
        ((False, False), dense - dense_again),
        ((True, True), moe_again),
        ((True, False), moe - moe_again),
    )
    return tuple((kind, n) for kind, n in counts if n)
