"""The base of every block: frozen, no unknown keys, documented fields."""

from pydantic import BaseModel, ConfigDict


class Block(BaseModel):
    """A frozen part of a scenario."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
