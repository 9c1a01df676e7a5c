"""Which machines, how many, and the fabric between them."""

from typing import Literal

from pydantic import Field

from planner.scenario.base import Block
from planner.scenario.units import BytesPerSecond

FabricKind = Literal["ib", "roce", "efa", "opa", "ethernet", "tcpx", "none"]


class Fabric(Block):
    """The network between nodes, where it differs from what the node type ships with."""

    kind: FabricKind | None = None
    """ib, roce, efa, opa, ethernet, tcpx or none."""
    node_bytes_per_s: BytesPerSecond | None = Field(default=None, gt=0)
    """Rate of a whole node per direction; `400 Gb/s` is accepted."""
    oversubscription: float = Field(default=1.0, ge=1.0)
    """Leaf-to-spine ratio, 1 = non-blocking."""


class Cluster(Block):
    """A number of equal nodes."""

    node: str
    """Node type of the catalogue, e.g. hgx-h100."""
    nodes: int = Field(default=1, ge=1, le=200_000)
    """How many nodes."""
    gpus_per_node_used: int | None = Field(default=None, ge=1)
    """GPUs used of each node; all by default."""
    fabric: Fabric | None = None
    """Fabric override; null = what the node ships with."""
    profile: str | None = None
    """Calibration profile by name or path; null = best known."""
    site: str | None = None
    """Fitted site constants by name or path; null = none."""
