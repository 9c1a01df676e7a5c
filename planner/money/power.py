"""Watts, kilowatt-hours, racks and tonnes of carbon of a cluster, modelled or by a stated reporting convention."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from planner.catalog.facility import fact
from planner.catalog.types import GpuSpec, NodeSpec

SWITCH_W = 750.0  # QM9700 64 x 400G with passive cables (low end of row F023); optics are counted apart
OPTIC_W = 9.0  # one end of a 400G link (row F022)
STORAGE_IT_FRAC = 0.05  # storage and management over server power: the rest of row F020's 0.1 beside the fabric
LIQUID_ABOVE_W = 50e3  # no air-cooled rack is designed beyond this (row F085, high end of F086)
AIR_RACK_W, LIQUID_RACK_W = 35e3, 140e3  # practical ceiling with air (F086), provisioned NVL72 rack (F006)
NODES_PER_RACK = 4  # DGX SuperPOD reference (F087)
# What a part of the step breakdown means for the GPU's draw; parts that are not here wait.
LOAD_STATE = {
    "compute_matmul": "F196",
    "compute_attention": "F197",
    "compute_memory_bound": "F198",
    "optimizer": "F199",
}


@dataclass(frozen=True, slots=True)
class Draw:
    """Mean IT watts per GPU of a node's size: GPU, the rest of the server, network and storage."""

    gpu_w: float
    host_w: float
    network_w: float
    storage_w: float

    @property
    def it_w(self) -> float:
        """All of it."""
        return self.gpu_w + self.host_w + self.network_w + self.storage_w


def node_max_w(*, node: NodeSpec, gpu: GpuSpec) -> float:
    """Rated maximum of a node; TDP x 1.8 where the catalogue has none (Epoch's factor of other GPUs, row F013)."""
    return node.max_power_w or gpu.tdp_w * fact("F013").known * node.gpus_per_node


def host_load_frac() -> float:
    """Share of its rated maximum that the server beside its GPUs draws in training.

    8.4 kW seen, less 8 x 0.7 kW of GPUs, over 10.2 - 5.6 kW (arXiv 2412.08602).
    """
    gpus_kw = 8 * 0.7
    return (fact("F200").known - gpus_kw) / (fact("F002").known - gpus_kw)


def step_load_frac(breakdown_s: Mapping[str, float]) -> float:
    """Mean draw of a GPU over its limit in a step: its parts weighted by measured draws, waiting for the rest."""
    total = sum(breakdown_s.values())
    if total <= 0:
        return fact("F195").known
    return sum(v * fact(LOAD_STATE.get(k, "F195")).known for k, v in breakdown_s.items()) / total


def run_load_frac(*, step_frac: float, working_frac: float) -> float:
    """Mean draw over a run that works (also on what is later lost) `working_frac` of the time and waits otherwise."""
    return step_frac * working_frac + fact("F195").known * (1 - working_frac)


def mean_draw(*, node: NodeSpec, gpu: GpuSpec, load_frac: float, switches_per_gpu: float, links_per_gpu: float) -> Draw:
    """Watts per GPU at a mean GPU load."""
    maximum = node_max_w(node=node, gpu=gpu) / node.gpus_per_node
    return Draw(
        gpu_w=gpu.tdp_w * load_frac,
        host_w=max(0.0, maximum - gpu.tdp_w) * host_load_frac(),
        network_w=switches_per_gpu * SWITCH_W + 2 * links_per_gpu * OPTIC_W,
        storage_w=maximum * STORAGE_IT_FRAC,
    )


def server_factor(gpu: str) -> float:
    """Server power over GPU TDP, Epoch's figures (rows F010-F013)."""
    for key, row in (("H100", "F010"), ("A100", "F011"), ("V100", "F012")):
        if gpu.startswith(key):
            return fact(row).known
    return fact("F013").known


def reported_kwh(*, convention: str, gpu_hours: float, gpu: str, tdp_w: float, pue: float) -> float:
    """Energy as a paper or a model card would print it.

    - `gpu_tdp`: TDP x GPU-hours (BLOOM arXiv 2211.02001; Meta's Llama cards).
    - `gpu_tdp_pue`: the same x PUE. With a metered mean draw in place of the TDP it is GPT-3's in arXiv 2104.10350; at
      PUE 1 it is Gopher's in arXiv 2112.11446.
    - `server_factor`: TDP x server factor x 0.75 x PUE (Epoch, rows F010-F015).

    Raises:
        ValueError: another convention.
    """
    base = gpu_hours * tdp_w / 1e3
    if convention == "gpu_tdp":
        return base
    if convention == "gpu_tdp_pue":
        return base * pue
    if convention == "server_factor":
        return base * server_factor(gpu) * fact("F015").known * pue
    raise ValueError(f"unknown convention {convention!r}")


def carbon_t(
    *, energy_kwh: float, grid_g_per_kwh: float, carbon_free_frac: float = 0.0, embodied_g: float = 0.0
) -> float:
    """Tonnes of CO2 equivalent: energy x grid x (1 - share bought carbon-free) + embodied."""
    return (energy_kwh * grid_g_per_kwh * (1 - carbon_free_frac) + embodied_g) / 1e6


@dataclass(frozen=True, slots=True)
class Hall:
    """Space and power that a cluster needs.

    Attributes:
        contracted_w: IT power to provision: rated maxima of servers, switches and storage.
        facility_w: the same x PUE.
    """

    racks: int
    nodes_per_rack: int
    contracted_w: float
    facility_w: float


def hall(*, nodes: int, node_w: float, other_w: float, rack_w: float, pue: float) -> Hall:
    """Racks and megawatts.

    At most four nodes a rack, fewer where the rack's power ends first; a node above the limit takes ceil(node / limit)
    places.
    """
    per_rack = min(NODES_PER_RACK, math.floor(rack_w / node_w))
    racks = math.ceil(nodes / per_rack) if per_rack else nodes * math.ceil(node_w / rack_w)
    contracted = nodes * node_w + other_w
    return Hall(racks, per_rack, contracted, contracted * pue)
