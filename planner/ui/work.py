"""What the pages compute: presets, edits, forecasts. Heavy work is cached by the scenario's own text."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import streamlit as st
from ruamel.yaml import YAML

import planner
from planner import catalog
from planner.decide.compare import compare
from planner.forecast import ForecastError, step_on
from planner.scenario import Scenario, Strategy, load_scenario
from planner.scenario.layout_checks import layout_problems

FOLDER = Path(planner.__file__).resolve().parents[1] / "scenarios"
AUTO = "auto"
MAX_NODES = 200_000
RATIOS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)


def preset_names() -> list[str]:
    """Names of the shipped scenarios."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def load_preset(name: str) -> Scenario:
    """A shipped scenario by name.

    Raises:
        KeyError: not the name of a shipped scenario.
        ScenarioError: the file is not valid.
    """
    if name not in preset_names():
        raise KeyError(name)
    return load_scenario(FOLDER / f"{name}.yaml")


def powers_of_two(*, most: int, own: int | None = None) -> list[int]:
    """1, 2, 4, ... up to a limit, with the scenario's own value among them."""
    powers = {2**i for i in range(most.bit_length()) if 2**i <= most}
    return sorted(powers | ({own} if own else set()))


def node_choices(scenario: Scenario) -> list[int]:
    """Numbers of nodes on offer; one where the machines have no network between them."""
    own = scenario.cluster.nodes
    spec = catalog.node(scenario.cluster.node)
    if spec.scaleout_bytes_per_s <= 0 and scenario.cluster.fabric is None:
        return [own]
    return powers_of_two(most=min(MAX_NODES, max(16, 4 * own)), own=own)


def editable(scenario: Scenario) -> str | None:
    """The strategy whose layout the page lets one change: `engineered`, else the last that names its degrees."""
    named = [name for name, s in scenario.strategies.items() if isinstance(s, Strategy)]
    return "engineered" if "engineered" in named else (named[-1] if named else None)


def fitting_vpp(*, layers: int, pp: int, wanted: int) -> int:
    """The most model chunks a stage, no more than wanted, that divide the layers evenly; else 1."""
    if pp == 1:
        return 1
    return next((v for v in range(wanted, 0, -1) if layers % (pp * v) == 0), 1)


def edit(
    *, scenario: Scenario, nodes: int, batch: int, name: str | None, tp: int, pp: int, micro: int | str, recompute: str
) -> Scenario:
    """The scenario with the page's settings in it.

    Fields that only made sense with the old values follow: a fixed dp is freed on another number of GPUs, vpp keeps
    dividing the layers, sequence parallelism needs tp.
    """
    strategies: dict[str, Any] = dict(scenario.strategies)
    if nodes != scenario.cluster.nodes:
        strategies = {
            k: s.model_copy(update={"dp": None}) if isinstance(s, Strategy) else s for k, s in strategies.items()
        }
    if name is not None:
        old = strategies[name]
        change: dict[str, Any] = {
            "micro_batch_sequences": None if micro == AUTO else int(micro),
            "recompute": None if recompute == AUTO else recompute,
        }
        if tp != (old.tp or 1):
            change |= {"tp": tp, "dp": None, "sequence_parallel": old.sequence_parallel if tp > 1 else None}
        if pp != (old.pp or 1):
            vpp = fitting_vpp(layers=scenario.model_spec.layers, pp=pp, wanted=old.vpp or 1)
            change |= {"pp": pp, "dp": None, "vpp": vpp if vpp > 1 else None}
        strategies[name] = old.model_copy(update=change)
    return scenario.model_copy(
        update={
            "cluster": scenario.cluster.model_copy(update={"nodes": nodes}),
            "training": scenario.training.model_copy(update={"global_batch_sequences": batch}),
            "strategies": strategies,
        }
    )


def problems(scenario: Scenario) -> dict[str, str]:
    """Why a strategy cannot be placed, by its name; strategies that can are left out."""
    out = {}
    for name, strategy in scenario.strategies.items():
        if not isinstance(strategy, Strategy):
            out[name] = "`auto` is not searched on this page"
            continue
        found = layout_problems(
            strategy=strategy,
            model=scenario.model_spec,
            gpus=scenario.gpus,
            global_batch=scenario.training.global_batch_sequences,
            sequence=scenario.training.sequence_length,
        )
        if found:
            out[name] = "; ".join(message for _, message in found)
    return out


def to_yaml(scenario: Scenario) -> str:
    """A scenario file that reads back as the same scenario."""
    out = StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(json.loads(scenario.model_dump_json(exclude_defaults=True)), out)
    return out.getvalue()


@st.cache_data(max_entries=64, show_spinner=False)
def comparison(scenario_json: str) -> dict[str, Any]:
    """The comparison document of a scenario given as JSON.

    Raises:
        ForecastError: a strategy cannot be forecast as written.
    """
    return dict(compare(scenario=Scenario.model_validate_json(scenario_json), engine="fast").document)


@st.cache_data(max_entries=64, show_spinner=False)
def scaling_points(scenario_json: str) -> list[dict[str, Any]]:
    """Tokens per second per GPU on other cluster sizes: the batch scales with the GPUs, a rank keeps its work."""
    scenario = Scenario.model_validate_json(scenario_json)
    total, nodes, batch = scenario.gpus, scenario.cluster.nodes, scenario.training.global_batch_sequences
    out = []
    for ratio in RATIOS if len(node_choices(scenario)) > 1 else (1,):
        gpus = int(total * ratio)
        if (nodes * ratio) % 1 or (batch * ratio) % 1:
            continue
        for name, strategy in scenario.strategies.items():
            if not isinstance(strategy, Strategy):
                continue
            free = strategy.model_copy(update={"dp": None})
            try:
                resolved, answer = step_on(
                    scenario=scenario, strategy=free, gpus=gpus, global_batch=int(batch * ratio), engine="fast"
                )
            except (ForecastError, ValueError):
                continue
            if resolved.fits:
                rate = answer.tokens_per_s / gpus
                out.append({"strategy": name, "gpus": gpus, "rate": rate, "here": ratio == 1})
    return out
