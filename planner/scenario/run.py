"""What interrupts a run and what it costs to recover. Defaults and sources: reference notes in docs/run.md."""

from pydantic import Field

from planner.scenario.base import Block
from planner.scenario.units import BytesPerSecond, Seconds


class Run(Block):
    """Reliability and checkpoints."""

    failures_per_1000_node_days: float = Field(default=6.5, ge=0)
    """Failures that interrupt the job, per 1000 node-days (Meta RSC-1, arXiv 2410.21680: 6.5 for 8 x A100 nodes)."""
    job_failures_per_day: float = Field(default=0.1, ge=0)
    """Failures that do not grow with size: user, storage, scheduler. Assumed."""
    checkpoint_interval_s: Seconds | None = Field(default=None, gt=0)
    """Seconds between checkpoints; null = Daly's optimum for an engineered strategy, 3 h for preset stack."""
    storage_bytes_per_s: BytesPerSecond = Field(default=50e9, gt=0)
    """Checkpoint write bandwidth (BLOOM: 57.5 GB/s over 384 writers)."""
    checkpoint_asynchronous: bool | None = None
    """Training goes on while a checkpoint is written; null = no for preset stack, yes otherwise."""
    detection_s: Seconds = Field(default=600.0, ge=0)
    """Until a failure is noticed (NCCL time-out 600-1800 s without health signals)."""
    restart_s: Seconds = Field(default=600.0, ge=0)
    """Launch, communicator set-up, load and first step."""
    manual_restart_s: Seconds = Field(default=7200.0, ge=0)
    """A person replaces the node and restarts. Assumed 2 h."""
    automatic_restart_frac: float | None = Field(default=None, ge=0, le=1)
    """Share of failures that recover by themselves; null = 0 for preset stack, 0.9 otherwise (Llama 3: 0.99)."""
