"""What interrupts a run and what it costs to recover. Sources of the defaults: docs/run.md."""

from typing import Literal

from pydantic import Field

from planner.scenario.base import Block
from planner.scenario.units import BytesPerSecond, Seconds

DAY_S = 86_400.0


class Run(Block):
    """Failures, recovery, checkpoints, allocation, and the pauses of a healthy run."""

    failures_per_1000_node_days: float | None = Field(default=None, ge=0)
    """Failures that interrupt the job, per 1000 node-days; null = median of published clusters (5.8; RSC-1 6.5)."""
    job_failures_per_day: float | None = Field(default=None, ge=0)
    """Failures that do not grow with size: user, storage, scheduler; null = median of published runs (0.25)."""
    rate_sigma: float | None = Field(default=None, ge=0)
    """Spread of the logarithm of these rates; null = between published clusters for a rate not given, 0 for yours."""
    infant_factor: float = Field(default=0.0, ge=0)
    """k of r(t) = r (1 + k exp(-t/T)) for a new cluster; no public fit exists, 0 = settled hardware."""
    infant_decay_s: Seconds = Field(default=30 * DAY_S, gt=0)
    """T of the same formula."""
    rack_failure_frac: float = Field(default=0.0, ge=0, le=1)
    """Share of network and host failures that take a whole rack; matters with spares and elastic allocation."""
    rack_nodes: int = Field(default=4, ge=1)
    """Nodes that share a rack's switch and power."""
    slow_onsets_per_1000_node_days: float = Field(default=0.0, ge=0)
    """Nodes that turn slow without failing; the synchronous job runs at their speed until they are found."""
    slow_frac: float = Field(default=0.1, ge=0, lt=1)
    """How much slower (MegaScale: about 10 % for 0.5 % of machines)."""
    slow_detection_s: Seconds = Field(default=DAY_S, ge=0)
    """Until a slow node is found and left out. Assumed."""
    jitter_frac: float = Field(default=0.0, ge=0, le=1)
    """Standard deviation of a rank's work over its mean, step by step; every step waits for the slowest rank. 0, as
    no default held: 0.5-1 % a doubling of nodes brings MegaScale and SC21 rows nearer, Megatron README and NeMo not."""
    silent_corruption_frac: float = Field(default=0.0, ge=0, le=1)
    """Share of failures that had corrupted the state before they were seen (Llama 3: 6 of 419)."""
    silent_rollback_s: Seconds = Field(default=DAY_S, ge=0)
    """Work redone after such a corruption. Assumed."""
    detection_s: Seconds = Field(default=600.0, ge=0)
    """Until a failure is noticed (NCCL time-out 600-1800 s without health signals)."""
    replacement_s: Seconds = Field(default=0.0, ge=0)
    """Until the provider's pool delivers a node; 0 = inside restart_s. Beside spares: where they run dry; 0 = never."""
    spares: int | None = Field(default=None, ge=0)
    """Nodes held in reserve, used at once, repaired with a heavy tail; null = the provider's pool never runs dry."""
    repair_median_s: Seconds = Field(default=20.4 * 3600, gt=0)
    """Repair of a node, median of a public trace; acts with spares."""
    repair_mean_s: Seconds = Field(default=132.8 * 3600, gt=0)
    """Repair of a node, mean of the same trace: the tail is heavy."""
    restart_s: Seconds = Field(default=600.0, ge=0)
    """Launch, communicator set-up, load and first step, as far as not given in the next three."""
    communicator_s: Seconds = Field(default=0.0, ge=0)
    """Communicator set-up beyond restart_s (MegaScale at 2048 GPUs: 1047 s, later under 5 s)."""
    load_s: Seconds = Field(default=0.0, ge=0)
    """Checkpoint load beyond restart_s (405B on 8,960 GPUs: 129 s); a peer's copy avoids it."""
    compile_s: Seconds = Field(default=0.0, ge=0)
    """Compilation and first step beyond restart_s."""
    manual_restart_s: Seconds = Field(default=7200.0, ge=0)
    """A person replaces the node and restarts. Assumed 2 h."""
    automatic_restart_frac: float | None = Field(default=None, ge=0, le=1)
    """Share of failures that recover by themselves; null = 0 for preset stack, 0.9 otherwise (Llama 3: 0.99)."""
    checkpoint_interval_s: Seconds | None = Field(default=None, gt=0)
    """Seconds between checkpoints; null = checkpoint_rule for an engineered strategy, 3 h for preset stack."""
    checkpoint_rule: Literal["young", "daly", "exact"] = "daly"
    """Rule of the interval: Young 1974, Daly 2006 (higher order), or the exact optimum for exponential failures."""
    checkpoint_bytes_per_param: float = Field(default=14.0, gt=0)
    """bf16 weights, fp32 master and two Adam moments (BLOOM 13.1, OPT 9.1 measured)."""
    storage_bytes_per_s: BytesPerSecond = Field(default=50e9, gt=0)
    """Checkpoint write bandwidth (BLOOM: 57.5 GB/s over 384 writers)."""
    writer_bytes_per_s: BytesPerSecond | None = Field(default=None, gt=0)
    """Limit of one writing GPU; writers are all GPUs under a ZeRO stage, else one data-parallel copy. Null = none."""
    checkpoint_asynchronous: bool | None = None
    """Training goes on while a checkpoint is written; null = no for preset stack, yes otherwise."""
    snapshot_s: Seconds = Field(default=5.0, ge=0)
    """Stall of an asynchronous checkpoint at most (0.01-0.6 s reported by the best). Assumed."""
    peer_interval_s: Seconds | None = Field(default=None, gt=0)
    """Copies in a peer's memory this often (second level of checkpoints); null = none."""
    peer_stall_s: Seconds = Field(default=1.0, ge=0)
    """Stall of such a copy. Assumed."""
    peer_recovery_frac: float = Field(default=0.9, ge=0, le=1)
    """Share of failures that a peer's copy survives. Assumed."""
    prediction_recall: float = Field(default=0.0, ge=0, le=1)
    """Share of hardware failures predicted early enough for a checkpoint and a migration; 0 unless you have data."""
    prediction_precision: float = Field(default=0.84, gt=0, le=1)
    """Share of such predictions that are right (84 %, production fleet); false alarms cost a migration."""
    elastic: bool | None = None
    """Run on with fewer data-parallel ranks while a node is missing; null = strategy.allocation is elastic."""
    resize_s: Seconds = Field(default=120.0, ge=0)
    """To shrink or grow. Assumed."""
    warmup_work_frac: float = Field(default=0.0, ge=0, lt=1)
    """First share of the tokens trained on part of the nodes."""
    warmup_nodes_frac: float = Field(default=0.25, gt=0, le=1)
    """That part."""
    preemptions_per_day: float | None = Field(default=None, ge=0)
    """Losses of the whole gang on spot; null = 0, or with pricing.tenure spot what public spot traces show."""
    preemption_wait_s: Seconds | None = Field(default=None, ge=0)
    """Until the gang is back; null = from the same traces (available 49 % of the time)."""
    preemption_notice_s: Seconds = Field(default=120.0, ge=0)
    """Notice (AWS 120 s, GCP and Azure 30 s); saves the work where a checkpoint is durable within it."""
    on_demand_by_deadline: bool = False
    """Leave spot for on-demand when the slack to goals.deadline_days is used up."""
    maintenance_interval_s: Seconds | None = Field(default=None, gt=0)
    """Time between planned windows; null = none."""
    maintenance_s: Seconds = Field(default=4 * 3600.0, ge=0)
    """Length of a window. Assumed."""
    data_wait_frac: float = Field(default=0.0, ge=0, lt=1)
    """Share of running time spent waiting for data."""
    evaluation_frac: float = Field(default=0.0, ge=0, lt=1)
    """Share of running time spent on evaluation."""
    loss_spikes_per_day: float = Field(default=0.0, ge=0)
    """Divergences that need a rollback."""
    spike_rollback_s: Seconds = Field(default=3600.0, ge=0)
    """Work redone after one. Assumed."""
    startup_s: Seconds = Field(default=0.0, ge=0)
    """From nodes to the first step, once."""
    queue_s: Seconds = Field(default=0.0, ge=0)
    """Mean wait for the nodes before the start."""
