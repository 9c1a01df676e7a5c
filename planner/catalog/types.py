"""Shapes of catalogue facts. Every figure is SI: bytes, bytes per second, FLOP per second, watts, seconds."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MlaSpec:
    """Multi-head latent attention widths (DeepSeek-V2, arXiv 2405.04434)."""

    q_rank: int
    kv_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder or encoder transformer. `ffn` is the width of a dense MLP; MoE widths stand apart.

    Attributes:
        moe_ffn: width of one routed expert (0 = dense model).
        moe_shared_ffn: total width of the shared experts in a MoE layer.
        moe_dense_layers: layers that keep a dense MLP (of width `ffn`) at the start of a MoE model.
        moe_every: a MoE layer stands in every n-th layer (Llama 4 Maverick: 2).
        sliding_window: attention window in tokens for layers that have one, 0 = full.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_sequence: int = 2048
    activation: str = "gelu"  # gelu | swiglu | squared_relu
    norm: str = "layernorm"  # layernorm | rmsnorm
    position: str = "learned"  # learned | rotary | alibi | none
    tied_embeddings: bool = True
    bias: bool = True
    qkv_bias: bool | None = None
    qk_norm: bool = False
    causal: bool = True
    moe_experts: int = 0
    moe_topk: int = 0
    moe_ffn: int = 0
    moe_shared_ffn: int = 0
    moe_dense_layers: int = 0
    moe_every: int = 1
    mla: MlaSpec | None = None
    sliding_window: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One accelerator part, dense peaks only. `peak_flops` by dtype: fp32 tf32 fp16 bf16 fp8 fp4."""

    name: str
    vendor: str
    arch: str
    year: int
    peak_flops: dict[str, float]
    mem_bytes: float  # usable, as the framework reports it
    mem_bytes_per_s: float
    l2_bytes: float
    scaleup_link: str  # nvlink1..nvlink5 | xgmi | pcie
    scaleup_bytes_per_s: float  # per direction per GPU; PCIe rate where there is no link
    pcie_bytes_per_s: float  # per direction
    tdp_w: float
    sm_count: int
    boost_clock_hz: float
    sustained_bf16_flops: float | None
    source: str
    provenance: str
    aliases: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One server type. `scaleout_bytes_per_s` is the whole node's network rate per direction."""

    name: str
    gpu: str
    gpus_per_node: int
    scaleup_domain_gpus: int
    nic_count: int
    scaleout_bytes_per_s: float
    fabric: str  # ib | roce | efa | opa | ethernet | tcpx | none
    max_power_w: float
    host_mem_bytes: float
    source: str
    notes: str = ""
    aliases: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Price:
    """A dated price of one GPU-hour."""

    provider: str
    instance: str
    gpu: str
    region: str
    tenure: str  # on_demand | reserved_1y | reserved_3y | spot
    usd_per_gpu_hour: float
    date: str | None  # ISO day, None = undated
    source: str
