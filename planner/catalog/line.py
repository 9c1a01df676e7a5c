"""One figure of a forecast, with everything needed to explain it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A frozen line of the result tree.

    Attributes:
        id: dotted path, e.g. `step.compute_matmul`.
        formula: how the value follows from `inputs`, in words or symbols.
        inputs: ids of other lines or named inputs with their values.
        label: measured, interpolated, published, fitted, transferred, datasheet or assumed.
    """

    id: str
    value: float
    unit: str
    formula: str
    inputs: tuple[str, ...]
    label: str
    source: str
