"""What the cost room answers: a duration with its label and spread."""

from dataclasses import dataclass

LABELS = ("measured", "interpolated", "published", "fitted", "transferred", "datasheet", "assumed")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A duration in seconds, where it comes from, and one standard deviation of its logarithm."""

    seconds: float
    label: str
    spread_frac: float
    source: str


@dataclass(frozen=True, slots=True)
class Fabric:
    """Constants of a kind of network: share of the line rate, seconds a hop, square-root term."""

    efficiency: float
    latency_s: float
    sqrt_s: float
    label: str
    spread_frac: float
    source: str


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """Seconds of one operation over one kind of group, by ascending payload bytes; times never fall."""

    op: str
    ranks: int
    nodes: int
    nbytes: tuple[float, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredWire:
    """Every table measured on one network. Compared by identity: a profile is read once.

    Attributes:
        beside_inside_frac: by how much products took longer beside a collective inside a node; None = not measured.
        beside_across_frac: the same beside one across nodes.
    """

    name: str
    tables: tuple[MeasuredTable, ...]
    beside_inside_frac: float | None = None
    beside_across_frac: float | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """The two-level network that a plan runs on. All rates per direction, bytes per second.

    Attributes:
        scaleup: nvlink1..nvlink5, xgmi or pcie.
        scaleup_bytes_per_s: per GPU.
        scaleup_domain_gpus: GPUs that share the fast links (8, 16, 72).
        scaleout: ib, roce, efa, opa, ethernet, tcpx or none.
        node_bytes_per_s: network rate of a whole node.
        oversubscription: leaf-to-spine ratio, 1 = non-blocking.
        library: nccl, or gloo (TCP, hosts without GPUs).
        fabric: constants of this very network where they are stated or measured; None = those of its kind.
        measured: tables of collectives measured on this very network.
    """

    scaleup: str
    scaleup_bytes_per_s: float
    scaleup_domain_gpus: int
    gpus_per_node: int
    scaleout: str
    node_bytes_per_s: float
    nic_count: int
    oversubscription: float = 1.0
    gpu: str = ""
    library: str = "nccl"
    fabric: Fabric | None = None
    measured: MeasuredWire | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks of one collective: `size` in all, `per_domain` of them inside one scale-up domain.

    `nic_sharers` groups of the same kind run at once in a node and share its network rate
    (a data-parallel group under tensor parallelism of 8 with one member a node has 8 sharers).
    """

    size: int
    per_domain: int
    nic_sharers: int = 1
