"""What is trained: tokens, sequence length, batch."""

from pydantic import Field

from planner.scenario.base import Block
from planner.scenario.units import Count


class Training(Block):
    """The workload beside the model."""

    tokens: Count = Field(gt=0)
    """Tokens to train on; `2T` is accepted."""
    sequence_length: int = Field(ge=1, le=16_777_216)
    """Tokens of one sequence."""
    global_batch_sequences: int = Field(ge=1)
    """Sequences of one optimizer step over all ranks."""
