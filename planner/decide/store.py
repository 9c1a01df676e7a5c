"""Results in a file: one part a finished task while a job runs, one file when it is through.

`FILE.parts/KEY.parquet` (or `.jsonl`) is written under another name and renamed, so a part is there whole or not at
all. The parts become FILE in the order of the tasks and go away. Every row names its task; the first line of JSON
lines, or the metadata `planner` of Parquet, says what job it was.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner import SCHEMA_VERSION, __version__
from planner.decide.spread import SpreadError, Table

ENDINGS = (".parquet", ".jsonl")
TASK = "task"
JOB = "_job.json"  # readers of a folder of Parquet files pass over names with an underscore


class Store:
    """The file of a job and its parts."""

    def __init__(self, *, path: Path, kinds: Mapping[str, str], identity: Mapping[str, Any]) -> None:
        """Open it.

        Args:
            path: ends in .parquet or .jsonl.
            kinds: column -> float, int, str, bool or floats (a list).
            identity: what the results depend on.

        Raises:
            SpreadError: another ending, no pyarrow, another job's file, or no place to write.
        """
        if path.suffix not in ENDINGS or path.is_dir():
            raise SpreadError(f"results go to a file that ends in {' or '.join(ENDINGS)}, not {path.name!r}")
        self.path = path
        self.parts = path.with_name(path.name + ".parts")
        self.identity = json.dumps(
            {"schema_version": SCHEMA_VERSION, "planner": __version__, **identity}, sort_keys=True
        )
        self.format: _JsonLines | _Parquet = (_Parquet if path.suffix == ".parquet" else _JsonLines)(
            kinds={TASK: "str", **kinds}, identity=self.identity
        )
        try:
            self._check_identity()
            self.parts.mkdir(parents=True, exist_ok=True)
            self._replace(self.parts / JOB, lambda path: path.write_text(self.identity + "\n", "utf-8"))
        except OSError as problem:
            raise SpreadError(f"cannot write {path}: {problem.strerror}") from problem

    def _check_identity(self) -> None:
        found = []
        if self.path.is_file():
            found.append((self.path, self.format.identity_of(self.path)))
        if (self.parts / JOB).is_file():
            found.append((self.parts, (self.parts / JOB).read_text("utf-8").strip()))
        for place, identity in found:
            if identity != self.identity:
                raise SpreadError(
                    f"{place} holds another job ({_difference(identity, self.identity)}); name another --out, or "
                    f"remove it"
                )

    @staticmethod
    def _replace(path: Path, write: Any) -> None:
        temporary = path.with_name(path.name + ".tmp")
        write(temporary)
        temporary.replace(path)

    def done(self, keys: Iterable[str]) -> dict[str, Table]:
        """Tables of those tasks that the file or a part holds."""
        wanted = set(keys)
        found = {k: t for k, t in self._whole() if k in wanted}
        for key in wanted - set(found):
            part = self._part(key)
            if part.is_file():
                found[key] = _without_task(self.format.read(part))
        if wanted <= set(found) and self.path.is_file():
            shutil.rmtree(self.parts)
        return found

    def _whole(self) -> Iterator[tuple[str, Table]]:
        if self.path.is_file():
            yield from _split(self.format.read(self.path))

    def _part(self, key: str) -> Path:
        return self.parts / f"{key}{self.path.suffix}"

    def put(self, key: str, table: Table) -> None:
        """Keep a finished task."""
        rows = len(next(iter(table.values())))
        whole = {TASK: [key] * rows, **table}
        try:
            self._replace(self._part(key), lambda path: self.format.write(path, [whole]))
        except OSError as problem:
            raise SpreadError(f"cannot write {self._part(key)}: {problem.strerror}") from problem

    def finish(self, keys: Sequence[str]) -> None:
        """All tasks in one file: those of this job in order, then others that the file or parts hold."""
        before = {k: {TASK: [k] * len(next(iter(t.values()))), **t} for k, t in self._whole()}
        kept = [p.name.removesuffix(self.path.suffix) for p in sorted(self.parts.glob(f"*{self.path.suffix}"))]
        order = list(dict.fromkeys([*keys, *before, *kept]))

        def tables() -> Iterator[Table]:
            for key in order:
                yield before[key] if key in before else self.format.read(self._part(key))

        try:
            self._replace(self.path, lambda path: self.format.write(path, tables()))
            shutil.rmtree(self.parts)
        except OSError as problem:
            raise SpreadError(f"cannot write {self.path}: {problem.strerror}") from problem


def _difference(found: str, wanted: str) -> str:
    try:
        a, b = json.loads(found), json.loads(wanted)
    except ValueError:
        return "of an unknown kind"
    keys = [k for k in {**a, **b} if a.get(k) != b.get(k)]
    return ", ".join(f"{k} {a.get(k)!r} and not {b.get(k)!r}" for k in sorted(keys))


def _without_task(table: Table) -> Table:
    return {k: v for k, v in table.items() if k != TASK}


def _split(table: Table) -> Iterator[tuple[str, Table]]:
    """Tables by task; the rows of a task stand together."""
    keys = table[TASK]
    first = 0
    for end in range(1, len(keys) + 1):
        if end == len(keys) or keys[end] != keys[first]:
            yield keys[first], {k: v[first:end] for k, v in table.items() if k != TASK}
            first = end


class _JsonLines:
    """One object a row; the first line is the identity."""

    def __init__(self, *, kinds: Mapping[str, str], identity: str) -> None:
        self.kinds, self.identity = kinds, identity

    def identity_of(self, path: Path) -> str:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline().strip()

    def write(self, path: Path, tables: Iterable[Table]) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.write(self.identity + "\n")
            for table in tables:
                columns = [_plain(table[c]) for c in self.kinds]
                for row in zip(*columns, strict=True):
                    file.write(json.dumps(dict(zip(self.kinds, row, strict=True)), allow_nan=False) + "\n")

    def read(self, path: Path) -> dict[str, list[Any]]:
        with path.open(encoding="utf-8") as file:
            file.readline()
            rows = [json.loads(line) for line in file]
        return {c: [row[c] for row in rows] for c in self.kinds}


def _plain(column: Any) -> list[Any]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


class _Parquet:
    """One row group a task; the identity is in the metadata `planner`."""

    def __init__(self, *, kinds: Mapping[str, str], identity: str) -> None:
        try:
            import pyarrow as arrow
        except ImportError as problem:
            raise SpreadError(
                "a .parquet file needs an extra: pip install 'cluster-planner[parquet]'; a .jsonl file needs none"
            ) from problem
        of = {
            "float": arrow.float64(),
            "int": arrow.int64(),
            "str": arrow.string(),
            "bool": arrow.bool_(),
            "floats": arrow.list_(arrow.float64()),
        }
        self.schema = arrow.schema([(c, of[k]) for c, k in kinds.items()], metadata={"planner": identity})

    def identity_of(self, path: Path) -> str:
        from pyarrow import ArrowException, parquet

        try:
            return str((parquet.read_schema(path).metadata or {}).get(b"planner", b"").decode())
        except ArrowException:
            return ""

    def write(self, path: Path, tables: Iterable[Table]) -> None:
        import pyarrow as arrow
        from pyarrow import parquet

        with parquet.ParquetWriter(path, self.schema) as writer:
            for table in tables:
                columns = [arrow.array(_plain(table[f.name]), type=f.type) for f in self.schema]
                writer.write_table(arrow.Table.from_arrays(columns, schema=self.schema))

    def read(self, path: Path) -> dict[str, list[Any]]:
        from pyarrow import parquet

        return dict(parquet.read_table(path).to_pydict())
