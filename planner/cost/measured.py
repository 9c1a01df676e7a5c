"""Collectives measured on the very network of a scenario: tables of a profile on top of the packaged constants.

What was measured is interpolated. What was not follows the model: inside a domain by the ratio of measured to model of
the nearest table, across domains with the fabric constants that fit the measured tables best.
"""

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from planner.cost.types import Estimate, Fabric, Group, MeasuredTable, MeasuredWire, Network
from planner.profile.load import load_profile
from planner.profile.schema import Profile

MODELLED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
INTERPOLATED_SPREAD, FOLLOWED_SPREAD, LEAST_FIT_SPREAD = 0.05, 0.12, 0.08
# One standard deviation of the logarithms of efficiency, latency and square-root term around those of the kind: loose,
# so that a few rows decide, and a log of large messages alone leaves the latency where it was.
PRIOR_SIGMA = (0.4, 0.8, 0.8)
STARTS = (-3.0, -1.5, 0.0)
ROW_SIGMA = 0.1
FIT_FROM_BYTES = 4096  # below, the time is that of launches rather than of the wire


@lru_cache(maxsize=64)
def wire_of_profile(name_or_path: str) -> MeasuredWire:
    """The collective samples of a profile as tables.

    Raises:
        ProfileError: the profile cannot be read.
        ValueError: it holds no collective over two ranks or more.
    """
    profile = load_profile(name_or_path)
    found: dict[tuple[str, int, int], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in profile.samples:
        ranks, nodes = int(sample.shape.get("ranks", 0)), int(sample.shape.get("nodes", 1))
        nbytes = float(sample.shape.get("bytes", 0))
        usable = sample.kind == "collective" and sample.op in MODELLED and ranks > 1 and nbytes > 0
        if usable and sample.p50_s > 0:
            found[sample.op, ranks, nodes][nbytes].append(sample.p50_s)
    if not found:
        raise ValueError(f"{name_or_path} holds no measured collective over two ranks or more")
    tables = []
    for (op, ranks, nodes), times in sorted(found.items()):
        sizes, longest, seconds = sorted(times), 0.0, []
        for nbytes in sizes:
            longest = max(longest, statistics.median(times[nbytes]))
            seconds.append(longest)
        tables.append(MeasuredTable(op, ranks, nodes, tuple(sizes), tuple(seconds)))
    inside, across = (_beside(profile=profile, across=a) for a in (False, True))
    return MeasuredWire(name_or_path, tuple(tables), inside, across)


def _beside(*, profile: Profile, across: bool) -> float | None:
    """Median share by which a product took longer beside a collective; None where that was not measured."""
    found = [
        sample.p50_s / float(sample.shape["alone_s"]) - 1
        for sample in profile.samples
        if sample.kind == "overlap"
        and sample.op.startswith("matmul_beside_")
        and float(sample.shape.get("alone_s", 0)) > 0
        and (int(sample.shape.get("nodes", 1)) > 1) == across
    ]
    return max(0.0, statistics.median(found)) if found else None


def group_of(*, table: MeasuredTable, network: Network) -> Group:
    """The ranks of a table on a network; ranks of several nodes may still share a scale-up domain."""
    per_node = max(1, table.ranks // max(1, table.nodes))
    nodes_in_domain = max(1, network.scaleup_domain_gpus // max(1, network.gpus_per_node))
    return Group(size=table.ranks, per_domain=min(table.ranks, per_node * nodes_in_domain))


def interpolated(*, table: MeasuredTable, nbytes: float) -> float | None:
    """Seconds between measured sizes, linear in logarithms; None outside them."""
    if not table.nbytes[0] <= nbytes <= table.nbytes[-1]:
        return None
    i = bisect.bisect_left(table.nbytes, nbytes)
    if table.nbytes[i] == nbytes:
        return table.seconds[i]
    low, high = table.nbytes[i - 1], table.nbytes[i]
    share = math.log(nbytes / low) / math.log(high / low)
    return math.exp((1 - share) * math.log(table.seconds[i - 1]) + share * math.log(table.seconds[i]))


Model = Callable[..., Estimate]  # predict with op, payload_bytes, group and network filled in


def measured_s(*, op: str, payload_bytes: float, group: Group, network: Network, model: Model) -> Estimate:
    """Seconds of a collective on a network with measured tables.

    Args:
        op: the operation.
        payload_bytes: as nccl-tests count.
        group: the ranks.
        network: with `measured` set.
        model: the packaged model, called with op, payload_bytes, group and network.
    """
    wire = network.measured
    assert wire is not None
    plain = replace(network, measured=None)
    base = model(op=op, payload_bytes=payload_bytes, group=group, network=plain)
    inside = group.size <= max(1, group.per_domain)
    near = []
    for table in wire.tables:
        at = group_of(table=table, network=network)
        if (at.size <= at.per_domain) != inside:
            continue
        alike = table.op == op and at.size == group.size and (inside or at.per_domain == group.per_domain)
        if alike and group.nic_sharers == 1:
            return _on_table(table=table, payload_bytes=payload_bytes, at=at, plain=plain, model=model, base=base)
        near.append((table.op != op, abs(math.log(at.size / group.size)), table.op, table.ranks, table, at))
    if not inside or not near:
        return base  # across domains the fitted constants already say what was measured
    *_, table, at = min(near, key=lambda n: n[:4])
    # Compared where a rank sends as many bytes.
    seen = payload_bytes * at.size / group.size
    found = _on_table(table=table, payload_bytes=seen, at=at, plain=plain, model=model, base=base)
    same = model(op=table.op, payload_bytes=seen, group=at, network=plain).seconds
    source = f"ratio of {wire.name} to the packaged curves"
    return Estimate(base.seconds * found.seconds / same, "fitted", max(FOLLOWED_SPREAD, base.spread_frac / 2), source)


def _on_table(
    *, table: MeasuredTable, payload_bytes: float, at: Group, plain: Network, model: Model, base: Estimate
) -> Estimate:
    """Interpolated inside a table; beyond its ends the model, scaled to meet the end."""
    seconds = interpolated(table=table, nbytes=payload_bytes)
    if seconds is not None:
        label = "measured" if payload_bytes in table.nbytes else "interpolated"
        return Estimate(seconds, label, INTERPOLATED_SPREAD, f"{table.op} over {table.ranks} ranks, profile")
    end = 0 if payload_bytes < table.nbytes[0] else -1
    there = model(op=table.op, payload_bytes=table.nbytes[end], group=at, network=plain).seconds
    here = model(op=table.op, payload_bytes=payload_bytes, group=at, network=plain).seconds
    return Estimate(
        here * table.seconds[end] / there, "fitted", max(FOLLOWED_SPREAD, base.spread_frac / 2), base.source
    )


def fit_fabric(*, wire: MeasuredWire, network: Network, prior: Fabric, model: Model) -> Fabric | None:
    """The constants that fit the tables across domains best, or None without such tables.

    A robust least-squares fit on logarithms under a loose prior at the constants of the network's kind.
    """
    import numpy as np
    from scipy.optimize import least_squares

    rows = []
    for table in wire.tables:
        group = group_of(table=table, network=network)
        if group.size > group.per_domain:
            rows += [(table.op, b, group, s) for b, s in zip(table.nbytes, table.seconds, strict=True)]
    rows = [r for r in rows if r[1] >= FIT_FROM_BYTES] or rows
    if not rows or network.node_bytes_per_s <= 0:
        return None

    def fabric(x: Any) -> Fabric:
        steps = [math.exp(s * float(v)) for s, v in zip(PRIOR_SIGMA, x, strict=True)]
        return replace(
            prior,
            efficiency=min(1.0, prior.efficiency * steps[0]),
            latency_s=prior.latency_s * steps[1],
            sqrt_s=prior.sqrt_s * steps[2],
        )

    def logs(x: Any) -> list[float]:
        own = replace(network, fabric=fabric(x), measured=None)
        return [math.log(model(op=o, payload_bytes=b, group=g, network=own).seconds / s) for o, b, g, s in rows]

    def residuals(x: Any) -> Any:
        scaled = [v / ROW_SIGMA for v in logs(x)]
        soft = [math.copysign(math.sqrt(2 * (math.sqrt(1 + v * v) - 1)), v) for v in scaled]
        return np.array([*soft, *x])

    # Where something else than the network limits, the fit is flat in the efficiency: start from slow ones as well.
    fits = [least_squares(residuals, np.array([e, 0.0, 0.0]), diff_step=1e-4, max_nfev=80) for e in STARTS]
    found = min(fits, key=lambda fit: fit.cost)
    spread = max(LEAST_FIT_SPREAD, 1.5 * statistics.median(abs(v) for v in logs(found.x)))
    return replace(fabric(found.x), label="fitted", spread_frac=spread, source=wire.name)
