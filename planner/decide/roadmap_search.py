"""Which optimisations, in which order: gains simulated one on top of the other, worth and cost in money.

Greedy by expected money saved per money spent, every step simulated on the stack so far: two steps on the same bytes or
the same idle time weaken each other, and some only become possible (FP8 after the compiler) or worth it (overlap of
tensor-parallel exchange after the layout) behind another.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner import catalog
from planner.catalog.optimisations import Optimisation, optimisation, optimisations
from planner.cost.types import Network
from planner.money.people import effort, role_of
from planner.scenario.team import Team
from planner.simulate.optimise import changed
from planner.simulate.stack_step import stack_step
from planner.workload.transforms import NotApplicableError, Stack, apply, unmet

# Shares of the step below and above which glue and overlap come first.
GLUE_FIRST_FRAC = 0.15
# Engineering judgement, not measurement: a team without the role learns on the job; a young code base is quick to
# change; a mature one pays for changes that touch the whole run; a checkpoint that others load must stay loadable.
NO_ROLE_CHANCE = 0.7
EARLY_STRUCTURAL_CHANCE = 1.3
LOCKED_ECOSYSTEM_CHANCE = 0.3
# Same-machine comparison of 15 runs a side of 20 minutes on one node of eight.
TEST_GPU_HOURS = 2 * 15 * (20 / 60) * 8
PILOT_FRAC = 0.01  # of the run's GPU-hours, to prove quality
# Steps whose usual factor has no share of the simulated step behind it: shown only when a person names them.
UNSEEN = frozenset({"async_data", "packing", "offload", "hand_cuda", "agent_search", "layer_drop", "rate_limiter"})
LEAST_LOG_GAIN = 1e-3
SLOW = "layout_search"  # tens of simulations
SHARDING_ONLY = frozenset({"pytorch", "fsdp", "deepspeed"})


@dataclass(frozen=True, slots=True)
class Economy:
    """What time and people cost.

    Attributes:
        spend_usd: compute spend of the programme that a speed-up applies to.
        run_gpu_hours: GPU-hours of one run.
        usd_per_gpu_hour: price.
        usd_per_person_week: loaded labour.
        years: length of the programme, for upkeep.
        run_factors: elapsed time after over before of steps that act on the run, not on the step.
    """

    spend_usd: float
    run_gpu_hours: float
    usd_per_gpu_hour: float
    usd_per_person_week: float
    years: float
    run_factors: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible next step on a given stack.

    Attributes:
        log_gain: logarithm of time before over time after, simulated.
        chance: probability that it works out here.
        effort_weeks: person-weeks for this team, low, middle and high.
        cost_usd: labour, upkeep over the programme, tests and pilots.
    """

    entry: Optimisation
    before: Stack
    after: Stack
    log_gain: float
    chance: float
    effort_weeks: tuple[float, float, float]
    gpu_hours: float
    cost_usd: float

    def pays(self, economy: Economy) -> bool:
        """Whether its expected saving on the spend exceeds its cost."""
        return self.expected_usd_frac * economy.spend_usd > self.cost_usd

    @property
    def expected_usd_frac(self) -> float:
        """Expected share of the spend that it saves."""
        return self.chance * -math.expm1(-self.log_gain)


def chance(*, entry: Optimisation, team: Team) -> float:
    """Probability that a step brings more than 1 % for this team."""
    p = entry.p_success
    if not getattr(team, role_of(entry)):
        p *= NO_ROLE_CHANCE
    if entry.cut == "B":
        p *= EARLY_STRUCTURAL_CHANCE if team.stage == "early" else 1.0
        if team.ecosystem == "pretrained" and entry.reversibility == "restart":
            p *= LOCKED_ECOSYSTEM_CHANCE
    return min(p, 0.95)


def candidate(
    *, key: str, stack: Stack, network: Network, team: Team, economy: Economy, open_recompute: bool
) -> Candidate:
    """Simulate one step on a stack and price it.

    Raises:
        NotApplicableError: it cannot be done here.
    """
    entry = optimisation(key)
    after = changed(key=key, stack=stack, network=network, open_recompute=open_recompute)
    try:
        before_s = stack_step(stack=stack, network=network).effective_s
        after_s = stack_step(stack=after, network=network).effective_s
    except ValueError as error:
        raise NotApplicableError(f"{key}: {error}") from error
    factor = dict(economy.run_factors).get(key, 1.0)
    log_gain = math.log(before_s / after_s) - math.log(factor)
    hours = TEST_GPU_HOURS + (PILOT_FRAC * economy.run_gpu_hours if entry.quality_may_change else 0.0)
    weeks = effort(entry=entry, team=team)
    upkeep = entry.upkeep_mid_weeks_per_year * economy.years
    if key == "layout_search" and after.layout.tp * after.layout.pp > 1 and stack.software.framework in SHARDING_ONLY:
        # Tensor and pipeline ranks need another framework: the top of the range, and as much again to port the model.
        weeks = (weeks[0] + weeks[2], weeks[1] + weeks[2], 2 * weeks[2])
    cost = (weeks[1] + upkeep) * economy.usd_per_person_week + hours * economy.usd_per_gpu_hour
    return Candidate(entry, stack, after, log_gain, chance(entry=entry, team=team), weeks, hours, cost)


def glue_first(*, stack: Stack, network: Network) -> bool:
    """Whether idle and exposed time exceed 15 % of the step: then glue and overlap go first."""
    step = stack_step(stack=stack, network=network)
    idle = step.part("launch_gap", "straggler") + max(0.0, step.part("other"))
    exposed = sum(v for k, v in step.parts_s if k.startswith("exposed_"))
    return (idle + exposed) / step.step_s > GLUE_FIRST_FRAC


def _rank(found: Candidate, *, idle: bool, by_size: bool) -> tuple[int, float]:
    """Sorting key, larger is better.

    Glue and overlap first while much of the step idles, then expected saving over cost. A target far beyond incremental
    work is led by structural steps instead, the largest expected gain first: their pilots take longest and decide.
    """
    if by_size:
        return (1 if found.entry.cut == "B" else 0, found.chance * found.log_gain)
    axes = {axis for axis, _ in found.entry.mechanism}
    wins_idle = found.entry.side == "glue" or bool(axes & {"wire", "streams", "schedule"})
    return (1 if idle and wins_idle else 0, found.expected_usd_frac / max(found.cost_usd, 1.0))


Look = Callable[[str, Stack], Candidate | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, what was left aside and why."""

    base: Stack
    steps: tuple[Candidate, ...]
    alone: Mapping[str, float]
    rest: tuple[Candidate, ...]
    refused: Mapping[str, str]
    run_factors: Mapping[str, float]


def choose(
    *,
    base: Stack,
    network: Network,
    team: Team,
    economy: Economy,
    cuts: frozenset[str] = frozenset({"A"}),
    target_log: float | None = None,
    by_size: bool = False,
    open_recompute: bool = True,
    max_steps: int = 12,
) -> Plan:
    """Build the road.

    Args:
        base: where it starts.
        network: cluster.
        team: who works.
        economy: what it is worth.
        cuts: A incremental, B structural steps allowed.
        target_log: stop once the steps, if all work out, gain this (logarithm); else go on while a step gains anything.
        by_size: structural and large steps first, whatever they cost.
        open_recompute: the strategy leaves recompute to memory.
        max_steps: length of the road.
    """
    refused: dict[str, str] = {}
    fresh: dict[str, Candidate] = {}
    alone: dict[str, float] = {}

    def look(key: str, stack: Stack) -> Candidate | None:
        try:
            found = candidate(
                key=key, stack=stack, network=network, team=team, economy=economy, open_recompute=open_recompute
            )
        except NotApplicableError as error:
            refused[key] = str(error)
            return None
        refused.pop(key, None)
        return found

    keys = [k for k, e in optimisations().items() if e.cut in cuts and k not in UNSEEN]
    steps: list[Candidate] = []
    stack, reached = base, 0.0
    waiting = list(keys)
    for _ in range(max_steps):
        for key in list(waiting):
            if key in fresh:
                continue
            found = look(key, stack)
            if found is not None and (found.log_gain > LEAST_LOG_GAIN or not steps):
                fresh[key] = found
                if not steps:
                    alone[key] = found.log_gain
        best = _lead(fresh=fresh, stack=stack, look=look, network=network, by_size=by_size)
        if best is None or best.log_gain <= LEAST_LOG_GAIN:
            break
        steps.append(best)
        fresh.pop(best.entry.key)
        waiting.remove(best.entry.key)
        stack, reached = best.after, reached + best.log_gain
        if target_log is not None and reached >= target_log:
            break
    rest = tuple(c for k in list(fresh) if (c := look(k, stack)) is not None and c.log_gain > LEAST_LOG_GAIN)
    ordered = tuple(sorted(rest, key=lambda c: -c.expected_usd_frac / max(c.cost_usd, 1.0)))
    return Plan(base, tuple(steps), alone, ordered, refused, dict(economy.run_factors))


def _lead(
    *, fresh: dict[str, Candidate], stack: Stack, look: Look, network: Network, by_size: bool
) -> Candidate | None:
    """The best candidate on this stack. All are simulated again, the layout search only where it leads."""
    idle = glue_first(stack=stack, network=network)
    stale = {SLOW} & set(fresh)
    for key in [k for k in fresh if k not in stale]:
        _renew(fresh=fresh, key=key, stack=stack, look=look)
    while fresh:
        key = max(fresh, key=lambda k: _rank(fresh[k], idle=idle, by_size=by_size))
        if key not in stale:
            return fresh[key]
        stale.discard(key)
        _renew(fresh=fresh, key=key, stack=stack, look=look)
    return None


def _renew(*, fresh: dict[str, Candidate], key: str, stack: Stack, look: Look) -> None:
    """Simulate a candidate again; without a gain it leaves the race on this stack."""
    if fresh[key].before == stack:
        return
    found = look(key, stack)
    if found is None or found.log_gain <= LEAST_LOG_GAIN:
        fresh.pop(key)
    else:
        fresh[key] = found


def leave_one_out(*, plan: Plan, network: Network, open_recompute: bool) -> dict[str, float]:
    """Logarithmic gain that is lost when one step of the road is left out and the others stay."""
    keys = [s.entry.key for s in plan.steps]
    whole = replay(keys=keys, plan=plan, network=network, open_recompute=open_recompute)
    return {
        left: whole
        - replay(keys=[k for k in keys if k != left], plan=plan, network=network, open_recompute=open_recompute)
        for left in keys
    }


def replay(*, keys: Sequence[str], plan: Plan, network: Network, open_recompute: bool) -> float:
    """Logarithmic gain of steps applied in order from the road's start; steps that stood on a missing one fall away."""
    stack = plan.base
    run = 0.0
    for key in keys:
        try:
            stack = changed(key=key, stack=stack, network=network, open_recompute=open_recompute)
        except NotApplicableError:
            continue
        run -= math.log(plan.run_factors.get(key, 1.0))
    before = stack_step(stack=plan.base, network=network).effective_s
    return math.log(before / stack_step(stack=stack, network=network).effective_s) + run


def elsewhere(*, key: str, stack: Stack, network: Network, nodes: Sequence[str]) -> dict[str, float | None]:
    """Gain of one step alone on other parts in the same layout; None where it cannot be done there."""
    out: dict[str, float | None] = {}
    for name in nodes:
        spec = catalog.node(name)
        part = catalog.gpu(spec.gpu)
        other = replace(
            network,
            scaleup=part.scaleup_link,
            scaleup_bytes_per_s=part.scaleup_bytes_per_s,
            node_bytes_per_s=spec.scaleout_bytes_per_s if network.node_bytes_per_s else 0.0,
            gpu=part.name,
        )
        there = replace(stack, gpu=part.name, profile=stack.profile if part.name == stack.gpu else "")
        if unmet(key=key, stack=there):
            out[part.name] = None
            continue
        try:
            after = apply(key=key, stack=there)
            old, new = (stack_step(stack=x, network=other).effective_s for x in (there, after))
        except (NotApplicableError, ValueError):
            out[part.name] = None
            continue
        out[part.name] = 1 - new / old
    return out
