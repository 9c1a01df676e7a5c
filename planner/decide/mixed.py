"""A mixed fleet as the equal fleet that it runs like: a synchronous step waits for its slowest rank."""

from dataclasses import dataclass
from datetime import date

from planner import catalog
from planner.catalog.purchase import purchase_prices
from planner.forecast import ForecastError, step_on
from planner.money.own import server_price
from planner.money.rent import catalogue_rent
from planner.scenario import Scenario, Strategy


@dataclass(frozen=True, slots=True)
class Pace:
    """What one node type would make of the whole fleet.

    Attributes:
        step_s: seconds of a step; None where the layout cannot be placed on it.
        fits: its memory holds the layout.
    """

    node: str
    nodes: int
    step_s: float | None
    fits: bool


def _all_of(*, scenario: Scenario, node: str) -> Scenario:
    total = scenario.cluster.nodes + sum(part.nodes for part in scenario.cluster.also)
    cluster = scenario.cluster.model_copy(update={"node": node, "nodes": total, "also": ()})
    return scenario.model_copy(update={"cluster": cluster})


def paces(*, scenario: Scenario, strategy: Strategy) -> tuple[Pace, ...]:
    """Every node type of the fleet, each as if all nodes were of it, in the order of the scenario.

    Raises:
        ForecastError: the layout cannot be placed on any of them.
    """
    count = {scenario.cluster.node: scenario.cluster.nodes}
    for part in scenario.cluster.also:
        count[part.node] = count.get(part.node, 0) + part.nodes
    out, last = [], None
    for node, nodes in count.items():
        try:
            resolved, answer = step_on(
                scenario=_all_of(scenario=scenario, node=node),
                strategy=strategy,
                gpus=scenario.gpus,
                global_batch=scenario.training.global_batch_sequences,
                engine="fast",
            )
        except ForecastError as error:
            out.append(Pace(node, nodes, None, False))
            last = error
            continue
        out.append(Pace(node, nodes, answer.step_s, resolved.fits))
    if last is not None and all(p.step_s is None for p in out):
        raise last
    return tuple(out)


def slowest(found: tuple[Pace, ...]) -> Pace:
    """The type that sets the step: one that cannot hold the layout before any other, then the longest step."""
    return max(found, key=lambda p: (p.step_s is None, not p.fits, p.step_s or 0.0))


def _least_peak(scenario: Scenario) -> str:
    names = [scenario.cluster.node, *(part.node for part in scenario.cluster.also)]
    return min(names, key=lambda n: (catalog.gpu(catalog.node(n).gpu).peak_flops.get("bf16", 0.0), names.index(n)))


def equal_fleet(scenario: Scenario) -> tuple[Scenario, str]:
    """The scenario with all nodes of the type that sets the pace, and one sentence on it; itself and "" if not mixed.

    Rent and the price of servers become the mean over the fleet's GPUs where the scenario quotes none; power, racks
    and failures are those of the slowest type.

    Raises:
        ForecastError: no strategy can be placed.
    """
    if not scenario.cluster.also:
        return scenario, ""
    strategy = next((s for s in scenario.strategies.values() if isinstance(s, Strategy)), None)
    if strategy is None:
        node = _least_peak(scenario)
        why = "the least peak rate"
    else:
        found = paces(scenario=scenario, strategy=strategy)
        node = slowest(found).node
        why = ", ".join(f"{p.node} {_told(p)}" for p in found)
    parts = [(scenario.cluster.node, scenario.cluster.nodes), *((p.node, p.nodes) for p in scenario.cluster.also)]
    fleet = " + ".join(f"{nodes:,} {name}" for name, nodes in parts)
    equal = _priced(scenario=_all_of(scenario=scenario, node=node), parts=parts)
    text = f"mixed fleet of {fleet} runs as {equal.cluster.nodes:,} {node} ({why}); power and racks are those of {node}"
    return equal, text


def _told(pace: Pace) -> str:
    if pace.step_s is None:
        return "cannot place the layout"
    return f"{pace.step_s:.4g} s a step" + ("" if pace.fits else ", does not fit")


def _priced(*, scenario: Scenario, parts: list[tuple[str, int]]) -> Scenario:
    """Prices averaged over the fleet, unless the scenario brings its own."""
    pricing = scenario.pricing
    total = sum(nodes for _, nodes in parts)
    gpus = [(catalog.node(name).gpu, nodes / total) for name, nodes in parts]
    update: dict[str, object] = {}
    if pricing.usd_per_gpu_hour is None and pricing.quote_per_gpu_hour is None:
        tenure = "on_demand" if pricing.tenure == "own" else pricing.tenure
        rents = [
            (
                catalogue_rent(
                    gpu=gpu, tenure=tenure, provider=pricing.provider, region=pricing.region, today=date.today()
                ),
                share,
            )
            for gpu, share in gpus
        ]
        update["usd_per_gpu_hour"] = sum(rent.usd_per_gpu_hour * share for rent, share in rents)
        days = [rent.date for rent, _ in rents]
        update["quote_date"] = min((d for d in days if d), default=None) if all(days) else None
    if pricing.own.server_usd_per_gpu is None and purchase_prices():
        servers = [(server_price(gpu=gpu), share) for gpu, share in gpus]
        if all(price is not None for price, _ in servers):
            mean = sum(price.usd_per_gpu * share for price, share in servers if price is not None)
            oldest = min((str(p.date) for p, _ in servers if p is not None and p.date), default=None)
            own = {"server_usd_per_gpu": mean, "purchase_date": pricing.own.purchase_date or oldest}
            update["own"] = pricing.own.model_copy(update=own)
    return scenario.model_copy(update={"pricing": pricing.model_copy(update=update)})
