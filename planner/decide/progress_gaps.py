"""What a run's log cannot tell, in words: each unknown with what the answer takes instead, or how to log it."""

from collections.abc import Iterator, Sequence

from planner.decide.progress_actual import Actual
from planner.profile.progress_log import UNEXPECTED, Period
from planner.simulate.run.refit import FEWEST_STOPS, SHARE_FAILURES, Refit

# Below this a factor is mostly what it was before the log.
TOLD = 0.2
FEW_PERIODS, FEW_STOPS = 3, 5


def what_is_not_told(*, actual: Actual, refit: Refit, gpus: int) -> list[str]:
    """One sentence an unknown, most important first."""
    periods = actual.periods
    return [
        *_step(actual=actual, refit=refit, periods=periods, gpus=gpus),
        *(_stops(actual=actual, refit=refit, periods=periods) if periods else ()),
        *(_rest(actual=actual, periods=periods) if periods else ()),
    ]


def _step(*, actual: Actual, refit: Refit, periods: Sequence[Period], gpus: int) -> Iterator[str]:
    if refit.step.alone:
        yield (
            "why the step lies outside what the plan holds possible (P1-P99): the log is taken alone; check that "
            "model, batch and layout of the scenario are those that run"
        )
    if not periods:
        yield "dates, progress, stops and money: the runs table holds steps alone; the whole run is forecast anew"
    if actual.step_source == "running hours":
        yield (
            "step time: step_s is blank; taken from tokens and the hours that no stop took, so slower steps and "
            "other pauses of a running job cannot be told apart"
        )
    elif actual.step_source == "pace":
        yield (
            "step time: step_s and downtime_h are blank; taken from tokens a day with the planned goodput, so slower "
            "steps and more stops cannot be told apart"
        )
    elif actual.step_source == "nothing":
        yield f"step time: no period ran on the {gpus} GPUs of the scenario and made progress; stays as planned"
    if 0 < len(actual.step_ratios) < FEW_PERIODS:
        yield (
            f"scatter of the step: {len(actual.step_ratios)} period(s) tell too little; 3 % between periods is assumed "
            "(log at least three)"
        )
    other = sorted({p.gpus for p in periods if p.gpus is not None and p.gpus != gpus})
    if other:
        yield (
            f"periods on {', '.join(map(str, other))} GPUs say nothing of the step on {gpus}; their progress, stops "
            "and money count, and what is left is forecast on the scenario's cluster"
        )
    if actual.pause_frac is None and periods:
        yield "pauses of a running job (evaluation, data): need step_s and downtime_h together; stay as planned"


def _stops(*, actual: Actual, refit: Refit, periods: Sequence[Period]) -> Iterator[str]:
    if actual.stops is None:
        yield "failure rate and causes: stops are not logged; stay as planned"
    else:
        seen = sum(actual.stops[c] for c in UNEXPECTED)
        uncounted = sum(p.hours for p in periods if p.stops is None)
        if uncounted:
            yield f"stops of {uncounted:.0f} h are not logged; the rate rests on the other hours"
        if refit.failures.told_frac < TOLD:
            yield (
                f"failure rate: {seen} stops where {actual.expected_failures:.1f} were expected hardly narrow the "
                "planned rate"
            )
        if seen < FEW_STOPS:
            yield (
                f"causes: {seen} stops are too few for shares; the published shares weigh as {SHARE_FAILURES:.0f} "
                "failures"
            )
        yield (
            "failures that grow with size against those that do not: one size of cluster cannot part them; both take "
            "the same factor as far as their causes allow"
        )
    if actual.recoveries == 0:
        yield "recovery time: needs stops and downtime_h in the same rows; stays as planned"
    else:
        yield "recovery by step (detection, replacement, restart): downtime_h is their sum; all take the same factor"
    for key, words in (("planned", "planned stops"), ("preemption", "preemptions")):
        seen = (actual.stops or {}).get(key, 0)
        if 0 < seen < FEWEST_STOPS:
            yield f"{words}: {seen} are too few to expect more at that pace; as planned"


def _rest(*, actual: Actual, periods: Sequence[Period]) -> Iterator[str]:
    if actual.lost_each_s is None:
        yield f"lost work: fewer than {FEWEST_STOPS} stops have lost_work_h beside them; as planned"
    if actual.gap_h > 1e-6:
        yield f"{actual.gap_h:.1f} h between rows are not logged: they count as time gone, and into no rate"
    if actual.price_usd is None:
        yield "spend: cost_usd is blank; hours at the planned price"
    elif actual.cost_usd is None:
        yield "spend: cost_usd is blank in some rows; their hours at the price of the others"
