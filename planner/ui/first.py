"""A first estimate of a strategy in closed form: a few milliseconds, shown while a long step is walked."""

import math

from planner.decide.score import Scorer
from planner.decide.space import Axes
from planner.forecast import ForecastError, machine_for, resolve
from planner.scenario import Scenario, Strategy

# Stages x chunks x micro-batches from which walking a step takes longer than a hand waits.
LONG_TASKS = 20_000
DAY_S = 86_400.0


def first_estimate_s(*, scenario: Scenario, strategy: Strategy) -> float | None:
    """Seconds of a step by the closed form of the search; None where it has none for the plan.

    Measured blocks of a profile and gains of single optimisations are not in it: the forecast that follows has them.

    Raises:
        ForecastError: a layout that cannot be placed.
    """
    resolved = resolve(scenario=scenario, strategy=strategy)
    machine = machine_for(scenario=scenario, resolved=resolved, gpus=scenario.gpus)
    lay, software = resolved.layout, machine.software
    axes = Axes(
        tp=(lay.tp,), pp=(lay.pp,), vpp=(lay.vpp,), cp=(lay.cp,), ep=(lay.ep,), etp=(lay.etp,),
        micro_batch=(lay.micro_batch,), zero_stage=(lay.zero_stage,), recompute=(lay.recompute,),
        sequence_parallel=(lay.sequence_parallel,), precision=(lay.precision,), schedule=(lay.schedule,),
        dp_overlap=(software.dp_overlap,), pp_overlap=(machine.p2p_overlap and lay.vpp > 1,),
        tp_overlap=(software.tp_overlap_frac > 0 and lay.tp > 1,), mode=("graph" if machine.cuda_graph else "eager",),
    )  # fmt: skip
    try:
        scored = Scorer(model=scenario.model_spec, machine=machine, axes=axes).score(lay, (lay.micro_batch,))
    except (ValueError, LookupError):
        return None
    found = float(scored.step_s.min(initial=math.inf))
    return found if math.isfinite(found) else None


def first_estimates(scenario: Scenario) -> dict[str, tuple[float, float]]:
    """(seconds of a step, days of steps without a loss) of the strategies whose step takes long to walk."""
    out = {}
    for name, strategy in scenario.strategies.items():
        if not isinstance(strategy, Strategy):
            continue
        try:
            lay = resolve(scenario=scenario, strategy=strategy).layout
            tasks = lay.pp * lay.vpp * lay.micro_batches
            step_s = first_estimate_s(scenario=scenario, strategy=strategy) if tasks >= LONG_TASKS else None
        except ForecastError:
            continue
        if step_s is not None:
            steps = scenario.training.tokens / (lay.global_batch * lay.sequence)
            out[name] = (step_s, math.ceil(steps) * step_s / DAY_S)
    return out
