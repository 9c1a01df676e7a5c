"""The answer of `planner size` as text."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.report.units import days, dollars, percent, seconds

UNITS = {
    "deadline_days": ("deadline", "{:,.1f} days"),
    "budget_usd": ("budget", "{:,.0f} USD"),
    "power_kw": ("power", "{:,.0f} kW"),
    "rack_kw": ("power of a rack", "{:,.1f} kW"),
    "max_interruptions": ("interruptions", "{:,.1f}"),
}


def print_size(*, document: Mapping[str, Any], title: str, console: Console) -> None:
    """Goals, the recommended cluster and what it must bring, or what to relax; then what else was looked at."""
    console.print(f"[bold]{title}[/bold]")
    _goals(console, document["goals"])
    if not document["fits"]:
        console.print("no cluster of the parts looked at holds the model: name a part with more memory by --gpu")
        return
    recommended, smallest = document["recommended"], document["smallest"]
    if not document["feasible"]:
        alone = all(row["alone"] for row in document["relax"])
        console.print(f"[bold]no cluster meets the goals[/bold]; relax {'one' if alone else 'all'} of:")
        for row in document["relax"]:
            name, form = UNITS[row["constraint"]]
            console.print(
                f"  {name} to {form.format(row['to'])} (by {form.format(row['by'])}): {_cluster(row['result'])}"
            )
    if recommended is not None:
        console.print(f"{'cheapest' if document['feasible'] else 'nearest'}: [bold]{_cluster(recommended)}[/bold]")
        _details(console, recommended, document)
    if smallest is not None and _cluster(smallest) != _cluster(recommended):
        console.print(
            f"smallest: {_cluster(smallest)}, {days(smallest['days']['p50'])}, {dollars(smallest['cost_usd']['p50'])}"
        )
    _required(console, document)
    _options(console, document["options"])


def _cluster(found: Mapping[str, Any]) -> str:
    tenure = {"own": "bought"}.get(found["tenure"], found["tenure"].replace("_", " "))
    place = "" if found["tenure"] == "own" else f", {found['provider']}"
    return f"{found['nodes']} x {found['node']} ({found['gpus']:,} {found['gpu']}){place}, {tenure}"


def _goals(console: Console, goals: Mapping[str, Any]) -> None:
    stated = [f"{UNITS[k][0]} {UNITS[k][1].format(goals[k])}" for k in UNITS if goals[k] is not None]
    console.print(f"goals: {', '.join(stated) or 'none'}, with probability {goals['probability']:g}")
    if goals["missing"]:
        text = "; ".join(f"{UNITS.get(k, (k,))[0]}: {v}" for k, v in goals["assumed"].items())
        console.print(f"not stated, taken as: {text}")


def _details(console: Console, found: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    span, cost, plan = found["days"], found["cost_usd"], found["plan"]
    degrees = " ".join(f"{k}{plan[k]}" for k in ("tp", "pp", "vpp", "dp", "cp", "ep") if plan[k] > 1) or "one GPU"
    budget = document["p_budget"]
    console.print(
        f"  {days(span['p50'])} ({days(span['p10'])} to {days(span['p90'])}), in time with probability "
        f"{document['p_deadline']:.2f}"
    )
    inside = "" if budget is None else f", inside the budget with probability {budget:.2f}"
    console.print(f"  {dollars(cost['p50'])} ({dollars(cost['p10'])} to {dollars(cost['p90'])}){inside}")
    console.print(
        f"  plan {degrees}, ZeRO {plan['zero_stage']}, micro-batch {plan['micro_batch_sequences']}, "
        f"{plan['schedule']}, recompute {plan['recompute']}, {plan['precision']}: "
        f"step {seconds(found['step_s']['p50'])}, MFU {percent(found['mfu'])}, goodput {percent(found['goodput'])}"
    )
    fabric = found["fabric"]
    console.print(
        f"  fabric {fabric['kind']}, {fabric['node_gb_per_s']:g} GB/s a node, {fabric['switches']} switches, "
        f"{fabric['links']:,} links; {found['price']['usd_per_gpu_hour']:.2f} USD per GPU-hour"
    )
    if found["tenure"] != "on_demand" and found["tenure"] != "spot":
        console.print(f"  used {percent(found['used_frac'])} of the time that is paid")
    for text in found["warnings"]:
        console.print(f"  note: {text}")


def _required(console: Console, document: Mapping[str, Any]) -> None:
    knee, required = document["knee"], document["required"]
    if required is None:
        return
    console.print(
        f"needs {required['power_kw']:,.0f} kW, {required['racks']} racks, {required['spare_nodes']} spare nodes (of "
        f"the provider where rented), checkpoints written at {required['storage_write_gb_per_s']:.2f} GB/s"
    )
    console.print(
        "no knee within sixteen times its size"
        if knee is None
        else f"scales to {knee['gpus']:,} GPUs at {percent(knee['efficiency'])} efficiency, then {knee['cause']}"
    )
    table = Table(title="measure before paying", title_justify="left")
    table.add_column("test")
    table.add_column("", justify="right")
    table.add_column("forecast", justify="right")
    for row in document["acceptance"]:
        sign = "at least" if row["rule"] == "at_least" else "at most"
        table.add_row(row["test"], f"{sign} {row['value']:.4g} {row['unit']}", f"{row['forecast']:.4g}")
    console.print(table)


def _options(console: Console, options: list[Mapping[str, Any]]) -> None:
    table = Table(title="cheapest of each source, those that meet the goals first", title_justify="left")
    for column in ("cluster", "days", "cost", "kW"):
        table.add_column(column, justify="left" if column == "cluster" else "right")
    for row in options:
        table.add_row(_cluster(row), days(row["days"]), dollars(row["cost_usd"]), f"{row['power_kw']:,.0f}")
    console.print(table)
