"""Reading a scenario file: all errors at once, each with file, line, path, reason and nearest valid choice."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from planner import catalog
from planner.catalog.errors import CatalogError
from planner.catalog.types import ModelSpec, NodeSpec
from planner.scenario.cluster import Cluster
from planner.scenario.issues import Issue, ScenarioError
from planner.scenario.layout_checks import layout_problems
from planner.scenario.model import InlineModel
from planner.scenario.reader import MAX_BYTES, line_of, plain, read_yaml
from planner.scenario.scenario import Scenario, model_spec
from planner.scenario.strategy import Strategy
from planner.scenario.training import Training

__all__ = ["Issue", "ScenarioError", "load_scenario", "parse_scenario"]


def load_scenario(path: str | Path) -> Scenario:
    """Read and check a scenario file.

    Raises:
        ScenarioError: with every problem found.
        OSError: the file cannot be read.
    """
    place = Path(path)
    if place.stat().st_size > MAX_BYTES:
        raise ScenarioError([Issue("size", str(path), None, "", f"larger than {MAX_BYTES} bytes")])
    try:
        text = place.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError([Issue("encoding", str(path), None, "", "not UTF-8 text")]) from error
    return parse_scenario(text, file=str(path))


def parse_scenario(text: str, *, file: str = "<text>") -> Scenario:
    """Check a scenario given as YAML text.

    Raises:
        ScenarioError: with every problem found.
    """
    data, issues = read_yaml(text=text, file=file)
    tree = plain(data)
    if "model" in tree:
        tree["model"] = _beside(tree["model"], file=file)
    _measured_beside(tree.get("cluster"), file=file)
    scenario: Scenario | None = None
    try:
        scenario = Scenario.model_validate(tree)
    except ValidationError as error:
        issues += [_issue(error=dict(e), data=data, file=file) for e in _meaningful(error)]
    model, found = _model(value=tree.get("model"), data=data, file=file)
    node, more = _node(data=data, file=file)
    issues += [*found, *more, *_layout_issues(data=data, file=file, model=model, node=node)]
    if issues or scenario is None:
        raise ScenarioError(issues)
    return scenario


def _meaningful(error: ValidationError) -> list[Any]:
    """Errors of a union without the branch that was not meant."""
    rows = list(error.errors(include_url=False))
    out = []
    for e in rows:
        loc = e["loc"]
        if (
            loc
            and loc[0] == "model"
            and len(loc) > 1
            and loc[1] == "str"
            and any(r["loc"][:2] == ("model", "InlineModel") and r["type"] != "model_type" for r in rows)
        ):
            continue
        if "model" in loc[:1] and len(loc) > 1 and loc[1] == "InlineModel" and e["type"] == "model_type":
            continue
        if loc and loc[0] == "strategies" and len(loc) > 2 and str(loc[2]).startswith("literal"):
            continue
        out.append(e)
    return out or rows


def _clean(loc: tuple[Any, ...]) -> tuple[Any, ...]:
    """A location without pydantic's union branch names."""
    return tuple(
        x
        for x in loc
        if not (
            isinstance(x, str) and (x in {"Strategy", "InlineModel", "str"} or x.startswith(("literal[", "function-")))
        )
    )


def _issue(*, error: dict[str, Any], data: Any, file: str) -> Issue:
    loc = _clean(error["loc"])
    path = ".".join(str(x) for x in loc)
    nearest: tuple[str, ...] = ()
    message = str(error["msg"]).removeprefix("Value error, ")
    code = str(error["type"])
    if code == "extra_forbidden":
        code, key = "unknown_key", str(loc[-1])
        nearest = tuple(difflib.get_close_matches(key, _keys_at(loc[:-1]), n=3, cutoff=0.4))
        message = f"unknown key {key!r}"
    elif code == "unknown_name":
        nearest = tuple(error["ctx"]["nearest"])
    elif code == "missing":
        message = f"{loc[-1]!r} is needed"
    elif code == "literal_error":
        expected = [x.strip(" '\"") for x in str(error["ctx"]["expected"]).replace(" or ", ", ").split(",")]
        nearest = tuple(difflib.get_close_matches(str(error["input"]), expected, n=3, cutoff=0.3))
        message = f"{error['input']!r} is not one of {', '.join(expected)}"
    elif code == "model_type" and len(loc) == 2 and loc[0] == "strategies":
        code, written = "strategy", error["input"]
        message = f"a strategy is a mapping of settings or the word auto (got {_short(written)})"
        nearest = tuple(difflib.get_close_matches(str(written), ["auto"], n=1, cutoff=0.4))
    else:
        message = f"{message} (got {_short(error.get('input'))})"
    return Issue(code, file, line_of(data, loc), path, message, nearest)


def _short(value: Any) -> str:
    """What was written, cut to a length that a message can carry."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _keys_at(loc: tuple[Any, ...]) -> list[str]:
    """Field names of the block at a location."""
    block: Any = Scenario
    for key in loc:
        if block is Scenario and key == "strategies":
            block = dict
        elif block is dict:
            block = Strategy
        else:
            field = block.model_fields.get(key) if isinstance(block, type) and issubclass(block, BaseModel) else None
            found = _model_in(field.annotation) if field else None
            if found is None:
                return []
            block = found
    return list(block.model_fields) if isinstance(block, type) and issubclass(block, BaseModel) else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for arg in getattr(annotation, "__args__", ()):
        found = _model_in(arg)
        if found:
            return found
    return None


def _beside(value: Any, *, file: str) -> Any:
    """A relative config.json is looked for beside the scenario where the working folder has none."""
    if not isinstance(value, str) or not value.endswith(".json"):
        return value
    beside = Path(file).parent / value
    try:
        return str(beside) if not Path(value).exists() and beside.exists() else value
    except (OSError, ValueError):
        return value


def _measured_beside(cluster: Any, *, file: str) -> None:
    """As for a config.json: a measured fabric's file may lie beside the scenario."""
    fabric = cluster.get("fabric") if isinstance(cluster, dict) else None
    if isinstance(fabric, str):
        cluster["fabric"] = _beside(fabric, file=file)
    elif isinstance(fabric, dict) and "measured" in fabric:
        fabric["measured"] = _beside(fabric["measured"], file=file)


def _model(*, value: Any, data: Any, file: str) -> tuple[ModelSpec | None, list[Issue]]:
    """The model's shape; None where it cannot be known."""
    line = line_of(data, ("model",))
    try:
        if isinstance(value, str):
            return model_spec(value), []
        if isinstance(value, Mapping):
            return InlineModel.model_validate(value).spec(), []
    except CatalogError as error:
        return None, [Issue("unknown_name", file, line, "model", error.reason, error.nearest)]
    except ValidationError:
        return None, []  # pydantic's own pass over the scenario names every field
    except OSError as error:
        return None, [Issue("model_file", file, line, "model", f"cannot read {value}: {error.strerror}")]
    except ValueError as error:
        return None, [Issue("model_file", file, line, "model", str(error))]
    return None, []


def _node(*, data: Any, file: str) -> tuple[NodeSpec | None, list[Issue]]:
    """The node type; None where the name is missing or unknown."""
    cluster = data.get("cluster")
    name = cluster.get("node") if isinstance(cluster, Mapping) else None
    if not isinstance(name, str):
        return None, []
    try:
        return catalog.node(name), []
    except CatalogError as error:
        line = line_of(data, ("cluster", "node"))
        return None, [Issue("unknown_name", file, line, "cluster.node", error.reason, error.nearest)]


def _part_issues(*, cluster: Cluster, own: NodeSpec, data: Any, file: str) -> list[Issue]:
    """Node types of a mixed fleet that do not exist or cannot train along."""
    out = []
    named = [(key, i, part) for key in ("also", "stands_for") for i, part in enumerate(getattr(cluster, key))]
    for key, index, part in named:
        where = (file, line_of(data, ("cluster", key, index, "node")), f"cluster.{key}[{index}].node")
        try:
            reason = cluster.part_problem(own=own, other=catalog.node(part.node))
        except CatalogError as error:
            out.append(Issue("unknown_name", *where, error.reason, error.nearest))
            continue
        if reason:
            out.append(Issue("cluster", *where, reason))
    return out


def _known(kind: type[BaseModel], value: Any) -> dict[str, Any]:
    """Keys of a block that exist, so that a spelling error does not hide a layout error."""
    return {k: v for k, v in plain(value).items() if k in kind.model_fields} if isinstance(value, Mapping) else {}


def _part(kind: type[BaseModel], value: dict[str, Any]) -> Any:
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None


def _training_field(value: Any, key: str) -> int | None:
    """One number of the training block, read by itself: the others may be wrong."""
    found = _known(Training, value)
    if key not in found:
        return None
    part = _part(Training, {"tokens": 1, "sequence_length": 1, "global_batch_sequences": 1, key: found[key]})
    return None if part is None else int(getattr(part, key))


def _layout_issues(*, data: Any, file: str, model: ModelSpec | None, node: NodeSpec | None) -> list[Issue]:
    """Cluster and layout checks; on every strategy whose own fields are valid, whatever else is wrong."""
    out = []
    gpus = None
    fields = _known(Cluster, data.get("cluster"))
    cluster = _part(Cluster, fields) or _part(Cluster, {k: v for k, v in fields.items() if k in {"node", "nodes"}})
    if cluster is not None and node is not None:
        nodes = cluster.nodes + sum(part.nodes for part in cluster.also)
        gpus = nodes * (cluster.gpus_per_node_used or node.gpus_per_node)
        out += _part_issues(cluster=cluster, own=node, data=data, file=file)
        for key, message in cluster.problems(node):
            path = ("cluster", key)
            out.append(Issue("cluster", file, line_of(data, path), ".".join(path), message))
    strategies = data.get("strategies")
    batch = _training_field(data.get("training"), "global_batch_sequences")
    sequence = _training_field(data.get("training"), "sequence_length")
    for name, value in strategies.items() if isinstance(strategies, Mapping) else ():
        strategy = _part(Strategy, _known(Strategy, value)) if isinstance(value, Mapping) else None
        if strategy is None:
            continue
        for key, message, nearest in layout_problems(
            strategy=strategy, model=model, gpus=gpus, global_batch=batch, sequence=sequence
        ):
            loc = ("strategies", name, key)
            out.append(Issue("layout", file, line_of(data, loc), f"strategies.{name}.{key}", message, nearest))
    return out
