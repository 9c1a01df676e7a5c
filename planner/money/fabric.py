"""Switches and links of a folded Clos (fat tree), counted from endpoints and switch radix."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FabricBill:
    """Parts of a network.

    Attributes:
        tiers: levels of switches; 0 = no network.
        switches: over all planes.
        links: over all planes, endpoint links included.
    """

    tiers: int
    switches: int
    links: int


def fat_tree(*, endpoints: int, radix: int, planes: int = 1, oversubscription: float = 1.0) -> FabricBill:
    """Parts for `endpoints` ports in `planes` separate networks of `radix`-port switches.

    Non-blocking, t tiers reach 2 (k/2)^t endpoints with (2t - 1) h/k switches and t h links (Leiserson 1985; Al-Fares
    et al. 2008): one tier to k, two to k^2/2 with 3h/k, three to k^3/4 with 5h/k. Oversubscription s:1 at the leaf
    gives it k s/(1+s) ports down and divides what stands above the leaf by s.

    Raises:
        ValueError: fewer than one plane or a switch that has no port for a peer.
    """
    if planes < 1 or radix < 4 or oversubscription < 1:
        raise ValueError(f"planes {planes}, radix {radix} and oversubscription {oversubscription} make no network")
    if endpoints <= 0:
        return FabricBill(0, 0, 0)
    each = math.ceil(endpoints / planes)
    if each <= radix:
        return FabricBill(1, planes, each * planes)
    down = min(radix - 1, max(1, math.floor(radix * oversubscription / (1 + oversubscription))))
    tiers = 2
    while each > down * 2 * (radix / 2) ** (tiers - 1):
        tiers += 1
    leaves = math.ceil(each / down)
    up = each / oversubscription
    above = math.ceil((2 * tiers - 3) * up / radix)
    links = each + math.ceil((tiers - 1) * up)
    return FabricBill(tiers, planes * (leaves + above), planes * links)
