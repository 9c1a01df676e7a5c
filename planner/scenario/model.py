"""A model given inline: the shape fields of a decoder, with documented defaults."""

from typing import Literal, Self

from pydantic import Field, model_validator

from planner.catalog.types import ModelSpec
from planner.scenario.base import Block


class InlineModel(Block):
    """Shape of a transformer that is not a preset."""

    layers: int = Field(ge=1, le=10_000)
    """Decoder layers."""
    hidden: int = Field(ge=1)
    """Width of the residual stream."""
    heads: int = Field(ge=1)
    """Query heads."""
    kv_heads: int | None = Field(default=None, ge=1)
    """Key and value heads; null = as many as heads."""
    head_dim: int | None = Field(default=None, ge=1)
    """Width of a head; null = hidden / heads."""
    ffn: int | None = Field(default=None, ge=1)
    """Width of the MLP; null = 4 x hidden."""
    vocab: int = Field(ge=1)
    """Vocabulary."""
    activation: Literal["gelu", "swiglu", "squared_relu"] = "swiglu"
    """MLP activation."""
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    """Norm."""
    position: Literal["learned", "rotary", "alibi", "none"] = "rotary"
    """Positions."""
    tied_embeddings: bool = False
    """Input and output embedding are one matrix."""
    bias: bool = False
    """Linear layers have biases."""
    max_sequence: int = Field(default=8192, ge=1)
    """Longest sequence."""
    moe_experts: int = Field(default=0, ge=0)
    """Routed experts of a layer, 0 = dense."""
    moe_topk: int = Field(default=0, ge=0)
    """Experts a token goes to."""
    moe_ffn: int = Field(default=0, ge=0)
    """Width of a routed expert."""
    moe_shared_ffn: int = Field(default=0, ge=0)
    """Total width of shared experts."""
    moe_dense_layers: int = Field(default=0, ge=0)
    """Leading layers with a dense MLP."""

    @model_validator(mode="after")
    def _placeable(self) -> Self:
        wrong = []
        if self.head_dim is None and self.hidden % self.heads:
            wrong.append(f"{self.heads} heads do not divide hidden {self.hidden}, and head_dim is not given")
        if self.kv_heads and self.heads % self.kv_heads:
            wrong.append(f"{self.kv_heads} key and value heads do not divide {self.heads} heads")
        if self.moe_experts and not 1 <= self.moe_topk <= self.moe_experts:
            wrong.append(f"moe_topk {self.moe_topk} of {self.moe_experts} experts")
        if self.moe_experts and not self.moe_ffn:
            wrong.append("moe_ffn, the width of an expert, is needed")
        if self.moe_dense_layers > self.layers:
            wrong.append(f"moe_dense_layers {self.moe_dense_layers} of {self.layers} layers")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def spec(self) -> ModelSpec:
        """The catalogue shape."""
        return ModelSpec(
            name="inline",
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            head_dim=self.head_dim or self.hidden // self.heads,
            ffn=self.ffn or 4 * self.hidden,
            vocab=self.vocab,
            max_sequence=self.max_sequence,
            activation=self.activation,
            norm=self.norm,
            position=self.position,
            tied_embeddings=self.tied_embeddings,
            bias=self.bias,
            moe_experts=self.moe_experts,
            moe_topk=self.moe_topk,
            moe_ffn=self.moe_ffn,
            moe_shared_ffn=self.moe_shared_ffn,
            moe_dense_layers=self.moe_dense_layers,
            source="scenario file",
        )
