"""What each kind of work is worth over micro-batch sizes, as a table, a page block and a picture."""

import math
from collections.abc import Callable, Mapping
from typing import Any
from xml.sax.saxutils import escape

from rich import box
from rich.console import Console
from rich.table import Table

from planner.report.units import seconds

WIDTH, HEIGHT, LEFT, TOP, RIGHT = 780, 420, 64, 48, 170
INK, GRID, SHADE = "#222222", "#d9d9d9", "#f3e9d2"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#a0522d", "#000000")
BOUND = {"launch": "launch", "kernel": "kernel"}


def _cell(worth: Mapping[str, Any] | None) -> str:
    if worth is None or worth["gain_frac"] is None:
        return "-"
    text = f"{round(100 * worth['gain_frac']):d} %"
    return f"({text})" if worth["held"] else text


def _turn(document: Mapping[str, Any]) -> str:
    knee = document["knee"]
    if knee is not None:
        return (
            f"launch-bound up to micro-batch {knee['launch_bound_until']}, kernel-bound from "
            f"{knee['micro_batch_sequences']} on"
        )
    causes = {p["cause"] for p in document["points"] if p["fits"]}
    return f"bound by {' and '.join(BOUND[c] for c in sorted(causes))} at every size" if causes else "no size fits"


def print_crossover(*, document: Mapping[str, Any], title: str, console: Console) -> None:
    """One column a micro-batch: the step, who holds it, and below the share that each kind of work saves."""
    points = document["points"]
    table = Table(show_edge=False, pad_edge=False, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("micro-batch", no_wrap=True)
    for p in points:
        table.add_column(str(p["micro_batch_sequences"]), justify="right")

    def row(name: str, cell: Callable[[Mapping[str, Any]], str], *, section: bool = False) -> None:
        table.add_row(name, *(cell(p) if p["fits"] else "-" for p in points), end_section=section)

    row("step", lambda p: seconds(p["step_s"]))
    row("MFU", lambda p: f"{100 * p['mfu']:.0f} %")
    row("held by", lambda p: BOUND[p["cause"]])
    row("GPU idles", lambda p: f"{100 * p['launch_frac']:.0f} %")
    row("recompute", lambda p: p["recompute"], section=True)
    for work in document["works"]:
        row(work["name"], lambda p, name=work["name"]: _cell(p["worth"].get(name)))  # type: ignore[misc]
    console.print(f"[bold]{title}[/bold], strategy {document['strategy']}: share of the step that each would save")
    console.print(table)
    console.print(_turn(document))
    console.print("In brackets: the strategy has it; share of the step without it that it saves.")
    if any(w["behind"] for w in document["works"]):
        behind = "; ".join(f"{w['name']} behind {', '.join(w['behind'])}" for w in document["works"] if w["behind"])
        console.print(f"On top of others: {behind}.")


def crossover_table(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Block of a page: one row a model and micro-batch."""
    names = [w["name"] for w in next(iter(documents.values()))["works"]]
    lines = ["| model, micro-batch | step | held by | " + " | ".join(names) + " |", "|---" * (len(names) + 3) + "|"]
    for title, document in documents.items():
        for p in document["points"]:
            place = f"{title}, {p['micro_batch_sequences']}"
            if not p["fits"]:
                lines.append(f"| {place} | - | does not fit |" + " - |" * len(names))
                continue
            cells = " | ".join(_cell(p["worth"].get(name)) for name in names)
            bound = f"{BOUND[p['cause']]} ({100 * p['launch_frac']:.0f} % idle)"
            lines.append(f"| {place} | {seconds(p['step_s'])} | {bound} | {cells} |")
    return "\n".join(lines)


def crossover_svg(*, document: Mapping[str, Any], title: str) -> str:
    """Worth over micro-batch (logarithmic), a curve a kind of work, launch-bound sizes shaded; self-contained SVG."""
    points = [p for p in document["points"] if p["fits"]]
    gains = {
        w["name"]: [
            (p["micro_batch_sequences"], p["worth"][w["name"]]["gain_frac"])
            for p in points
            if p["worth"][w["name"]]["gain_frac"] is not None
        ]
        for w in document["works"]
    }
    sizes = [p["micro_batch_sequences"] for p in document["points"]]
    low, high = math.log2(min(sizes)), max(math.log2(max(sizes)), math.log2(min(sizes)) + 1)
    every = [g for curve in gains.values() for _, g in curve] or [0.0]
    top = max(0.1, math.ceil(10 * max(every)) / 10)
    bottom = min(0.0, math.floor(10 * min(every)) / 10)

    def at(size: float, gain: float) -> tuple[float, float]:
        x = LEFT + (math.log2(size) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return x, TOP + (top - gain) / (top - bottom) * (HEIGHT - TOP - 56)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="12" fill="{INK}"><title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>',
    ]
    bound = [p["micro_batch_sequences"] for p in points if p["cause"] == "launch"]
    if bound:
        (x0, y0), (x1, y1) = at(min(sizes), top), at(min(max(sizes), max(bound) * math.sqrt(2)), bottom)
        out.append(f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}" fill="{SHADE}"/>')
        out.append(f'<text x="{x0 + 6:.1f}" y="{y0 + 16:.1f}">launch-bound</text>')
    out.append(f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}: share of the step saved</text>')
    ticks = round(10 * (top - bottom))
    for i in range(0, ticks + 1, 1 if ticks <= 8 else 2):
        gain = bottom + i / 10
        y = at(min(sizes), gain)[1]
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * gain:.0f} %</text>')
    for size in sizes:
        x = at(size, bottom)[0]
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - 34}" text-anchor="middle">{size}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    out.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">micro-batch, sequences</text>')
    for i, (name, curve) in enumerate((n, c) for n, c in gains.items() if c):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*at(size, gain)) for size, gain in curve)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for size, gain in curve:
            x, y = at(size, gain)
            label = escape(f"{name}: micro-batch {size}, {100 * gain:.0f} %")
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{label}</title></circle>')
        out.append(f'<text x="{WIDTH - RIGHT + 14}" y="{TOP + 12 + 18 * i}" fill="{colour}">{escape(name)}</text>')
    return "".join(out) + "</svg>\n"
