"""Decoder layers and a decoder, GPT (LayerNorm, biases, GELU) or Llama (RMSNorm, rotary, SwiGLU, grouped queries)."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    """One layer; (batch, seq, hidden) in and out."""

    def __init__(self, *, kind: str, hidden: int, heads: int, kv_heads: int, ffn: int, seq: int, device: str) -> None:
        super().__init__()
        self.gpt, self.heads, self.kv, self.dim = kind == "gpt", heads, kv_heads, hidden // heads
        norm = nn.LayerNorm if self.gpt else nn.RMSNorm
        with torch.device(device):
            self.first, self.second = norm(hidden), norm(hidden)
            self.qkv = nn.Linear(hidden, hidden + 2 * kv_heads * self.dim, bias=self.gpt)
            self.out = nn.Linear(hidden, hidden, bias=self.gpt)
            self.up = nn.Linear(hidden, ffn * (1 if self.gpt else 2), bias=self.gpt)
            self.down = nn.Linear(ffn, hidden, bias=self.gpt)
        angle = torch.outer(torch.arange(seq), 10000 ** -torch.linspace(0, 1, self.dim // 2)).to(device)
        self.cos, self.sin = angle.cos(), angle.sin()

    def turn(self, z: torch.Tensor) -> torch.Tensor:
        """Rotary positions."""
        half, seq = self.dim // 2, z.shape[2]
        a, b, cos, sin = z[..., :half], z[..., half:], self.cos[:seq, :half], self.sin[:seq, :half]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(z.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        b, s, h = x.shape
        width = self.kv * self.dim
        q, k, v = self.qkv(self.first(x)).split([h, width, width], -1)
        q = q.view(b, s, self.heads, self.dim).transpose(1, 2)
        k, v = k.view(b, s, self.kv, self.dim).transpose(1, 2), v.view(b, s, self.kv, self.dim).transpose(1, 2)
        if not self.gpt:
            q, k = self.turn(q), self.turn(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
        y = self.up(self.second(x))
        if self.gpt:
            return x + self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Stack(nn.Module):
    """Token ids to mean cross-entropy through `layers` layers."""

    def __init__(
        self,
        *,
        kind: str,
        layers: int,
        hidden: int,
        heads: int,
        kv_heads: int,
        ffn: int,
        vocab: int,
        seq: int,
        recompute: bool,
        device: str,
    ) -> None:
        super().__init__()
        self.gpt, self.recompute = kind == "gpt", recompute
        with torch.device(device):
            self.tokens = nn.Embedding(vocab, hidden)
            self.positions = nn.Embedding(seq, hidden) if self.gpt else None
            self.norm = nn.LayerNorm(hidden) if self.gpt else nn.RMSNorm(hidden)
            self.head = nn.Linear(hidden, vocab, bias=False)
        self.blocks = nn.ModuleList(
            Layer(kind=kind, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, seq=seq, device=device)
            for _ in range(layers)
        )
        if self.gpt:
            self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Loss of a batch."""
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
