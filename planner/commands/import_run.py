"""`planner import-run`."""

import sys
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.commands.shared import InputProblem, Json, emit, error

Whole = Annotated[int | None, typer.Option(min=1)]


def import_run(
    log: Annotated[Path, typer.Argument(help="Training log, as the framework printed it, or JSON lines.")],
    model: Annotated[str, typer.Option(help="Preset, or path of a Hugging Face config.json.")],
    node: Annotated[str, typer.Option(help="Server type of the catalogue.")],
    nodes: Annotated[int, typer.Option(min=1, help="How many of them.")],
    out: Annotated[Path, typer.Option(help="CSV of runs: the row is added, one of the same id replaced.")],
    sequence: Annotated[int | None, typer.Option(min=1, help="Tokens a sequence.")] = None,
    global_batch: Annotated[int | None, typer.Option(min=1, help="Sequences a step.")] = None,
    micro_batch: Whole = None,
    tp: Whole = None,
    pp: Whole = None,
    vpp: Whole = None,
    cp: Whole = None,
    ep: Whole = None,
    zero_stage: Annotated[int | None, typer.Option(min=0, max=3)] = None,
    sequence_parallel: Annotated[bool | None, typer.Option("--sequence-parallel/--no-sequence-parallel")] = None,
    recompute: Annotated[str | None, typer.Option(help="none, selective or full.")] = None,
    precision: Annotated[str, typer.Option(help="bf16, fp16, fp8, ...")] = "bf16",
    framework: Annotated[str | None, typer.Option(help="As the log shows by default.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=1, help="GPUs used of each node; all by default.")] = None,
    year: Annotated[int | None, typer.Option(help="Age of the software; this year by default.")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Step lines dropped at each start; a fifth, max 5.")] = None,
    source: Annotated[str, typer.Option(help="Name of the cluster; one for all of its runs.")] = "own",
    id_: Annotated[str | None, typer.Option("--id", help="Name of the run; that of the log by default.")] = None,
    json_: Json = False,
) -> None:
    """Read a training log into one row for `planner fit --runs` and `planner validate --runs`."""
    from planner.validate.own_run import Place, row_of_run

    spec, server = _known(model=model, node=node)
    used = gpus_per_node or server.gpus_per_node
    if used > server.gpus_per_node:
        message = f"--gpus-per-node {used}: {server.name} has {server.gpus_per_node}"
        raise InputProblem([error(code="usage", message=message)])
    parallel = None if sequence_parallel is None else ("yes" if sequence_parallel else "no")
    stated = {"seq": sequence, "gbs": global_batch, "mbs": micro_batch, "tp": tp, "pp": pp, "vpp": vpp, "cp": cp}
    stated |= {"ep": ep, "zero_stage": zero_stage}
    words = {"sp": parallel, "recompute": recompute, "precision": precision, "framework": framework}
    texts = {k: str(v) for k, v in (stated | words).items() if v is not None}
    _check_words(texts)
    parsed, steps = _read(log, warmup=warmup)
    row = _or_problem(
        log,
        lambda: row_of_run(
            log=parsed,
            steps=steps,
            model=spec,
            place=Place(server, nodes, used),
            stated=texts,
            name=id_ or log.stem,
            source=source,
            year=year or date.today().year,
        ),
    )
    _add(out=out, row=row)
    sys.stderr.write(f"wrote {out}: {row['id']}, {row['metric']} {row['measured']} {row['unit']}; {row['notes']}\n")
    if json_:
        emit({"schema_version": 1, "row": row})


def _known(*, model: str, node: str) -> tuple[Any, Any]:
    from planner import catalog
    from planner.catalog.errors import CatalogError
    from planner.scenario.scenario import model_spec

    try:
        return model_spec(model), catalog.node(node)
    except CatalogError as problem:
        raise InputProblem([error(code="name", message=str(problem), nearest=list(problem.nearest))]) from problem
    except (OSError, ValueError) as problem:
        raise InputProblem([error(code="model", message=str(problem), file=model)]) from problem


def _check_words(texts: dict[str, str]) -> None:
    from planner.validate.setup import PRECISIONS

    for key, known in (("recompute", ["none", "selective", "full"]), ("precision", list(PRECISIONS))):
        if key in texts and texts[key] not in known:
            raise InputProblem([error(code="usage", message=f"--{key} {texts[key]!r} is not known", nearest=known)])


def _or_problem(log: Path, work: Any) -> Any:
    """The work's answer; a log that cannot be used becomes an error with file and line."""
    from planner.profile.training_log import LogError

    try:
        return work()
    except LogError as problem:
        raise InputProblem([error(code="log", message=str(problem), file=str(log)) | {"line": problem.line}]) from None
    except OSError as problem:
        message = f"cannot read {log}: {problem.strerror}"
        raise InputProblem([error(code="file", message=message, file=str(log))]) from problem


def _read(log: Path, *, warmup: int | None) -> tuple[Any, Any]:
    from planner.profile.training_log import parse_log, steady

    def work() -> tuple[Any, Any]:
        with log.open(encoding="utf-8", errors="replace", newline="\n") as file:
            parsed = parse_log(file)
        return parsed, steady(parsed, warmup=warmup)

    found: tuple[Any, Any] = _or_problem(log, work)
    return found


def _add(*, out: Path, row: dict[str, str]) -> None:
    from planner.validate.command import UnreadableRowsError, read_rows
    from planner.validate.own_run import csv_of_rows

    try:
        old = read_rows(out) if out.exists() else []
        rows = [r for r in old if r.get("id") != row["id"]]
        temporary = out.with_name(out.name + ".tmp")
        temporary.write_text(csv_of_rows([*rows, row]), "utf-8")
        temporary.replace(out)
    except (UnreadableRowsError, OSError, ValueError) as problem:
        raise InputProblem([error(code="rows", message=str(problem), file=str(out))]) from problem
