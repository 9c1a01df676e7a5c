"""The answer of a search as text: counts, axes, the best plans with why and what limits them."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console


def _plan(plan: Mapping[str, Any]) -> str:
    keys = (("tp", 1), ("pp", 1), ("vpp", 1), ("cp", 1), ("ep", 1), ("dp", 0))
    degrees = " ".join(f"{k} {plan[k]}" for k, plain in keys if plan.get(k, plain) != plain)
    overlap = plan.get("overlap") or {}
    hidden = "+".join(k for k in ("dp", "pp", "tp") if overlap.get(k))
    parts = [degrees, f"mbs {plan['micro_batch_sequences']}", f"ZeRO {plan['zero_stage']}", plan["schedule"]]
    parts += [f"recompute {plan['recompute']}", plan["precision"]]
    parts += ["SP"] if plan.get("sequence_parallel") else []
    return ", ".join(parts + ([f"overlap {hidden}"] if hidden else []))


def print_search(*, document: Mapping[str, Any], title: str, console: Console) -> None:
    """Print the search of a scenario."""
    d = document
    console.print(f"[bold]{title}[/bold]")
    axes = "; ".join(f"{k} {' '.join(map(str, v))}" for k, v in d["axes"].items() if len(v) > 1)
    console.print(f"axes: {axes}", style="dim")
    console.print(
        f"{d['plans_total']:,} plans: {d['plans_invalid']:,} do not exist, {d['plans_out_of_memory']:,} out of memory, "
        f"{d['plans_scored']:,} scored in {d['seconds']:.1f} s" + (" (interrupted)" if d["interrupted"] else "")
    )
    _lengths(document=d, console=console)
    if not d["best"]:
        console.print("no plan fits: more GPUs, more memory, a shorter sequence or a smaller model")
        return
    for i, row in enumerate(d["best"], 1):
        console.print(
            f"{i:2d}  {row['step_s']:.3g} s  {row['days']:.1f} days  {row['cost_usd']:,.0f} USD  "
            f"{row['memory_peak_gb']:.0f} GB  limited by {row['limited_by']}; {row['why']}"
        )
        console.print(f"    {_plan(row['plan'])}", style="dim")
    front = d["pareto"]
    console.print(f"{len(front)} plans on the front of time, money, headroom and risk (--json lists them), from")
    for row in (front[0], front[-1]) if len(front) > 1 else front:
        console.print(
            f"    {row['step_s']:.3g} s  {row['days']:.1f} days  {row['cost_usd']:,.0f} USD  "
            f"{row['headroom_gb']:.0f} GB left  risk {100 * row['risk']:.0f} %",
            style="dim",
        )


def _lengths(*, document: Mapping[str, Any], console: Console) -> None:
    """The longest sequence, tokens a second by length and the layouts that reach furthest."""
    if "sequence_length" not in document:
        return
    longest = document["sequence_length"]
    console.print(
        "not even the scenario's sequence fits" if longest is None else f"longest sequence: {longest:,} tokens"
    )
    for title, key in (("fastest plan of each length", "by_length"), ("layouts that reach furthest", "by_layout")):
        if document[key]:
            console.print(f"{title} (closed form):")
        for row in document[key]:
            console.print(
                f"{row['sequence_length']:>12,} tokens  {row['tokens_per_s']:>12,.0f} tokens/s  {_plan(row['plan'])}"
            )
    console.print("at the longest sequence:")
