"""What the host pays for a step: seconds to issue a layer, the rest of a step and the update, read off a profile.

Two kinds of samples: whole steps too small for the device to matter, at two depths (the difference is a layer, the
remainder everything else), and single layers issued on their own. A session is one machine at one time; hosts of the
same kind differ by tens of percent, so a session counts once and the median of sessions answers.
"""

import statistics
from dataclasses import dataclass

from planner.profile.schema import Profile, Sample
from planner.profile.surfaces import SurfaceError

FORWARD_SHARE = 0.4  # of a layer's host time, where the profile does not tell
# Host time of a layer against its neighbour: recomputed against not, whole model compiled against each block; medians
# of two sessions in the shipped H200 profile.
RECOMPUTE_RATIO = 2.1
COMPILE_RATIO = 0.6


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Host seconds of a step.

    Attributes:
        forward_s: one layer forward.
        backward_s: one layer backward, recomputation included.
        rest_s: embedding, head, loss and what happens once a step, without the update.
        spread_frac: relative range of the layer time between sessions.
    """

    forward_s: float
    backward_s: float
    rest_s: float
    spread_frac: float


def update_s(profile: Profile, *, variant: str, precision: str, tensors: int) -> float:
    """Host seconds of one AdamW update: a line through the sizes measured, in parameter tensors."""
    op = f"adamw_{variant}"
    rows = [s for s in profile.samples if s.kind == "dispatch" and s.op == op]
    same = [s for s in rows if s.dtype == precision] or rows
    if not same:
        raise SurfaceError(f"the profile has no host time of {op}")
    return float(statistics.median(s.p50_s / s.shape["tensors"] for s in same) * tensors)


def host_times(profile: Profile, *, kind: str, precision: str, mode: str, recompute: bool) -> HostTimes:
    """Host seconds of a layer and of the rest of a step.

    Raises:
        SurfaceError: neither steps nor layers of this kind were issued.
    """
    layout = mode + "+recompute" * recompute
    layers: dict[int, float] = {}
    rests, shares = [], []
    for session in sorted({s.session for s in profile.samples}):
        found, share = _single_layer(profile, session=session, kind=kind, precision=precision, layout=layout)
        witnesses = [found] if found else []
        steps = _by_depth(profile, session=session, kind=kind, precision=precision, layout=layout)
        if len(steps) >= 2:
            (low, first), (high, last) = steps[0], steps[-1]
            slope = max(1e-6, (last - first) / (high - low))
            witnesses.append(slope)
            rests.append(max(0.0, first - low * slope))
        if witnesses:
            layers[session] = statistics.geometric_mean(witnesses)
        if found:
            shares.append(share)
    if not layers:
        return _nearest(profile, kind=kind, precision=precision, mode=mode, recompute=recompute)
    values = list(layers.values())
    layer = statistics.median(values)
    share = statistics.median(shares) if shares else FORWARD_SHARE
    spread = (max(values) - min(values)) / layer if len(values) > 1 else 0.3
    rest = statistics.median(rests) if rests else _rest(profile)
    return HostTimes(share * layer, (1 - share) * layer, rest, spread)


def _nearest(profile: Profile, *, kind: str, precision: str, mode: str, recompute: bool) -> HostTimes:
    """A way of running that was not issued, from its nearest neighbour by the ratio measured on an H200 host."""
    if precision == "bf16" and mode != "eager":
        return host_times(profile, kind=kind, precision="amp", mode=mode, recompute=recompute)
    if recompute:
        return _scaled(host_times(profile, kind=kind, precision=precision, mode=mode, recompute=False), RECOMPUTE_RATIO)
    if mode == "compile":
        near = host_times(profile, kind=kind, precision=precision, mode="regional", recompute=False)
        return _scaled(near, COMPILE_RATIO)
    if mode == "regional":
        return host_times(profile, kind=kind, precision=precision, mode="eager", recompute=False)
    if precision == "bf16":
        return host_times(profile, kind=kind, precision="amp", mode=mode, recompute=False)
    raise SurfaceError(f"the profile has no host time of a {kind} layer, {mode}")


def _scaled(times: HostTimes, ratio: float) -> HostTimes:
    return HostTimes(times.forward_s * ratio, times.backward_s * ratio, times.rest_s, max(0.3, times.spread_frac))


def _single_layer(
    profile: Profile, *, session: int, kind: str, precision: str, layout: str
) -> tuple[float | None, float]:
    rows = [
        s
        for s in profile.samples
        if s.session == session
        and (s.kind, s.op, s.dtype, s.layout) == ("dispatch", f"{kind}_layer", precision, layout)
    ]
    both = [s.p50_s for s in rows if s.phase == "step"]
    forward = [s.p50_s for s in rows if s.phase == "fwd"]
    if not both:
        return None, FORWARD_SHARE
    whole = statistics.median(both)
    return whole, statistics.median(forward) / whole if forward else FORWARD_SHARE


def _is_small_step(s: Sample, *, kind: str) -> bool:
    return s.kind == "block" and s.op.startswith(f"{kind}_step_") and s.shape["mbs"] * s.shape["seq"] <= 256


def _by_depth(profile: Profile, *, session: int, kind: str, precision: str, layout: str) -> list[tuple[int, float]]:
    """(layers, host seconds without the update) of whole small steps, by depth."""
    found: dict[int, list[float]] = {}
    for s in profile.samples:
        if s.session == session and _is_small_step(s, kind=kind) and (s.dtype, s.layout) == (precision, layout):
            tensors = (12 if kind == "gpt" else 6) * s.shape["layers"] + 4
            variant = s.op.rsplit("_", 1)[-1]
            update = update_s(profile, variant=variant, precision=precision, tensors=tensors)
            found.setdefault(int(s.shape["layers"]), []).append(s.p50_s - update)
    return sorted((layers, statistics.median(values)) for layers, values in found.items())


def _rest(profile: Profile) -> float:
    """Embedding, head, loss and synchronisation from single operators, where no whole step was issued."""
    ops = ("embedding", "linear", "layernorm", "cross_entropy")
    rows = [s for s in profile.samples if s.kind == "dispatch" and s.phase == "step" and s.op in ops]
    return 3.0 * sum(
        statistics.median(s.p50_s for s in rows if s.op == op) for op in ops if any(s.op == op for s in rows)
    )
