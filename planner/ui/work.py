"""What the pages compute: presets, edits, forecasts. Heavy work is cached by the scenario's own text."""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import streamlit as st
from ruamel.yaml import YAML

import planner
from planner import catalog
from planner.cost.measured import wire_of_profile
from planner.decide.compare import compare
from planner.decide.dossier import sizes_around
from planner.decide.roadmap import roadmap
from planner.decide.run import checkpoint_curve, plan_of, run_document
from planner.decide.search import resolve_auto
from planner.decide.sensitivity import sensitivity
from planner.decide.sweep import sweep_document
from planner.forecast import ForecastError, forecast_strategy, resolve, step_on, step_spans
from planner.profile.load import MAX_BYTES as MAX_PROFILE_BYTES
from planner.profile.load import load_profile, parse_profile
from planner.report.page import write_page
from planner.scenario import Scenario, Strategy, load_scenario
from planner.scenario.layout_checks import layout_problems
from planner.simulate.recorder import Span
from planner.simulate.trace import trace_bytes
from planner.ui.uploads import Kept, fabric_of, tree_of, without_paths
from planner.validate.own_run import csv_of_rows
from planner.validate.runs import packaged_rows

FOLDER = Path(planner.__file__).resolve().parents[1] / "scenarios"
AUTO = "auto"
MAX_NODES = 200_000
# Tasks of a step (stages x chunks x micro-batches): more would keep other people waiting.
MAX_TASKS, MAX_DRAWN_TASKS = 300_000, 100_000
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
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
            out[name] = "`auto` was not searched"
            continue
        found = layout_problems(
            strategy=strategy,
            model=scenario.model_spec,
            gpus=scenario.gpus,
            global_batch=scenario.training.global_batch_sequences,
            sequence=scenario.training.sequence_length,
        )
        if found:
            out[name] = "; ".join(problem.reason for problem in found)
            continue
        try:
            _check_tasks(scenario=scenario, strategy=strategy, most=MAX_TASKS)
        except ForecastError as error:
            out[name] = str(error)
    return out


def _check_tasks(*, scenario: Scenario, strategy: Strategy, most: int) -> None:
    """Refuse a step that would take long to walk.

    Raises:
        ForecastError: more tasks than `most`, or a layout that cannot be placed.
    """
    lay = resolve(scenario=scenario, strategy=strategy).layout
    tasks = lay.pp * lay.vpp * lay.micro_batches
    if tasks > most:
        raise ForecastError(f"a step of {tasks:,} tasks (stages x chunks x micro-batches); a page runs up to {most:,}")


@st.cache_data(max_entries=32, show_spinner=False)
def _resolved(scenario_json: str) -> str:
    return resolve_auto(Scenario.model_validate_json(scenario_json)).model_dump_json()


def resolved(scenario_json: str) -> Scenario:
    """The scenario with every `auto` strategy replaced by its best plan.

    Raises:
        ForecastError: no plan fits.
    """
    scenario = Scenario.model_validate_json(scenario_json)
    if any(isinstance(s, str) for s in scenario.strategies.values()):
        return Scenario.model_validate_json(_resolved(scenario_json))
    return scenario


def fingerprint(*, command: Sequence[str], files: Mapping[str, bytes]) -> str:
    """Hash of a command and its files."""
    parts = [*command, *(f"{name}={hashlib.sha256(data).hexdigest()}" for name, data in sorted(files.items()))]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def one_line(scenario: Scenario) -> str:
    """Model, machines and tokens of a scenario."""
    model = scenario.model_spec.name
    tokens = scenario.training.tokens
    amount = f"{tokens / 1e12:g} T" if tokens >= 1e12 else f"{tokens / 1e9:g} B"
    return f"{model} · {scenario.gpus:,} GPU ({scenario.cluster.nodes:,} × {scenario.cluster.node}) · {amount} tokens"


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
    document = dict(compare(scenario=Scenario.model_validate_json(scenario_json), engine="fast").document)
    return dict(json.loads(without_paths(json.dumps(document))))


def can_pdf() -> bool:
    """Whether the package that prints PDF is installed (extra `report`)."""
    return find_spec("weasyprint") is not None


@st.cache_data(max_entries=8, show_spinner=False)
def pdf(html: bytes) -> bytes:
    """A report as PDF; it fetches nothing.

    Raises:
        ReportError: without the package.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.pdf"
        write_page(path=path, html=html.decode())
        return path.read_bytes()


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


@st.cache_data(max_entries=32, show_spinner=False)
def run_answer(scenario_json: str, name: str, replications: int) -> dict[str, Any]:
    """Answer `run` of a strategy, in this process: for few replications."""
    scenario = Scenario.model_validate_json(scenario_json)
    return dict(run_document(scenario=scenario, name=name, replications=replications))


@st.cache_data(max_entries=32, show_spinner=False)
def checkpoints(scenario_json: str, name: str) -> list[dict[str, float]]:
    """Goodput over checkpoint intervals, in closed form."""
    scenario = Scenario.model_validate_json(scenario_json)
    forecast = forecast_strategy(scenario=scenario, name=name, engine="fast")
    return checkpoint_curve(plan=plan_of(scenario=scenario, name=name, forecast=forecast))


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """One step by events: every span, and what the page says of it."""

    spans: tuple[Span, ...]
    streams: tuple[str, ...]
    step_s: float
    stages: int
    micro_batches: int
    bubble_frac: float


# Spans are shared between sessions and never changed: a copy of a few hundred thousand costs more than the step.
@st.cache_resource(max_entries=4, show_spinner=False)
def step_timeline(scenario_json: str, name: str) -> StepTimeline:
    """One step of a strategy by events.

    Raises:
        ForecastError: it cannot be forecast, or its step has more tasks than a page shows.
    """
    scenario = Scenario.model_validate_json(scenario_json)
    strategy = scenario.strategies[name]
    if isinstance(strategy, Strategy):
        _check_tasks(scenario=scenario, strategy=strategy, most=MAX_DRAWN_TASKS)
    forecast = forecast_strategy(scenario=scenario, name=name, engine="fast")
    lay, breakdown = forecast.resolved.layout, dict(forecast.answer.breakdown_s)
    spans = tuple(step_spans(scenario=scenario, forecast=forecast))
    streams = tuple(dict.fromkeys(s.track.rpartition("/")[2] for s in spans))
    end_s = max(s.end_s for s in spans)
    return StepTimeline(spans, streams, end_s, lay.pp, lay.micro_batches, breakdown["bubble"] / forecast.answer.step_s)


def step_trace(scenario_json: str, name: str) -> bytes:
    """The same step as a gzipped trace for Perfetto or chrome://tracing."""
    return trace_bytes(step_timeline(scenario_json, name).spans)


@st.cache_data(max_entries=32, show_spinner=False)
def sweep_answer(scenario_json: str, name: str) -> dict[str, Any]:
    """Answer `sweep` of a strategy around the scenario's size."""
    scenario = Scenario.model_validate_json(scenario_json)
    return dict(sweep_document(scenario=scenario, name=name, gpus=sizes_around(scenario)))


@st.cache_data(max_entries=32, show_spinner=False)
def sensitivity_answer(scenario_json: str, name: str, metric: str) -> dict[str, Any]:
    """Answer `sensitivity` of a strategy."""
    return dict(sensitivity(scenario=Scenario.model_validate_json(scenario_json), strategy=name, metric=metric))


@st.cache_data(max_entries=32, show_spinner=False)
def roadmap_answer(scenario_json: str, name: str) -> dict[str, Any]:
    """Answer `roadmap` of a strategy."""
    return dict(roadmap(scenario=Scenario.model_validate_json(scenario_json), name=name).document)


@st.cache_data(max_entries=8, show_spinner=False)
def profile_rows(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Device and run of a shipped profile, and its samples as rows."""
    profile = load_profile(name)
    head = {"device": profile.device.model_dump(), "run": profile.run.model_dump()}
    return head, [s.model_dump() for s in profile.samples]


def uploaded_profile(raw: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The same of a profile that somebody sent, plain or gzip.

    Raises:
        ValueError: too large, not a profile, or of a newer schema.
    """
    tree = tree_of(raw, most=MAX_PROFILE_BYTES, what="a profile")
    profile = parse_profile(json.dumps(tree), source="upload")
    head = {"device": profile.device.model_dump(), "run": profile.run.model_dump()}
    return head, [s.model_dump() for s in profile.samples]


@st.cache_data(max_entries=16, show_spinner=False)
def measured_fabric(
    raw: bytes, file_name: str, op: str | None, ranks: int | None, nodes: int | None
) -> tuple[Kept, list[dict[str, Any]], list[str]]:
    """Output of nccl-tests as a fabric that a plan can use, its samples, and notes.

    Raises:
        ValueError: nothing in it can be used.
    """
    found = fabric_of(raw, file_name=file_name, op=op, ranks=ranks, nodes=nodes)
    wire_of_profile(found[0].path())
    return found


@st.cache_data(max_entries=1, show_spinner=False)
def runs_template() -> bytes:
    """A table of runs to fill in: the columns, and two public rows as examples."""
    return csv_of_rows(packaged_rows()[:2]).encode()


def differences(scenario: Scenario) -> list[dict[str, Any]]:
    """Settings in which the strategies differ, as written."""
    written = {n: s.model_dump(mode="json") for n, s in scenario.strategies.items() if isinstance(s, Strategy)}
    keys = list(next(iter(written.values()))) if written else []
    return [
        {"setting": key} | {n: "—" if d[key] is None else json.dumps(d[key]) for n, d in written.items()}
        for key in keys
        if len({json.dumps(d[key], sort_keys=True) for d in written.values()}) > 1
    ]


def plan_yaml(plan: dict[str, Any]) -> str:
    """A plan as the strategy block of a scenario file."""
    keys = ("tp", "pp", "vpp", "cp", "ep", "etp", "sequence_parallel", "zero_stage", "micro_batch_sequences",
            "schedule", "recompute", "precision", "overlap", "framework")  # fmt: skip
    out = StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump({"best": {k: plan[k] for k in keys if plan.get(k) is not None}}, out)
    return out.getvalue()
