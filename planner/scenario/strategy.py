"""How the work is spread and run. An open field is closed by the preset, then by what memory allows."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from planner.catalog.errors import CatalogError
from planner.catalog.optimisations import optimisation
from planner.scenario.base import Block

Degree = int | None


def _known_optimisation(key: str) -> str:
    try:
        optimisation(key)
    except CatalogError as error:
        raise PydanticCustomError(
            "unknown_name", "{reason}", {"reason": error.reason, "nearest": error.nearest}
        ) from error
    return key


OptimisationKey = Annotated[str, AfterValidator(_known_optimisation)]


class Overlap(Block):
    """Whether communication runs beside compute; null = what the framework's release does."""

    dp: bool | None = None
    """Gradient exchange under the backward pass."""
    tp: bool | None = None
    """Tensor-parallel collectives under their own matmuls."""
    pp: bool | None = None
    """Pipeline transfers beside compute."""
    ep: bool | None = None
    """Expert all-to-all under the other micro-batch."""


class Framework(Block):
    """The software and its age: the one home of software progress."""

    name: str | None = None
    """megatron, nemo, fsdp, torchtitan, pytorch, jax, ...; null = megatron for hybrid layouts, pytorch otherwise."""
    release: int = Field(default=2024, ge=2017, le=2030)
    """Year of the software."""
    mode: Literal["eager", "compile", "regional", "graph"] = "eager"
    """eager, whole-model compile, per-block compile, or captured CUDA graph."""


class GradientCompression(Block):
    """How data-parallel ranks exchange gradients and weights. A word alone is its kind."""

    kind: Literal["none", "fp16", "int8", "int4", "onebit", "lowrank"] = "none"
    """Form of the gradients on the wire."""
    rank: int = Field(default=4, ge=1)
    """Columns of the factors of lowrank (PowerSGD)."""
    warmup_frac: float = Field(default=0.2, ge=0, le=1)
    """Share of the steps that onebit exchanges uncompressed (1-bit Adam: 15 to 20 %)."""
    weights: Literal["none", "int8"] = "none"
    """Form of the weights that ZeRO-3 gathers (quantised ZeRO)."""
    secondary: bool = False
    """A second copy of the weights in each node for the backward gathers (hierarchical ZeRO)."""
    every_steps: int = Field(default=1, ge=1)
    """Optimizer steps between exchanges (local SGD)."""
    staleness_steps: int = Field(default=0, ge=0, le=64)
    """Steps that an exchange may lag behind (bounded staleness)."""


RecomputeModule = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "moe", "shared_experts"]


class Strategy(Block):
    """One way to train the model on the cluster."""

    preset: Literal["stack"] | None = None
    """stack: what people do by default."""
    tp: Degree = Field(default=None, ge=1)
    """Tensor-parallel degree."""
    pp: Degree = Field(default=None, ge=1)
    """Pipeline stages."""
    vpp: Degree = Field(default=None, ge=1)
    """Model chunks on each stage."""
    dp: Degree = Field(default=None, ge=1)
    """Data-parallel degree; null = what is left."""
    cp: Degree = Field(default=None, ge=1)
    """Context-parallel degree."""
    ep: Degree = Field(default=None, ge=1)
    """Expert-parallel degree."""
    etp: Degree = Field(default=None, ge=1)
    """Tensor-parallel degree inside an expert."""
    sequence_parallel: bool | None = None
    """Split norms and residuals over tensor ranks."""
    zero_stage: Literal[0, 1, 2, 3] | None = None
    """0 none, 1 optimizer, 2 gradients, 3 parameters (FSDP)."""
    micro_batch_sequences: int | None = Field(default=None, ge=1)
    """Sequences of a micro-batch; null = the largest that fits (1 under a pipeline)."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zb1p", "zb2p", "dualpipev"] | None = None
    """Pipeline schedule; null = interleaved when vpp > 1, else 1f1b."""
    recompute: Literal["none", "selective", "full"] | None = None
    """Activation recompute; null = the least that fits."""
    recompute_modules: tuple[RecomputeModule, ...] = ()
    """Modules that selective recompute runs again; none = the attention core where it is not a flash kernel."""
    recompute_layers: int | None = Field(default=None, ge=1)
    """Layers of each model chunk that full recompute covers, from the first on; null = all."""
    precision: (
        Literal["fp32", "tf32", "fp16", "bf16", "amp", "fp8", "fp8_rowwise", "fp8_block", "mxfp8", "nvfp4"] | None
    ) = None
    """dtype of the matmuls; null = bf16."""
    optimizer: Literal["adamw", "adamw_fused", "adamw_foreach", "adamw_loop", "sgd"] | None = None
    """Optimizer; null = adamw with fp32 master weights."""
    gradient_compression: GradientCompression | None = None
    """Compressed, local or stale exchange between data-parallel ranks: fp16, int8, onebit, lowrank, ..."""
    overlap: Overlap | None = None
    """Overlap switches."""
    framework: Framework | None = None
    """Software and its age."""
    allocation: Literal["static", "elastic"] | None = None
    """static: the job waits for a missing node. elastic: it runs on with fewer data-parallel ranks meanwhile."""
    optimisations: tuple[OptimisationKey, ...] = ()
    """Keys of the optimisation catalogue; applied in this order, each where its conditions hold."""
    engineering_weeks: float | None = Field(default=None, ge=0)
    """Person-weeks that this strategy costs before it runs; null = what the catalogue says of its optimisations."""

    @field_validator("recompute_modules", mode="before")
    @classmethod
    def _module_alone(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("gradient_compression", mode="before")
    @classmethod
    def _kind_alone(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value
