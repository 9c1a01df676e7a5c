"""The base of every block: frozen, no unknown keys, documented fields."""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


def _takes_bool(annotation: Any) -> bool:
    return annotation is bool or annotation is Any or any(_takes_bool(a) for a in get_args(annotation))


class Block(BaseModel):
    """A frozen part of a scenario."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        # Python counts true as 1: `nodes: yes` would otherwise be one node.
        if (
            isinstance(value, bool)
            and info.field_name
            and not _takes_bool(cls.model_fields[info.field_name].annotation)
        ):
            raise ValueError("true or false is not a value of this key")
        return value
