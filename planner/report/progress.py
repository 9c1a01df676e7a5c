"""A run that is going, as text: plan against actual, what the log taught, the new end."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

WORDS = {
    "step_s": "step time",
    "tokens_per_day": "tokens a day",
    "goodput": "goodput",
    "stopped_frac": "time in unexpected stops",
    "planned_frac": "time in planned stops",
    "preempted_frac": "time preempted",
    "lost_work_frac": "time on work that was lost",
    "interruptions": "unexpected stops",
    "recovery_s": "time to recover",
    "cost_usd": "spend",
    "cost_usd_per_million_tokens": "spend a million tokens",
}


def print_progress(*, document: Mapping[str, Any], title: str, console: Console) -> None:
    """Print the answer of `planner run --from`."""
    log = document["log"]
    console.print(f"[bold]{title}[/bold]: {document['name']}")
    if log["from"] is None:
        console.print(f"{log['periods']} measured steps, no dates\n")
    else:
        console.print(
            f"{log['periods']} periods from {log['from']} to {log['to']}: {log['tokens']:.3g} tokens, "
            f"{100 * log['done_frac']:.1f} % of the run in {log['days']:.1f} days\n"
        )
    console.print(_comparison(document))
    console.print(_refit(document["refit"]))
    console.print(_end(document))
    for line in _goals(document["goals"]):
        console.print(line)
    if document["not_told"]:
        console.print("\n[bold]what the log cannot tell[/bold]")
        for sentence in document["not_told"]:
            console.print(f"  - {sentence}")
    console.print(f"\n{document['replications']} replications of what is left, seed {document['seed']}")


def figure(*, value: float | None, unit: str) -> str:
    """A figure in words of its unit."""
    if value is None:
        return "-"
    if unit == "s":
        return f"{value:.4g} s" if value < 600 else f"{value / 60:.0f} min"
    if unit == "1":
        return f"{100 * value:.2f} %"
    if unit == "count":
        return f"{value:.1f}" if value != round(value) else f"{value:.0f}"
    if unit == "USD":
        return f"{value:,.0f} USD" if value >= 100 else f"{value:.3g} USD"
    return f"{value:.3g}"


def _table(*columns: str) -> Table:
    table = Table(title=columns[0], title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    table.add_column("")
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _comparison(document: Mapping[str, Any]) -> Table:
    table = _table("Plan against actual", "plan", "P10-P90", "actual", "")
    for row in document["plan_against_actual"]:
        key, unit = row["key"], row["unit"]
        words = WORDS.get(key) or f"  {key.partition('.')[2]}"
        band = (
            ""
            if row["p10"] is None
            else f"{figure(value=row['p10'], unit=unit)} - {figure(value=row['p90'], unit=unit)}"
        )
        judged = {True: "inside", False: "OUTSIDE", None: ""}[row["inside"]]
        table.add_row(words, figure(value=row["plan"], unit=unit), band, figure(value=row["actual"], unit=unit), judged)
    return table


def _refit(refit: Mapping[str, Any]) -> Table:
    table = _table("What the log taught (P10 - P50 - P90)", "before", "after", "factor", "band narrower by")
    for key, words in (
        ("step_s", "step time"),
        ("failures_per_day", "unexpected stops a day"),
        ("recovery_s", "time to recover"),
    ):
        block = refit[key]
        bands = (
            " - ".join(figure(value=block[side][q], unit=block["unit"]) for q in ("p10", "p50", "p90"))
            for side in ("prior", "posterior")
        )
        table.add_row(words, *bands, f"x {block['factor']:.3f}", f"{100 * block['told_frac']:.0f} %")
    pauses, price = refit["pause_frac"], refit["usd_per_gpu_hour"]
    for words, block, form in (
        ("pauses of a running job", pauses, "{:.2%}"),
        ("price of a GPU-hour", price, "{:.2f} USD"),
    ):
        after = "as planned" if block["fitted"] is None else form.format(block["fitted"])
        table.add_row(words, form.format(block["planned"]), after, "", "")
    return table


def _end(document: Mapping[str, Any]) -> Table:
    table = _table("The end", "P10", "P50", "P90")
    planned = document["planned"]
    quantiles = ("p10", "p50", "p90")
    if document["finish_date"] is not None:
        table.add_row("finish date as planned", *(planned["finish_date"][q][:10] for q in quantiles))
        table.add_row("finish date now", *(document["finish_date"][q][:10] for q in quantiles))
    table.add_row("days as planned", *(f"{planned['days'][q]:.1f}" for q in quantiles))
    table.add_row("days now", *(f"{document['days'][q]:.1f}" for q in quantiles))
    table.add_row("  of them left", *(f"{document['days_left'][q]:.1f}" for q in quantiles))
    table.add_row("cost as planned", *(f"{planned['cost_usd_total'][q]:,.0f} USD" for q in quantiles))
    table.add_row("cost now", *(f"{document['cost_usd_total'][q]:,.0f} USD" for q in quantiles))
    return table


def _goals(goals: Mapping[str, Any]) -> list[str]:
    out = []
    for key, words, chance in (
        ("deadline_days", "deadline of {:g} days", "p_late"),
        ("budget_usd", "budget of {:,.0f} USD", "p_over_budget"),
    ):
        if goals[key] is not None:
            missed = goals[chance] > 1 - goals["probability"]
            verdict = "[red]missed[/red]" if missed else "kept"
            kept = f"held with probability {1 - goals[chance]:.2f}, asked {goals['probability']:.2f}"
            out.append(f"{words.format(goals[key])}: {verdict}, {kept}")
    return out
