"""Which machines, how many, and the fabric between them."""

from typing import Any, Literal

from pydantic import Field, field_validator

from planner.catalog.types import NodeSpec
from planner.scenario.base import Block
from planner.scenario.units import BytesPerSecond, Seconds

FabricKind = Literal["ib", "roce", "efa", "opa", "ethernet", "tcpx", "none"]


class Fabric(Block):
    """The network between nodes, where it differs from what the node type ships with."""

    kind: FabricKind | None = None
    """ib, roce, efa, opa, ethernet, tcpx or none."""
    node_bytes_per_s: BytesPerSecond | None = Field(default=None, gt=0)
    """Rate of a whole node per direction; `400 Gb/s` is accepted."""
    oversubscription: float = Field(default=1.0, ge=1.0)
    """Leaf-to-spine ratio, 1 = non-blocking."""
    latency_s: Seconds | None = Field(default=None, ge=0)
    """Seconds a hop between nodes; null = that of the kind."""
    efficiency_frac: float | None = Field(default=None, gt=0, le=1)
    """Share of the line rate that collectives reach; null = that of the kind."""
    library: Literal["nccl", "gloo"] = "nccl"
    """nccl (and its kin), or gloo: TCP between hosts, as PyTorch uses without GPUs."""
    measured: str | None = None
    """Profile with measured collectives: shipped name or path. A word alone that ends in .json means this key."""


class Part(Block):
    """More nodes of another type in the same job."""

    node: str
    """Node type of the catalogue."""
    nodes: int = Field(default=1, ge=1, le=200_000)
    """How many of them."""


class Cluster(Block):
    """A number of equal nodes, or a fleet of several types."""

    node: str
    """Node type of the catalogue, e.g. hgx-h100."""
    nodes: int = Field(default=1, ge=1, le=200_000)
    """How many nodes."""
    gpus_per_node_used: int | None = Field(default=None, ge=1)
    """GPUs used of each node; all by default."""
    also: tuple[Part, ...] = ()
    """Nodes of other types that train along (a name alone is one node); the fleet runs at its slowest rank."""
    stands_for: tuple[Part, ...] = ()
    """The mixed fleet that these equal nodes stand for, for its mean price. Written by the planner."""
    fabric: Fabric | None = None
    """Fabric override; null = what the node ships with. A word alone is its kind, or a measured profile's path."""
    profile: str | None = None
    """Calibration profile by name or path; null = best known."""
    site: str | None = None
    """Fitted site constants by name or path; null = none."""

    @field_validator("also", mode="before")
    @classmethod
    def _part_alone(cls, value: Any) -> Any:
        parts = [value] if isinstance(value, str | dict) else value
        return [{"node": p} if isinstance(p, str) else p for p in parts] if isinstance(parts, list | tuple) else parts

    @field_validator("fabric", mode="before")
    @classmethod
    def _kind_alone(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return {"measured" if value.endswith(".json") else "kind": value}

    def node_shares(self) -> tuple[tuple[str, float], ...]:
        """Node types and their shares of all nodes, as they are bought or rented."""
        parts = self.stands_for or (Part(node=self.node, nodes=self.nodes),)
        total = sum(part.nodes for part in parts)
        return tuple((part.node, part.nodes / total) for part in parts)

    def stands_for_text(self) -> str:
        """What these nodes stand for, in a sentence; empty for a fleet of one type."""
        if not self.stands_for:
            return ""
        fleet = " + ".join(f"{part.nodes:,} {part.node}" for part in self.stands_for)
        return (
            f"mixed fleet of {fleet} runs as {self.nodes:,} {self.node}, its slowest type, at the mean price; "
            f"power, racks and failures are those of {self.node}"
        )

    def problems(self, node: NodeSpec) -> list[tuple[str, str]]:
        """(key, reason) of every way in which this cluster cannot be built from `node`."""
        out = []
        used = self.gpus_per_node_used
        if used is not None and used > node.gpus_per_node:
            out.append(("gpus_per_node_used", f"{used} GPUs of a node that has {node.gpus_per_node}"))
        kind = self.fabric.kind if self.fabric is not None and self.fabric.kind else node.fabric
        rate = (self.fabric.node_bytes_per_s if self.fabric else None) or node.scaleout_bytes_per_s
        if self.nodes > 1 and (kind == "none" or rate <= 0):
            out.append(("nodes", f"{self.nodes} nodes, but {node.name} has no network; give fabric kind and rate"))
        if self.also and self.profile:
            out.append(("profile", "a mixed fleet has no single profile: name none"))
        return out

    def part_problem(self, *, own: NodeSpec, other: NodeSpec) -> str | None:
        """Why nodes of another type cannot train along; None where they can."""
        used = self.gpus_per_node_used
        if used is None and own.gpus_per_node != other.gpus_per_node:
            return (
                f"{other.name} has {other.gpus_per_node} GPUs and {own.name} has {own.gpus_per_node}: say how many of "
                "each are used (gpus_per_node_used)"
            )
        if used is not None and used > other.gpus_per_node:
            return f"{used} GPUs of a node that has {other.gpus_per_node}"
        if other.scaleout_bytes_per_s <= 0 and self.fabric is None:
            return f"{other.name} has no network; give fabric kind and rate"
        return None
