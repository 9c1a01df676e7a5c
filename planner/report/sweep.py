"""Terminal table of scaling curves. Values come from the result document; nothing is computed here."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.report.units import days, percent, seconds, whole

CAUSE_WORDS = {
    "bubble": "pipeline bubble",
    "exposed_tp": "tensor-parallel wait",
    "exposed_dp": "data-parallel wait",
    "exposed_ep": "expert-parallel wait",
    "exposed_cp": "context-parallel wait",
    "exposed_pp": "pipeline transfer wait",
    "batch_limit": "batch limit",
    "layout": "indivisible layout",
    "stragglers": "stragglers",
    "launch": "launch gap (host)",
    "kernels": "kernels",
    "optimizer": "optimizer",
    "other": "other",
}


def knee_text(curve: Mapping[str, Any]) -> str:
    """The knee of a curve in one sentence."""
    knee = curve["knee"]
    if knee is None:
        return "no size of this range can be run"
    share = percent(knee["threshold"])
    if not knee["reached"]:
        return f"stays above {share} up to {whole(knee['gpus'])} GPUs: {percent(knee['scaling_efficiency'])}"
    return (
        f"knee at {whole(knee['gpus'])} GPUs (last with at least {share}); beyond it: {CAUSE_WORDS[knee['cause']]}; "
        f"the curve bends most at {whole(knee['bend_gpus'])}"
    )


def _table(*, curve: Mapping[str, Any]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("GPUs", "working", "step", "time", "efficiency"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held back by", no_wrap=True)
    for p in curve["points"]:
        table.add_row(
            whole(p["gpus"]),
            whole(p["used_gpus"]),
            seconds(p["step_s"]),
            days(p["days_ideal"]),
            percent(p["scaling_efficiency"]),
            CAUSE_WORDS[p["cause"]],
        )
    return table


def print_sweep(*, document: Mapping[str, Any], title: str, console: Console) -> None:
    """Print a table for every curve, and the sizes that cannot be run."""
    console.print(f"[bold]{title}[/bold]\n")
    for curve in document["curves"]:
        console.print(f"[bold]{curve['strategy']}, {curve['kind']} scaling:[/bold] {knee_text(curve)}", highlight=False)
        console.print(_table(curve=curve))
        reasons: dict[str, list[str]] = {}
        for miss in curve["infeasible"]:
            reasons.setdefault(miss["reason"].split(" needs more than ")[0], []).append(whole(miss["gpus"]))
        for reason, sizes in reasons.items():
            console.print(f"  not on {', '.join(sizes)} GPUs: {reason}", highlight=False)
        console.print()
    for warning in document["warnings"]:
        console.print(f"[yellow]note[/yellow] {warning}")
