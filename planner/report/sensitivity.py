"""The answer of `planner sensitivity` as text."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

BAR = 8  # characters of the widest bar


def print_sensitivity(*, document: Mapping[str, Any], title: str, console: Console) -> None:
    """Band, tornado with its indices, the next measurement, flips."""
    value, unit = document["value"], document["unit"]
    console.print(f"[bold]{title}[/bold], strategy {document['strategy']}: {document['metric']}")
    console.print(
        f"{value['forecast']:,.4g} {unit} forecast; {value['p10']:,.4g} to {value['p90']:,.4g} with all of it uncertain"
    )
    _tornado(console, document)
    following = document["measure_next"]
    if following is not None:
        console.print(
            f"measure next: [bold]{following['input']}[/bold] ({following['how']}); the P10-P90 width goes from "
            f"{following['width_before']:,.3g} to {following['width_after']:,.3g} {unit}"
        )
    verdict = document["verdict"]
    if verdict is not None:
        console.print(f"verdict on cost: {verdict['choice']}")
    for flip in document["flips_at"]:
        far = f" ({abs(flip['sigmas']):.1f} standard deviations away)" if "sigmas" in flip else ""
        console.print(f"  flips at {flip['value']:,.4g}: {flip['input']}{far}")


def _tornado(console: Console, document: Mapping[str, Any]) -> None:
    inputs = {r["input"]: r for r in document["inputs"]}
    indices = {r["input"]: r for r in document["sobol"]}
    widest = max(abs(r["high"] - r["low"]) for r in document["tornado"])
    table = Table(show_edge=False, pad_edge=False)
    for column in ("input", "P10 to P90", "gives", "", "first", "total"):
        table.add_column(
            column,
            justify="left" if column in {"input", ""} else "right",
            no_wrap=column not in {"input", "P10 to P90"},
        )
    for row in document["tornado"]:
        about, index = inputs[row["input"]], indices[row["input"]]
        table.add_row(
            row["input"].replace("_", " "),
            f"{about['p10']:.3g} to {about['p90']:.3g} {about['unit'].replace('per 1000 node-days', '/1000 node-d')}",
            f"{row['low']:,.3g} to {row['high']:,.3g}",
            "█" * max(1, round(BAR * abs(row["high"] - row["low"]) / widest)),
            f"{index['first']:.2f}",
            f"{index['total']:.2f}",
        )
    console.print(table)
