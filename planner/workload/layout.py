"""A resolved parallel layout: every degree is a number, nothing is left open."""

from dataclasses import dataclass

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
    if layers % cells and embedding_slots and (layers + 2) % cells == 0:
        even = [(layers + 2) // cells] * cells
        even[0] -= 1
        even[-1] -= 1
    else:
        even = [layers // cells + (1 if i < layers % cells else 0) for i in range(cells)]
    # Virtual cell i lives on stage i mod pp: chunk-major order, as Megatron interleaves.
    return tuple(tuple(even[chunk * layout.pp + stage] for chunk in range(layout.vpp)) for stage in range(layout.pp))
