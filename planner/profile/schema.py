"""The calibration profile on disk: samples, never fits (contract 6)."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class Part(BaseModel):
    """A frozen part of a profile."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Device(Part):
    """The measured part."""

    name: str
    gpu: str
    sm_count: int = Field(ge=0)
    mem_bytes: float = Field(gt=0)
    l2_bytes: float = Field(ge=0)
    power_limit_w: float | None
    max_clock_mhz: float | None
    ecc: bool | None


class Host(Part):
    """The machine that launches."""

    cpu: str
    cores: int | None


class Software(Part):
    """Versions; a resumed run must match them."""

    driver: str | None
    cuda: str | None
    torch: str
    triton: str | None
    nccl: str | None
    python: str


class Run(Part):
    """How the profile was taken."""

    started: str
    seconds: float = Field(ge=0)
    mode: Literal["quick", "full"]
    complete: bool
    warnings: tuple[str, ...]


class Sample(Part):
    """One measured shape: median and spread of `n` repeats, with clock, power and temperature beside it."""

    kind: Literal[
        "matmul", "grouped_matmul", "attention", "memory", "optimizer", "dispatch", "graph", "hostlink", "collective",
        "overlap", "block", "power", "allocator", "compile",
    ]  # fmt: skip
    op: str
    shape: dict[str, Any]
    dtype: str
    layout: str
    phase: Literal["fwd", "dgrad", "wgrad", "step"]
    state: Literal["hot", "cold"]
    method: Literal["graph", "queue", "event", "wall"]
    n: int = Field(ge=1)
    p10_s: float = Field(ge=0)
    p50_s: float = Field(ge=0)
    p90_s: float = Field(ge=0)
    clock_mhz: float | None = None
    power_w: float | None = None
    temp_c: float | None = None
    session: int = Field(ge=1)


class Profile(Part):
    """Everything measured on one machine."""

    schema_version: Literal[1]
    device: Device
    host: Host
    software: Software
    run: Run
    samples: tuple[Sample, ...]
