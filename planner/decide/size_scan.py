"""Clusters that a goal may be met with: every source of a part, every number of nodes, every tenure, in closed form.

Plans come from the search at two anchor sizes of a part and are carried to the other sizes with the data-parallel
degree left open; below the smallest doubling that meets the goals, sizes in between are searched anew.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from planner import catalog
from planner.catalog.offers import Source
from planner.decide.requirements import spare_nodes
from planner.decide.score import Scorer
from planner.decide.search import distinct, strategy_of, sweep_plans
from planner.decide.size_goals import Demand, Figures
from planner.decide.size_terms import on_terms, placed
from planner.decide.space import Axes, axes_of, placements
from planner.forecast import ForecastError, machine_for, resolve, step_on, step_sigma
from planner.outcome import run_and_bill
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer, peak_flops
from planner.simulate.run.setup import run_plan
from planner.workload.params import model_flops_per_token
from planner.workload.resolve import Resolved

MOST_GPUS = 32_768
ANCHOR_MFU = 0.4  # only to guess where to look first
ANCHORS = (1.0, 0.25)  # sizes that are searched, over the guessed one
SPAN = (1 / 8, 16)  # sizes that are tried, over the guessed one
PLANS_KEPT = 3  # of an anchor
STEPS_BETWEEN = 8  # of a doubling
LARGEST_MICRO_BATCH, MOST_CHUNKS = 4, 12  # of the searches here; the confirmed size is searched whole
PASSES = 2000  # of micro-batches through stages and chunks that are walked; longer steps are straight lines
# Chance that a spare is at hand. Waiting for a repair takes days, so the chance of the goals alone would be too low.
SPARE_SERVICE = 0.95


@dataclass(frozen=True, slots=True)
class Option:
    """One cluster with its plan and terms, and what it would take."""

    source: Source
    tenure: str
    nodes: int
    strategy: Strategy
    scenario: Scenario
    step_s: float
    figures: Figures
    spares: int

    @property
    def gpus(self) -> int:
        """GPUs of the cluster, spares not counted."""
        return self.scenario.gpus


Say = Callable[[str], None]


def silent(text: str) -> None:
    """No progress."""


def guessed_gpus(*, scenario: Scenario, gpu: str, days: float) -> float:
    """GPUs that would do it at a usual utilisation."""
    flops = scenario.training.tokens * model_flops_per_token(
        model=scenario.model_spec, sequence=scenario.training.sequence_length
    )
    return flops / (ANCHOR_MFU * peak_flops(gpu=gpu, precision="bf16") * days * 86_400)


def _octave(value: float) -> int:
    return max(0, math.ceil(math.log2(max(1.0, value))))


def _narrow(axes: Axes) -> Axes:
    """The values that win; a third of the whole space."""
    return replace(
        axes,
        micro_batch=tuple(m for m in axes.micro_batch if m <= LARGEST_MICRO_BATCH),
        vpp=tuple(v for v in axes.vpp if v <= MOST_CHUNKS),
        dp_overlap=(True,),
    )


def searched(*, scenario: Scenario, precision: str, count: int) -> list[Strategy]:
    """The best plans of the search on a cluster, degrees of data parallelism left open."""
    try:
        found = sweep_plans(scenario=scenario, precision=precision, narrow=_narrow)
    except (ForecastError, ValueError):  # a size that cannot be placed, or nodes without a network
        return []
    best = distinct(found, count)
    return [strategy_of(c, scenario=scenario).model_copy(update={"dp": None}) for c in best]


class Scan:
    """All options looked at for one scenario, with the plans of each part."""

    def __init__(
        self, *, scenario: Scenario, demand: Demand, strategy: Strategy | None, precision: str, say: Say = silent
    ) -> None:
        self.scenario, self.demand, self.precision, self.say = scenario, demand, precision, say
        self.fixed = None if strategy is None else strategy.model_copy(update={"dp": None})
        self.plans: dict[str, list[Strategy]] = {}
        self.options: dict[tuple[str, str | None, int], list[Option]] = {}

    def ladder(self, source: Source) -> list[int]:
        """Numbers of nodes to try: doublings around the guess, the scenario's own size among them."""
        per_node = catalog.node(source.node).gpus_per_node
        guess = guessed_gpus(scenario=self.scenario, gpu=source.gpu, days=self.demand.deadline_days) / per_node
        low, high = _octave(guess * SPAN[0]), _octave(guess * SPAN[1])
        out = {2**i for i in range(low, high + 1) if 2**i * per_node <= MOST_GPUS}
        if catalog.node(source.node).gpu == catalog.node(self.scenario.cluster.node).gpu:
            out.add(self.scenario.cluster.nodes)
        return sorted(out)

    def plans_of(self, source: Source) -> list[Strategy]:
        """Plans of a part, searched on the node where it is first asked for."""
        if self.fixed is not None:
            return [self.fixed]
        if source.gpu not in self.plans:
            per_node = catalog.node(source.node).gpus_per_node
            guess = guessed_gpus(scenario=self.scenario, gpu=source.gpu, days=self.demand.deadline_days) / per_node
            found: dict[Strategy, None] = {}
            sizes = sorted({min(2 ** _octave(guess * a), MOST_GPUS // per_node) for a in ANCHORS})
            for nodes in sizes:
                self.say(f"{source.gpu}: plans on {nodes} nodes")
                one = placed(scenario=self.scenario, node=source.node, nodes=nodes)
                found |= dict.fromkeys(searched(scenario=one, precision=self.precision, count=PLANS_KEPT))
            self.plans[source.gpu] = list(found)
        return self.plans[source.gpu]

    def look(self, *, source: Source, nodes: int, afresh: bool = False) -> list[Option]:
        """The options of a source at a size: the fastest plan that fits, under every tenure; empty where none fits."""
        key = (source.node, source.provider, nodes)
        if key in self.options and not afresh:
            return self.options[key]
        one = placed(scenario=self.scenario, node=source.node, nodes=nodes)
        plans: Iterable[Strategy] = self.plans_of(source)
        if afresh and self.fixed is None:
            plans = [*plans, *searched(scenario=one, precision=self.precision, count=1)]
        divided = [p for plan in plans if (p := dividing(scenario=one, strategy=plan, exact=self.fixed is not None))]
        fitting = [(seconds, plan) for plan in divided if (seconds := closed_form_s(scenario=one, strategy=plan))]
        if not fitting:
            self.options[key] = []
            return []
        best = min(fitting, key=lambda pair: pair[0])[1]
        self.options[key] = options_of(scenario=one, source=source, strategy=best)
        return self.options[key]

    def every(self) -> list[Option]:
        """All options that fit."""
        return [o for found in self.options.values() for o in found]

    def run(self, found: Sequence[Source]) -> None:
        """Try every source at every size of its ladder."""
        for source in found:
            self.say(f"{source.node} ({source.provider or 'market'})")
            for nodes in self.ladder(source):
                self.look(source=source, nodes=nodes)

    def descend(self, source: Source) -> None:
        """Search anew between the smallest size that meets the goals and the next smaller one, by bisection.

        Sizes on which nothing can be placed (layers, heads and batch decide) are left out beforehand.
        """
        sizes = sorted(n for node, provider, n in self.options if (node, provider) == (source.node, source.provider))
        high = next((n for n in sizes if self._works(source, n)), None)
        if high is None:
            return
        low = max((n for n in sizes if n < high), default=0)
        between = {low + round((high - low) * k / STEPS_BETWEEN) for k in range(1, STEPS_BETWEEN)} - {low, high}
        left = sorted(n for n in between if self._divides(source=source, nodes=n))
        while left:
            middle = len(left) // 2
            nodes = left[middle]
            self.say(f"{source.node}: {nodes} nodes")
            self.look(source=source, nodes=nodes, afresh=True)
            left = left[:middle] if self._works(source, nodes) else left[middle + 1 :]

    def _divides(self, *, source: Source, nodes: int) -> bool:
        """Whether a plan with tensor ranks in the node's fast links, or the kept strategy, can be placed on a size."""
        one = placed(scenario=self.scenario, node=source.node, nodes=nodes)
        if self.fixed is not None:
            return one.gpus % ((self.fixed.tp or 1) * (self.fixed.pp or 1) * (self.fixed.cp or 1)) == 0
        training = one.training
        axes = axes_of(
            model=one.model_spec,
            gpu=catalog.gpu(source.gpu),
            gpus=one.gpus,
            domain_gpus=catalog.node(source.node).scaleup_domain_gpus,
            global_batch=training.global_batch_sequences,
            sequence=training.sequence_length,
            precision=self.precision,
        )
        found = placements(
            axes=axes,
            model=one.model_spec,
            gpus=one.gpus,
            global_batch=training.global_batch_sequences,
            sequence=training.sequence_length,
        )
        return next(found, None) is not None

    def _works(self, source: Source, nodes: int) -> bool:
        found = self.options.get((source.node, source.provider, nodes), [])
        return any(not self.demand.missed(o.figures) for o in found)


def dividing(*, scenario: Scenario, strategy: Strategy, exact: bool) -> Strategy | None:
    """The plan on another size, its micro-batch the largest divisor of a rank's sequences up to the plan's own.

    None where degrees or batch do not divide; with `exact` also where the micro-batch would have to change.
    """
    fixed = (strategy.tp or 1) * (strategy.pp or 1) * (strategy.cp or 1)
    ranks, rest = divmod(scenario.gpus, fixed)
    batch = scenario.training.global_batch_sequences
    if rest or not ranks or batch % ranks:
        return None
    local, micro = batch // ranks, strategy.micro_batch_sequences
    if micro is None or local % micro == 0:
        return strategy
    if exact:
        return None
    largest = max(m for m in range(1, min(micro, local) + 1) if local % m == 0)
    return strategy.model_copy(update={"micro_batch_sequences": largest})


def closed_form_s(*, scenario: Scenario, strategy: Strategy) -> float | None:
    """The search's closed-form step of a plan on a cluster; None where it cannot be placed or does not fit."""
    try:
        resolved = resolve(scenario=scenario, strategy=strategy)
        if not resolved.fits:
            return None
        machine = machine_for(scenario=scenario, resolved=resolved, gpus=scenario.gpus)
    except (ForecastError, ValueError):  # this plan cannot be laid out on this size, or its nodes have no network
        return None
    lay, overlap = resolved.layout, strategy.overlap
    whole = machine.software
    axes = Axes(
        tp=(lay.tp,), pp=(lay.pp,), vpp=(lay.vpp,), cp=(lay.cp,), ep=(lay.ep,), etp=(lay.etp,),
        micro_batch=(lay.micro_batch,), zero_stage=(lay.zero_stage,), recompute=(lay.recompute,),
        sequence_parallel=(lay.sequence_parallel,), precision=(lay.precision,), schedule=(lay.schedule,),
        dp_overlap=(whole.dp_overlap,),
        pp_overlap=(lay.vpp > 1 and bool(overlap.pp if overlap and overlap.pp is not None else machine.p2p_overlap),),
        tp_overlap=(lay.tp > 1 and whole.tp_overlap_frac > 0,),
        mode=("graph" if machine.cuda_graph else "eager",),
    )  # fmt: skip
    step_s = float(Scorer(model=scenario.model_spec, machine=machine, axes=axes).score(lay).step_s.min())
    return step_s if math.isfinite(step_s) else None


def long_step(*, scenario: Scenario, strategy: Strategy) -> tuple[Resolved, StepAnswer]:
    """Layout and step, the step of many micro-batches drawn straight through two shorter ones.

    Once a pipeline is full every further micro-batch takes the same time.
    """
    resolved = resolve(scenario=scenario, strategy=strategy)
    lay, batch = resolved.layout, scenario.training.global_batch_sequences
    short = max(2, math.ceil(PASSES / (lay.pp * lay.pp * lay.vpp))) * lay.pp

    def at(micro_batches: int) -> StepAnswer:
        return step_on(
            scenario=scenario,
            strategy=strategy.model_copy(update={"recompute": lay.recompute, "micro_batch_sequences": lay.micro_batch}),
            gpus=scenario.gpus,
            global_batch=lay.dp * lay.micro_batch * micro_batches,
            engine="fast",
        )[1]

    if lay.micro_batches <= 2 * short:
        return step_on(scenario=scenario, strategy=strategy, gpus=scenario.gpus, global_batch=batch, engine="fast")
    first, second = at(short), at(2 * short)
    step_s = second.step_s + (lay.micro_batches - 2 * short) * (second.step_s - first.step_s) / short
    factor = step_s / second.step_s
    answer = replace(
        second,
        step_s=step_s,
        breakdown_s=tuple((k, v * factor) for k, v in second.breakdown_s),
        link_busy_s=tuple((k, v * factor) for k, v in second.link_busy_s),
        tokens_per_s=batch * lay.sequence / step_s,
    )
    return resolved, answer


def options_of(*, scenario: Scenario, source: Source, strategy: Strategy) -> list[Option]:
    """A plan on a cluster under every tenure of a source: run, bill, power and spares in closed form."""
    resolved, answer = long_step(scenario=scenario, strategy=strategy)
    sigma = step_sigma(scenario=scenario, answer=answer)
    plan = run_plan(
        scenario=scenario,
        strategy=strategy,
        layout=resolved.layout,
        step_s=answer.effective_s,
        optimisations=answer.applied,
    )
    spares = spare_nodes(plan=plan, probability=max(SPARE_SERVICE, scenario.goals.probability))
    days: float | None = None
    out = []
    for tenure in source.tenures:
        if days is None or tenure == "spot":
            first = on_terms(scenario=scenario, source=source, tenure=tenure, days=1.0, spares=spares)
            run = run_and_bill(scenario=first, strategy=strategy, resolved=resolved, answer=answer, sigma=sigma)
            days = float(run.document["days"]["p50"])
        one = on_terms(scenario=scenario, source=source, tenure=tenure, days=days, spares=spares)
        outcome = run_and_bill(scenario=one, strategy=strategy, resolved=resolved, answer=answer, sigma=sigma)
        figures = Figures.of(outcome.document, scenario=one)
        out.append(Option(source, tenure, one.cluster.nodes, strategy, one, answer.step_s, figures, spares))
    return out
