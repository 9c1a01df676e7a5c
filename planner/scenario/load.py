"""Reading a scenario file: all errors at once, each with file, line, path, reason and nearest valid choice."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from planner import catalog
from planner.catalog.errors import CatalogError
from planner.catalog.types import ModelSpec
from planner.scenario.layout_checks import layout_problems
from planner.scenario.scenario import Scenario
from planner.scenario.strategy import Strategy

MAX_BYTES = 1 << 20
MAX_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong with a scenario file."""

    code: str
    file: str
    line: int | None
    path: str
    message: str
    nearest: tuple[str, ...] = ()


class ScenarioError(ValueError):
    """Everything that is wrong with a scenario file."""

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(sorted(issues, key=lambda i: (i.line or 0, i.path)))
        super().__init__("; ".join(f"{i.file}:{i.line}: {i.path}: {i.message}" for i in self.issues))


def load_scenario(path: str | Path) -> Scenario:
    """Read and check a scenario file.

    Raises:
        ScenarioError: with every problem found.
        OSError: the file cannot be read.
    """
    place = Path(path)
    if place.stat().st_size > MAX_BYTES:
        raise ScenarioError([Issue("size", str(path), None, "", f"larger than {MAX_BYTES} bytes")])
    return parse_scenario(place.read_text("utf-8", errors="replace"), file=str(path))


def parse_scenario(text: str, *, file: str = "<text>") -> Scenario:
    """Check a scenario given as YAML text.

    Raises:
        ScenarioError: with every problem found.
    """
    data = _read_yaml(text=text, file=file)
    issues: list[Issue] = []
    scenario: Scenario | None = None
    try:
        scenario = Scenario.model_validate(_plain(data))
    except ValidationError as error:
        issues += [_issue(error=dict(e), data=data, file=file) for e in _meaningful(error)]
    issues += _name_issues(data=data, file=file)
    issues += _layout_issues(data=data, file=file, scenario=scenario)
    if issues or scenario is None:
        raise ScenarioError(issues)
    return scenario


def _read_yaml(*, text: str, file: str) -> Any:
    if len(text.encode()) > MAX_BYTES:
        raise ScenarioError([Issue("size", file, None, "", f"larger than {MAX_BYTES} bytes")])
    yaml = YAML(typ="rt")
    yaml.allow_duplicate_keys = False
    try:
        # Aliases are refused before construction: nested ones grow without bound.
        _refuse_aliases(text=text, file=file)
        data = yaml.load(StringIO(text))
    except ScenarioError:
        raise
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        key = str(error.problem).split('"')[1] if '"' in str(error.problem) else ""
        raise ScenarioError([Issue("duplicate_key", file, line, key, f"key {key!r} is given twice")]) from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise ScenarioError(
            [Issue("yaml", file, line, "", str(error.problem or error.context or "not YAML"))]
        ) from error
    except (YAMLError, RecursionError, ValueError) as error:
        raise ScenarioError([Issue("yaml", file, None, "", f"not YAML: {type(error).__name__}")]) from error
    if not isinstance(data, Mapping):
        raise ScenarioError(
            [Issue("yaml", file, 1, "", "a scenario is a mapping of keys; model, cluster and training are needed")]
        )
    return data


def _refuse_aliases(*, text: str, file: str) -> None:
    from ruamel.yaml.events import AliasEvent, MappingEndEvent, MappingStartEvent, SequenceEndEvent, SequenceStartEvent

    depth = 0
    for event in YAML(typ="rt").parse(StringIO(text)):
        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent):
            raise ScenarioError([Issue("alias", file, line, "", "YAML aliases are not accepted")])
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise ScenarioError([Issue("depth", file, line, "", f"nested deeper than {MAX_DEPTH} levels")])
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            depth -= 1


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else str(value) if isinstance(value, str) else value


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


def _line(data: Any, loc: tuple[Any, ...]) -> int | None:
    node, line = data, None
    for key in loc:
        if isinstance(node, Mapping) and key in node:
            line = node.lc.key(key)[0] + 1 if hasattr(node, "lc") else line
            node = node[key]
        elif isinstance(node, list) and isinstance(key, int) and key < len(node):
            line = node.lc.item(key)[0] + 1 if hasattr(node, "lc") else line
            node = node[key]
        else:
            return line or (node.lc.line + 1 if hasattr(node, "lc") else None)
    return line


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
    elif code == "missing":
        message = f"{loc[-1]!r} is needed"
    elif code == "literal_error":
        expected = [x.strip(" '\"") for x in str(error["ctx"]["expected"]).replace(" or ", ", ").split(",")]
        nearest = tuple(difflib.get_close_matches(str(error["input"]), expected, n=3, cutoff=0.3))
        message = f"{error['input']!r} is not one of {', '.join(expected)}"
    else:
        message = f"{message} (got {error.get('input')!r})"
    return Issue(code, file, _line(data, loc), path, message, nearest)


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


def _name_issues(*, data: Any, file: str) -> list[Issue]:
    """Names that the catalogue does not hold."""
    out = []
    cluster = data.get("cluster")
    if isinstance(cluster, Mapping) and isinstance(cluster.get("node"), str):
        try:
            catalog.node(cluster["node"])
        except CatalogError as error:
            out.append(
                Issue("unknown_name", file, _line(data, ("cluster", "node")), "cluster.node", str(error), error.nearest)
            )
    name = data.get("model")
    if isinstance(name, str):
        try:
            _spec(name)
        except CatalogError as error:
            out.append(Issue("unknown_name", file, _line(data, ("model",)), "model", str(error), error.nearest))
        except (OSError, ValueError) as error:
            out.append(Issue("model_file", file, _line(data, ("model",)), "model", str(error)))
    return out


def _spec(name: str) -> ModelSpec:
    if name.endswith(".json"):
        from planner.catalog.huggingface import model_from_file

        return model_from_file(name)
    return catalog.model(name)


def _part(kind: type[BaseModel], value: Any) -> Any:
    try:
        return kind.model_validate(_plain(value))
    except ValidationError:
        return None


def _layout_issues(*, data: Any, file: str, scenario: Scenario | None) -> list[Issue]:
    """Layout checks on every strategy whose own fields are valid, whatever else is wrong."""
    from planner.scenario.cluster import Cluster
    from planner.scenario.model import InlineModel
    from planner.scenario.training import Training

    try:
        model = (
            scenario.model_spec
            if scenario
            else (
                _spec(data["model"])
                if isinstance(data.get("model"), str)
                else InlineModel.model_validate(_plain(data.get("model"))).spec()
            )
        )
    except (CatalogError, ValidationError, ValueError, OSError):
        model = None
    cluster, training = _part(Cluster, data.get("cluster")), _part(Training, data.get("training"))
    gpus = None
    if cluster is not None:
        try:
            gpus = cluster.nodes * (cluster.gpus_per_node_used or catalog.node(cluster.node).gpus_per_node)
        except CatalogError:
            gpus = None
    out = []
    strategies = data.get("strategies")
    for name, value in strategies.items() if isinstance(strategies, Mapping) else ():
        strategy = _part(Strategy, value) if isinstance(value, Mapping) else None
        if strategy is None:
            strategy = _lenient(value)
        if strategy is None:
            continue
        for key, message in layout_problems(
            strategy=strategy,
            model=model,
            gpus=gpus,
            global_batch=training.global_batch_sequences if training else None,
            sequence=training.sequence_length if training else None,
        ):
            loc = ("strategies", name, key) if isinstance(value, Mapping) and key in value else ("strategies", name)
            out.append(Issue("layout", file, _line(data, loc), f"strategies.{name}.{key}", message))
    return out


def _lenient(value: Any) -> Strategy | None:
    """A strategy without its unknown keys, so that a spelling error does not hide a layout error."""
    if not isinstance(value, Mapping):
        return None
    found: Strategy | None = _part(Strategy, {k: v for k, v in value.items() if k in Strategy.model_fields})
    return found
