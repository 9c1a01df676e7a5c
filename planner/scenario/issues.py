"""What is wrong with a scenario file, as data."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong with a scenario file.

    Attributes:
        code: short word for programs, e.g. unknown_key, duplicate_key, unknown_name, layout.
        line: line of the file, from 1; None where the problem has no place.
        path: keys from the top, joined by points.
        nearest: valid choices that resemble what was written, best first.
    """

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
