"""The longest sequence that fits: which layouts reach it, and what each length costs in tokens a second."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.decide.search import Candidate, Sweep, strategy_of, sweep_plans
from planner.decide.search_answer import answer_of
from planner.decide.spread import ONE_CORE, Where
from planner.scenario import Scenario

LONGEST = 16_777_216  # tokens of a sequence
OCTAVE_PARTS = 4  # the longest sequence is found to this share of a doubling
GRAIN = 256  # tokens
REPORTED = 10


def longest_sequence(*, scenario: Scenario, precision: str | None = None, where: Where = ONE_CORE) -> dict[str, Any]:
    """The search at the longest sequence for which any plan fits, the tokens of a step kept.

    Lengths double from the scenario's, then close in by quarters of a doubling. The answer is that of `search`, with

    - `sequence_length`: the longest that fits, None if not even the scenario's does;
    - `by_length`: each length tried that fits, with its fastest plan by the closed form;
    - `by_layout`: the layouts that go furthest, each with the longest length tried that fits it and its tokens a
      second there.

    Args:
        scenario: model, cluster, batch and goals.
        precision: dtype of the products, None tries what the part has.
        where: on which workers; a file of results gets the length into its name.

    Raises:
        SpreadError: the workers or the files of `where` cannot be used.
    """
    start = scenario.training.sequence_length
    sweeps: dict[int, Sweep] = {}

    def fits(length: int) -> bool:
        found = sweep_plans(scenario=_at(scenario, length), precision=precision, where=_beside(where, length))
        sweeps[length] = found
        if found.interrupted:
            raise KeyboardInterrupt
        return bool(found.best)

    interrupted, best, length = False, None, start
    try:
        while length <= LONGEST and fits(length):
            best, length = length, 2 * length
        for part in range(OCTAVE_PARTS - 1, 0, -1):
            between = (best or 0) + (best or 0) * part // OCTAVE_PARTS
            if best and between < length <= LONGEST and between % GRAIN == 0 and fits(between):
                best = between
                break
    except KeyboardInterrupt:
        if not sweeps:
            raise
        interrupted = True
        best = max((n for n, s in sweeps.items() if s.best), default=None)
    at = best or min(sweeps)
    sweep = replace(sweeps[at], interrupted=interrupted)
    fitting = {n: s for n, s in sorted(sweeps.items()) if s.best}
    return answer_of(scenario=_at(scenario, at), sweep=sweep, where=where) | {
        "sequence_length": best,
        "by_length": [_row(scenario, n, s.best[0]) for n, s in fitting.items()],
        "by_layout": _by_layout(scenario=scenario, sweeps=fitting),
    }


def _at(scenario: Scenario, length: int) -> Scenario:
    training = scenario.training
    batch = max(1, training.global_batch_sequences * training.sequence_length // length)
    # The batch stays divisible as the cluster is: down to the next multiple of its largest power of two.
    step = 1 << max(0, batch.bit_length() - 3)
    changed = {"sequence_length": length, "global_batch_sequences": batch // step * step}
    return scenario.model_copy(update={"training": training.model_copy(update=changed)})


def _beside(where: Where, length: int) -> Where:
    return where if where.out is None else replace(where, out=where.out.with_stem(f"{where.out.stem}-{length}"))


def _row(scenario: Scenario, length: int, plan: Candidate) -> dict[str, Any]:
    lay = plan.layout
    return {
        "sequence_length": length,
        "tokens_per_s": lay.global_batch * lay.sequence / plan.step_s,
        "step_s": plan.step_s,
        "memory_peak_gb": plan.memory_bytes / 1e9,
        "plan": strategy_of(plan, scenario=scenario).model_dump(exclude_none=True),
    }


def _by_layout(*, scenario: Scenario, sweeps: Mapping[int, Sweep]) -> list[dict[str, Any]]:
    """The layouts (tp, pp, cp, ep) that reach furthest, the quicker first where they reach as far."""
    furthest: dict[tuple[int, ...], tuple[int, Candidate]] = {}
    for length, sweep in sweeps.items():
        for plan in reversed(sweep.best):
            lay = plan.layout
            furthest[lay.tp, lay.pp, lay.cp, lay.ep] = (length, plan)
    rows = [_row(scenario, length, plan) for length, plan in furthest.values()]
    return sorted(rows, key=lambda r: (-r["sequence_length"], -r["tokens_per_s"]))[:REPORTED]
