"""Where the ranks of each parallel axis sit: rank order is tp, cp, dp, pp from the inside out (Megatron-LM's order)."""

from dataclasses import replace

from planner.catalog.types import GpuSpec, NodeSpec
from planner.cost.collective import with_measured
from planner.cost.network import fabric_of, shipped_fabrics
from planner.cost.types import Group, Network
from planner.scenario.cluster import Fabric as ScenarioFabric
from planner.workload.layout import Layout


def network_of(
    *,
    node: NodeSpec,
    gpu: GpuSpec,
    scaleout: str | None = None,
    node_bytes_per_s: float | None = None,
    oversubscription: float = 1.0,
    stated: ScenarioFabric | None = None,
) -> Network:
    """The network of a cluster of `node`, with a fabric override where the scenario names one.

    Raises:
        ProfileError, ValueError: the measured profile that `stated` names cannot be used.
    """
    network = Network(
        scaleup=gpu.scaleup_link,
        scaleup_bytes_per_s=gpu.scaleup_bytes_per_s,
        scaleup_domain_gpus=node.scaleup_domain_gpus,
        gpus_per_node=node.gpus_per_node,
        scaleout=scaleout or node.fabric,
        node_bytes_per_s=node.scaleout_bytes_per_s if node_bytes_per_s is None else node_bytes_per_s,
        nic_count=node.nic_count,
        oversubscription=oversubscription,
        gpu=gpu.name,
        library=stated.library if stated is not None else "nccl",
    )
    return network if stated is None else _as_stated(network=network, stated=stated)


def _as_stated(*, network: Network, stated: ScenarioFabric) -> Network:
    """Latency, efficiency and measured tables that the scenario gives in place of those of the kind."""
    if stated.latency_s is not None or stated.efficiency_frac is not None:
        usual = fabric_of(network=network, fabrics=shipped_fabrics())
        fabric = replace(
            usual,
            latency_s=usual.latency_s if stated.latency_s is None else stated.latency_s,
            efficiency=usual.efficiency if stated.efficiency_frac is None else stated.efficiency_frac,
            label="assumed",
            source="scenario",
        )
        network = replace(network, fabric=fabric)
    return network if stated.measured is None else with_measured(network=network, profile=stated.measured)


def group_at(*, size: int, stride: int, network: Network) -> Group:
    """The group of `size` ranks that are `stride` GPUs apart."""
    domain = max(1, network.scaleup_domain_gpus)
    per_domain = max(1, min(size, domain // stride if stride < domain else 1))
    across = size > per_domain
    # Every GPU of a domain belongs to one such group; groups in the same domain share its NICs.
    sharers = max(1, domain // per_domain) if across else 1
    return Group(size=size, per_domain=per_domain, nic_sharers=sharers)


def axis_group(*, axis: str, layout: Layout, network: Network) -> Group:
    """The group of a parallel axis: tp, cp, dp, ep, pp (a pair), etp or shard (the ranks ZeRO shards over).

    Raises:
        ValueError: an unknown axis.
    """
    if axis == "tp":
        return group_at(size=layout.tp, stride=1, network=network)
    if axis == "cp":
        return group_at(size=layout.cp, stride=layout.tp, network=network)
    if axis == "ep":
        # Expert ranks fold over tensor- and data-parallel ranks, the innermost first.
        return group_at(size=layout.ep, stride=layout.etp, network=network)
    if axis == "etp":
        return group_at(size=layout.etp, stride=1, network=network)
    if axis == "dp":
        return group_at(size=layout.dp * layout.cp, stride=layout.tp, network=network)
    if axis == "shard":
        return group_at(size=layout.sharded_over, stride=layout.tp, network=network)
    if axis == "expert_dp":
        size = max(1, layout.dp * layout.cp * layout.tp // (layout.ep * layout.etp))
        return group_at(size=size, stride=layout.ep * layout.etp, network=network)
    if axis == "pp":
        return group_at(size=min(2, layout.pp), stride=layout.tp * layout.cp * layout.dp, network=network)
    raise ValueError(f"unknown axis {axis!r}")


def crosses_domains(*, axis: str, layout: Layout, network: Network) -> bool:
    """Whether the ranks of an axis sit in more than one scale-up domain."""
    group = axis_group(axis=axis, layout=layout, network=network)
    return group.size > group.per_domain
