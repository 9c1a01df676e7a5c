"""The run clock's answer as text."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_run(*, document: Mapping[str, Any], title: str, console: Console) -> None:
    """Fan of finish dates, where time goes, interruptions by cause."""
    console.print(f"[bold]{title}[/bold]: {document['name']}")
    if not document["feasible"]:
        over = document["memory"].get("memory_over_gb")
        console.print(f"does not fit: {over:.1f} GB over; see planner forecast")
        return
    figures = Table(show_header=True)
    for column, justify in (("", "left"), ("P10", "right"), ("P50", "right"), ("P90", "right")):
        figures.add_column(column, justify=justify)  # type: ignore[arg-type]
    rows = (
        ("days", "days", 1.0, "{:.1f}"),
        ("goodput", "goodput", 100.0, "{:.1f} %"),
        ("interruptions", "interruptions", 1.0, "{:.0f}"),
        ("wasted GPU-hours", "wasted_gpu_hours", 1.0, "{:,.0f}"),
    )
    for label, key, scale, form in rows:
        block = document[key]
        figures.add_row(label, *(form.format(scale * block[q]) for q in ("p10", "p50", "p90")))
    console.print(figures)
    _shares(console, "where elapsed time goes", {"productive": document["goodput"]["mean"], **document["losses_frac"]})
    _causes(console, document["interruptions"]["by_cause"])
    interval = document["checkpoint_interval_s"]
    every = "never" if interval is None else f"every {interval / 60:.0f} min"
    console.print(f"checkpoint {every}, recovery {document['recovery_s'] / 60:.0f} min on average")
    goals = document["goals"]
    if goals["deadline_days"] is not None:
        console.print(f"late for the deadline of {goals['deadline_days']:g} days: {100 * goals['p_late']:.0f} %")
    if document["finished_frac"] < 1:
        console.print(
            f"{100 * (1 - document['finished_frac']):.1f} % of the runs were not through after four times the work's "
            "own duration: on such a cluster failures come faster than recovery"
        )
    console.print(f"{document['replications']} replications, seed {document['seed']}")


def _shares(console: Console, title: str, shares: Mapping[str, float]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("share")
    table.add_column("%", justify="right")
    for name, value in shares.items():
        if value >= 5e-5:
            table.add_row(name.replace("_", " "), f"{100 * value:.2f}")
    console.print(table)


def _causes(console: Console, causes: Mapping[str, float]) -> None:
    text = ", ".join(f"{name} {value:.1f}" for name, value in causes.items() if value >= 0.05)
    console.print(f"stops by cause (mean): {text or 'none'}")
