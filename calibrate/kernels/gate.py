"""The numerical gate: largest absolute difference over largest absolute reference value, against a stated limit."""

from dataclasses import dataclass

import torch

FP32_LIMIT = 1e-5
ROW_SUM_LIMIT = 1e-4
BF16_LIMIT = 1e-2


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What one comparison found."""

    name: str
    error: float
    limit: float

    @property
    def passed(self) -> bool:
        """Within the limit; a NaN never passes."""
        return self.error <= self.limit


def relative_error(*, got: torch.Tensor, reference: torch.Tensor) -> float:
    """Max abs difference over max abs reference, in fp64; infinite where shapes differ or a value is not finite."""
    if got.shape != reference.shape:
        return float("inf")
    a, b = got.double(), reference.double()
    if not bool(torch.isfinite(a).all()):
        return float("inf")
    scale = float(b.abs().max())
    return float((a - b).abs().max()) / (scale if scale > 0 else 1.0)


def check(*, name: str, got: torch.Tensor, reference: torch.Tensor, rows_summed: bool = False) -> Gate:
    """Gate of one result; the limit follows from the type of `got` and whether rows are summed on the way."""
    limit = ROW_SUM_LIMIT if rows_summed else FP32_LIMIT
    if got.dtype in (torch.bfloat16, torch.float16):
        limit = BF16_LIMIT
    return Gate(name=name, error=relative_error(got=got, reference=reference), limit=limit)
