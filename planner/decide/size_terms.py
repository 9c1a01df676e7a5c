"""What is on offer under the stated terms, and a scenario placed on it and priced by it."""

from collections.abc import Sequence
from typing import Any

from planner import catalog
from planner.catalog.errors import CatalogError
from planner.catalog.offers import Source, proposed_gpus, reference_node, sources
from planner.forecast import ForecastError
from planner.scenario import Scenario
from planner.scenario.cluster import Cluster

TENURES = ("on_demand", "reserved_1y", "reserved_3y", "own")
COMMITTED_YEARS = {"reserved_1y": 1.0, "reserved_3y": 3.0}
YEAR_DAYS = 365.0


def offered(*, scenario: Scenario, gpu_names: Sequence[str]) -> list[Source]:
    """What can be had: named parts or nodes, else the proposed parts and the scenario's own node.

    A tenure, provider or quote that the scenario states is kept; a quote speaks for the scenario's own part alone.

    Raises:
        ForecastError: an unknown name, or nothing is offered on the stated terms.
    """
    own = catalog.node(scenario.cluster.node)
    try:
        found = [s for name in gpu_names for s in _named(name)]
    except CatalogError as problem:
        raise ForecastError(str(problem)) from problem
    if not gpu_names:
        listed = [s for gpu in proposed_gpus() for s in sources(gpu)]
        if not any(s.gpu == own.gpu for s in listed):
            listed += sources(own.gpu)
        keeps = [s for s in listed if not (s.gpu == own.gpu and s.provider is None)]
        terms = next((s.tenures for s in listed if s.gpu == own.gpu and s.provider is None), TENURES)
        found = [Source(own.name, own.gpu, None, terms), *keeps]
    pricing = scenario.pricing
    if pricing.usd_per_gpu_hour is not None or pricing.quote_per_gpu_hour is not None:
        terms = tuple(dict.fromkeys((pricing.tenure, "own")))
        rest = [s for s in found if s.gpu != own.gpu]
        quoted = [Source(own.name, own.gpu, pricing.provider, terms)] if len(rest) < len(found) else []
        found = quoted + rest
    elif pricing.provider is not None:
        found = [s for s in found if (s.provider or "").lower() == pricing.provider.lower()] or [
            Source(s.node, s.gpu, pricing.provider, TENURES[:3]) for s in found if s.provider is None
        ]
    allowed = (pricing.tenure,) if "tenure" in pricing.model_fields_set else TENURES
    kept = [Source(s.node, s.gpu, s.provider, tuple(t for t in s.tenures if t in allowed)) for s in found]
    kept = [s for s in kept if s.tenures]
    if not kept:
        raise ForecastError(f"nothing is offered as {', '.join(allowed)} on the stated terms")
    return kept


def _named(name: str) -> list[Source]:
    """The sources of a part, or a node type by itself."""
    try:
        part = catalog.gpu(name).name
    except CatalogError:
        short = [g for g in proposed_gpus() if g.lower().startswith(name.lower())]
        if short:
            return [s for gpu in short for s in sources(gpu)]
        node = catalog.node(name)
        found = [s for s in sources(node.gpu) if s.node == node.name]
        return found or [Source(node.name, node.gpu, None, TENURES)]
    found = list(sources(part))
    reference = reference_node(part)
    if not found and reference is None:
        raise CatalogError(kind="node with", name=part, known=[n.gpu for n in catalog.nodes().values()])
    return found or [Source(str(reference), part, None, TENURES)]


def placed(*, scenario: Scenario, node: str, nodes: int) -> Scenario:
    """The scenario on another cluster; fabric and site of the scenario go with its own node type only."""
    if catalog.node(node).name == catalog.node(scenario.cluster.node).name:
        cluster = scenario.cluster.model_copy(update={"nodes": nodes, "stands_for": ()})
    else:
        cluster = Cluster(node=node, nodes=nodes)
    # A fresh object: the model's shape is cached on it, settings never change.
    return scenario.model_copy(update={"cluster": cluster})


def programme_share(*, scenario: Scenario, days: float, years: float = 1.0) -> float:
    """Share of a commitment, or of a bought cluster's year, that the programme fills with runs of this length."""
    programme = scenario.programme
    used = programme.runs_per_year * programme.experiment_factor * days / YEAR_DAYS
    return min(1.0, used * min(1.0, programme.years / years))


def on_terms(*, scenario: Scenario, source: Source, tenure: str, days: float, spares: int) -> Scenario:
    """The scenario under a source's terms.

    Unless the scenario states them, the used share of a commitment and of a bought cluster is what the programme fills:
    the rest of the year is paid and idle. Servers bought are sold when the programme ends, at the resale curve.
    """
    pricing, own = scenario.pricing, scenario.pricing.own
    update: dict[str, Any] = {"tenure": tenure, "provider": source.provider}
    if catalog.node(scenario.cluster.node).gpu != source.gpu or tenure == "own":
        update |= {"usd_per_gpu_hour": None, "quote_per_gpu_hour": None}
    if tenure in COMMITTED_YEARS and "commitment_used_frac" not in pricing.model_fields_set:
        share = programme_share(scenario=scenario, days=days, years=COMMITTED_YEARS[tenure])
        update["commitment_used_frac"] = max(1e-3, share)
    if tenure == "own":
        terms: dict[str, Any] = {"spares_frac": min(1.0, spares / scenario.cluster.nodes)}
        if "utilization_frac" not in own.model_fields_set:
            share = programme_share(scenario=scenario, days=days)
            terms["utilization_frac"] = max(1e-3, min(own.utilization_frac, share))
        if "spares_frac" in own.model_fields_set:
            terms.pop("spares_frac")
        if "life_years" not in own.model_fields_set:
            terms["life_years"] = min(own.life_years, max(1.0, scenario.programme.years))
        update["own"] = own.model_copy(update=terms)
    out: dict[str, Any] = {"pricing": pricing.model_copy(update=update)}
    if tenure == "own" and scenario.run.spares is None:
        out["run"] = scenario.run.model_copy(update={"spares": spares})
    return scenario.model_copy(update=out)
