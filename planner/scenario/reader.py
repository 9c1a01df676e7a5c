"""YAML text to a tree with line numbers, with everything refused that could hurt the reader."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from planner.scenario.issues import Issue, ScenarioError

MAX_BYTES = 1 << 20
MAX_DEPTH = 20


def read_yaml(*, text: str, file: str) -> tuple[Mapping[Any, Any], list[Issue]]:
    """The tree, and the keys given twice (of which the tree keeps one).

    Raises:
        ScenarioError: no tree can be made: too large, not YAML, aliases, too deep, or no mapping.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ScenarioError([Issue("size", file, None, "", f"larger than {MAX_BYTES} bytes")])
    # A byte-order mark is how some editors sign a file; YAML would read it as part of the first key.
    text = text.removeprefix("\ufeff")
    yaml = YAML(typ="rt")
    yaml.allow_duplicate_keys = True
    try:
        # Before construction: nested aliases grow without bound, and a duplicate would end the reading.
        duplicates = _scan(text=text, file=file)
        data = yaml.load(StringIO(text))
    except ScenarioError:
        raise
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        message = str(error.problem or error.context or "not YAML")
        raise ScenarioError([Issue("yaml", file, line, "", message)]) from error
    except (YAMLError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        # ruamel lets some wrong tags and numbers out as plain Python errors.
        raise ScenarioError([Issue("yaml", file, None, "", f"not YAML: {type(error).__name__}")]) from error
    if not isinstance(data, Mapping):
        message = "a scenario is a mapping of keys; model, cluster and training are needed"
        raise ScenarioError([Issue("yaml", file, 1, "", message)])
    return data, duplicates


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is open while events are read."""

    mapping: bool
    path: str
    seen: dict[str, int] = field(default_factory=dict)
    key: str | None = None
    count: int = 0

    def enter(self) -> str:
        """Path of the value that begins now."""
        name = self.key if self.mapping else str(self.count)
        self.key, self.count = None, self.count + 1
        return f"{self.path}.{name}" if self.path else str(name)


def _scan(*, text: str, file: str) -> list[Issue]:
    duplicates: list[Issue] = []
    stack: list[_Frame] = []
    for event in YAML(typ="rt").parse(StringIO(text)):
        line = event.start_mark.line + 1
        top = stack[-1] if stack else None
        at_key = top is not None and top.mapping and top.key is None
        if isinstance(event, AliasEvent):
            raise ScenarioError([Issue("alias", file, line, "", "YAML aliases are not accepted")])
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            if at_key:
                raise ScenarioError([Issue("key", file, line, "", "a key must be a word")])
            stack.append(_Frame(isinstance(event, MappingStartEvent), top.enter() if top else ""))
            if len(stack) > MAX_DEPTH:
                raise ScenarioError([Issue("depth", file, line, "", f"nested deeper than {MAX_DEPTH} levels")])
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            stack.pop()
        elif isinstance(event, ScalarEvent) and top is not None:
            if at_key:
                duplicates += _note_key(frame=top, key=str(event.value), line=line, file=file)
            else:
                top.enter()
    return duplicates


def _note_key(*, frame: _Frame, key: str, line: int, file: str) -> list[Issue]:
    frame.key = key
    if key not in frame.seen:
        frame.seen[key] = line
        return []
    path = f"{frame.path}.{key}" if frame.path else key
    return [Issue("duplicate_key", file, line, path, f"key {key!r} is given twice (first on line {frame.seen[key]})")]


def plain(value: Any) -> Any:
    """The tree without ruamel's types; a date becomes its ISO text, as if it had been quoted."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value.isoformat() if isinstance(value, date) else value


def line_of(data: Any, loc: tuple[Any, ...]) -> int | None:
    """Line of a location, or of the nearest block around it that exists."""
    node = data
    line: int | None = None
    for key in loc:
        if isinstance(node, Mapping) and key in node:
            line = node.lc.key(key)[0] + 1 if hasattr(node, "lc") else line
        elif isinstance(node, list) and isinstance(key, int) and key < len(node):
            line = node.lc.item(key)[0] + 1 if hasattr(node, "lc") else line
        else:
            break
        node = node[key]
    if line is None and hasattr(data, "lc"):
        return int(data.lc.line) + 1
    return line
