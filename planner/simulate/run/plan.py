"""What a run is made of between its first and last token: the one input of both evaluators of the run clock."""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from planner.catalog.reliability import FAILURE_CAUSES, cause_shares

# Where elapsed time goes besides productive work; with goodput these add up to one.
LOSSES = (
    *("queue", "startup", "checkpoint", "lost_work", "detection", "replacement", "restart"),
    *("evaluation", "data", "fail_slow", "shrunk", "planned", "preempted", "rollback"),
)
COUNTED = (*FAILURE_CAUSES, "planned", "preemption")
HARDWARE = ("gpu", "memory", "network", "host")


@lru_cache(maxsize=4096)
def _median_of_sum(share: float, first_sigma: float, second_sigma: float) -> float:
    """Median of (1 - share) X + share Y for log-normal X and Y of median 1, on a grid of their quantiles."""
    if not 0 < share < 1 or (first_sigma == 0 and second_sigma == 0):
        return 1.0
    points = NormalDist()
    grid = np.array([points.inv_cdf((i + 0.5) / 101) for i in range(101)])
    total = (1 - share) * np.exp(first_sigma * grid)[:, None] + share * np.exp(second_sigma * grid)[None, :]
    return float(np.median(total))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run on a gang of nodes; every rate is per second, every duration in seconds.

    Attributes:
        work_s: productive time at full size that the stated tokens need.
        node_failures_per_s: failures of one node, median; `node_sigma` its log-normal spread between clusters.
        job_failures_per_s: failures of the job that do not grow with size, with `job_sigma`.
        shares: share of node failures by cause, in the order of FAILURE_CAUSES.
        infant_factor: k of r(t) = r_inf (1 + k exp(-t/T)) for node failures; `infant_s` is T.
        rack_frac: share of network and host failures that take `rack_nodes` nodes at once.
        slow_per_node_s: onsets of a slow node; the job runs `slow_frac` slower until `slow_detection_s` later.
        silent_frac: share of failures that corrupted the state `silent_s` of work earlier.
        spares: nodes held in reserve and repaired log-normally; None = a provider's pool that never runs dry.
        replacement_s: mean time until that pool delivers; beside spares, until a node comes from elsewhere where
            they have run dry (0 = only a repair helps).
        restart_s: launch; with communicator_s, load_s and compile_s the way from nodes to the next productive step.
        automatic_frac: share of failures that need nobody; the others wait log-normally, on average `manual_s`.
        interval_s: productive time between checkpoints; `stall_s` work stops; `durable_s` until one can be used.
        peer_interval_s: time between copies in a peer's memory, None = none; `peer_frac` of failures recover from one.
        recall, precision: of predictions with enough lead time for a checkpoint.
        elastic: run on with whole units of `unit_nodes` nodes fewer instead of waiting for a replacement.
        warmup_work_frac: first share of the work, done on `warmup_nodes_frac` of the nodes.
        preemptions_per_s: losses of the whole gang, which comes back after `preemption_wait_s` on average.
        deadline_s: leave spot for on-demand when the slack is used up; None = never.
    """

    work_s: float
    nodes: int
    gpus_per_node: int = 8
    node_failures_per_s: float = 0.0
    node_sigma: float = 0.0
    job_failures_per_s: float = 0.0
    job_sigma: float = 0.0
    shares: tuple[float, ...] = tuple(cause_shares()[c] for c in FAILURE_CAUSES)
    infant_factor: float = 0.0
    infant_s: float = 30 * 86_400.0
    rack_frac: float = 0.0
    rack_nodes: int = 1
    slow_per_node_s: float = 0.0
    slow_frac: float = 0.0
    slow_detection_s: float = 0.0
    silent_frac: float = 0.0
    silent_s: float = 0.0
    detection_s: float = 0.0
    spares: int | None = None
    replacement_s: float = 0.0
    replacement_sigma: float = 1.0
    repair_median_s: float = 20.4 * 3600
    repair_mean_s: float = 132.8 * 3600
    restart_s: float = 0.0
    communicator_s: float = 0.0
    load_s: float = 0.0
    compile_s: float = 0.0
    automatic_frac: float = 1.0
    manual_s: float = 0.0
    manual_sigma: float = 1.0
    interval_s: float = math.inf
    stall_s: float = 0.0
    durable_s: float = 0.0
    peer_interval_s: float | None = None
    peer_stall_s: float = 0.0
    peer_frac: float = 0.0
    recall: float = 0.0
    precision: float = 1.0
    elastic: bool = False
    unit_nodes: int = 1
    resize_s: float = 0.0
    warmup_work_frac: float = 0.0
    warmup_nodes_frac: float = 1.0
    preemptions_per_s: float = 0.0
    preemption_wait_s: float = 0.0
    notice_s: float = 0.0
    deadline_s: float | None = None
    maintenance_interval_s: float = math.inf
    maintenance_s: float = 0.0
    data_frac: float = 0.0
    evaluation_frac: float = 0.0
    startup_s: float = 0.0
    queue_s: float = 0.0
    spikes_per_s: float = 0.0
    spike_rollback_s: float = 0.0

    @property
    def cycle_s(self) -> float:
        """One checkpoint interval with its stall."""
        return self.interval_s + self.stall_s

    @property
    def late_s(self) -> float:
        """From the end of the stall until the checkpoint can be used."""
        return max(0.0, self.durable_s - self.stall_s)

    @property
    def ready_s(self) -> float:
        """From nodes in place to the next productive step, when the state comes from storage."""
        return self.restart_s + self.communicator_s + self.load_s + self.compile_s

    @property
    def recovery_s(self) -> float:
        """Mean time from a failure to the next productive step where a replacement is at hand."""
        return self.detection_s + self.replacement_wait_s + self.ready_s + (1 - self.automatic_frac) * self.manual_s

    @property
    def replacement_wait_s(self) -> float:
        """Mean wait for a node after a failure; only hardware failures need one, and a spare is there at once."""
        if self.spares is not None or self.elastic or self.failures_per_s <= 0:
            return 0.0
        hardware = sum(s for c, s in zip(FAILURE_CAUSES, self.shares, strict=True) if c in HARDWARE)
        return self.replacement_s * hardware * self.nodes * self.node_failures_per_s / self.failures_per_s

    @property
    def failures_per_s(self) -> float:
        """Median rate of unexpected failures of the whole job, without infant mortality."""
        return self.nodes * self.node_failures_per_s + self.job_failures_per_s

    @property
    def median_rate_factor(self) -> float:
        """Median of the job's rate over the sum of both parts' medians (a sum of log-normals is above it)."""
        total = self.failures_per_s
        share = self.job_failures_per_s / total if total > 0 else 0.0
        return _median_of_sum(round(share, 3), round(self.node_sigma, 3), round(self.job_sigma, 3))

    @property
    def rate_sigma(self) -> float:
        """Spread of the logarithm of the job's rate of failures, both parts independent."""
        total = self.failures_per_s
        if total <= 0:
            return 0.0
        node = self.nodes * self.node_failures_per_s / total * self.node_sigma
        return math.hypot(node, self.job_failures_per_s / total * self.job_sigma)

    @property
    def false_alarms_per_s(self) -> float:
        """Migrations that no failure would have followed: (1 - precision) / precision per predicted failure."""
        hardware = sum(s for c, s in zip(FAILURE_CAUSES, self.shares, strict=True) if c in HARDWARE)
        found = self.recall * hardware * self.nodes * self.node_failures_per_s
        return found * (1 - self.precision) / self.precision

    @property
    def repair_sigma(self) -> float:
        """Of a log-normal whose mean over median is the published one (heavy tail)."""
        return math.sqrt(max(0.0, 2 * math.log(max(1.0, self.repair_mean_s / self.repair_median_s))))

    @property
    def overhead_parts(self) -> tuple[float, float, float]:
        """Shares of running time that go to peer copies, evaluation and waiting for data."""
        peer = 0.0
        if self.peer_interval_s:
            peer = self.peer_stall_s / (self.peer_interval_s + self.peer_stall_s)
        evaluation = (1 - peer) * self.evaluation_frac
        return peer, evaluation, (1 - peer - evaluation) * self.data_frac
