"""`planner fit`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.commands.shared import InputProblem, Json, emit, error


def fit(
    runs: Annotated[Path, typer.Option(help="CSV of your own measured runs, columns of `planner validate --runs`.")],
    out: Annotated[Path, typer.Option(help="Site file to write; name it under cluster.site of a scenario.")],
    json_: Json = False,
) -> None:
    """Find the few constants by which your cluster differs, from runs that you logged."""
    from planner.validate.command import UnreadableRowsError, read_rows
    from planner.validate.runs import fit_rows

    try:
        site, used = fit_rows(rows=read_rows(runs), name=runs.stem)
    except (UnreadableRowsError, ValueError) as problem:
        raise InputProblem([error(code="rows", message=str(problem), file=str(runs))]) from problem
    temporary = out.with_name(out.name + ".tmp")
    temporary.write_text(site.model_dump_json(indent=2) + "\n", "utf-8")
    temporary.replace(out)
    sys.stderr.write(f"wrote {out}: {used} runs\n")
    if json_:
        emit(site.model_dump(mode="json"))
    else:
        sys.stdout.write(
            f"kernels x {site.compute_factor:.3f} (+-{100 * site.compute_sigma:.0f} %), exposed communication x "
            f"{site.network_factor:.2f} (+-{100 * site.network_sigma:.0f} %), launch gaps x {site.host_factor:.2f} "
            f"(+-{100 * site.host_sigma:.0f} %); runs scatter by {100 * site.residual_sigma:.1f} % around it\n"
        )
