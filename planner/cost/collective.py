"""placeholder"""

from planner.cost.types import Estimate, Group, Network


def collective_s(*, op: str, payload_bytes: float, group: Group, network: Network) -> Estimate:
    n = group.size
    if n <= 1 or payload_bytes <= 0:
        return Estimate(0.0, "datasheet", 0.0, "")
    f = {
        "all_reduce": 2.0,
        "all_gather": 1.0,
        "reduce_scatter": 1.0,
        "all_to_all": 1.0,
        "broadcast": 1.0,
        "send_recv": 1.0,
    }[op]
    d = group.per_domain
    frac = (lambda k: (k - 1) / k) if op != "send_recv" else (lambda k: 1.0 if k > 1 else 0.0)
    t = 0.0
    if d > 1:
        t += f * frac(d) * payload_bytes / (0.78 * network.scaleup_bytes_per_s) + 20e-6
    nodes = n // d
    if nodes > 1:
        bw = network.node_bytes_per_s * 0.82 / group.nic_sharers
        t += f * frac(nodes) * payload_bytes / (bw if op != "all_gather" else bw) + 20e-6 + 5e-6 * nodes**0.5
    return Estimate(t, "datasheet", 0.2, "")
