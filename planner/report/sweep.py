"""Scaling curves as a table and as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH, HEIGHT, LEFT, TOP = 720, 380, 64, 40
INK, GRID, CURVES = "#222222", "#d9d9d9", (("points", "strong", "#0072b2"), ("weak", "weak", "#d55e00"))


def print_sweep(*, document: Mapping[str, Any], title: str, console: Console) -> None:
    """Strong and weak scaling beside each other, then the knees."""
    table = Table(show_edge=False, pad_edge=False)
    for column in ("GPUs", "strong step", "efficiency", "cause", "weak step", "efficiency", "cause"):
        table.add_column(column, justify="left" if column == "cause" else "right")
    weak = {p["gpus"]: p for p in document["weak"]}
    strong = {p["gpus"]: p for p in document["points"]}
    for gpus in sorted(strong | weak):
        table.add_row(f"{gpus:,}", *_cells(strong.get(gpus)), *_cells(weak.get(gpus)))
    console.print(f"[bold]{title}[/bold], strategy {document['strategy']}")
    console.print(table)
    for key, name in (("knee", "strong"), ("weak_knee", "weak")):
        knee = document[key]
        text = "no knee in this range" if knee is None else f"knee at {knee['gpus']:,} GPUs: {knee['cause']}"
        console.print(f"{name} scaling: {text}")


def _cells(point: Mapping[str, Any] | None) -> tuple[str, str, str]:
    if point is None:
        return "-", "-", ""
    if not point["fits"]:
        return f"{point['step_s']:.3g} s", "-", "does not fit"
    return f"{point['step_s']:.3g} s", f"{100 * point['scaling_efficiency']:.0f} %", point["cause"]


def sweep_svg(*, document: Mapping[str, Any], title: str) -> str:
    """Efficiency over GPUs (logarithmic), both curves, the knee marked; self-contained SVG."""
    import math
    from xml.sax.saxutils import escape

    every = [p["gpus"] for key, _, _ in CURVES for p in document[key]]
    low, high = math.log2(min(every)), max(math.log2(max(every)), math.log2(min(every)) + 1)

    def at(gpus: float, efficiency: float) -> tuple[float, float]:
        x = LEFT + (math.log2(gpus) - low) / (high - low) * (WIDTH - LEFT - 24)
        return x, TOP + (1 - min(1.1, efficiency) / 1.1) * (HEIGHT - TOP - 56)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="12" fill="{INK}"><title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}: scaling efficiency</text>',
    ]
    for tenth in range(0, 11, 2):
        y = at(min(every), tenth / 10)[1]
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 24}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tenth * 10} %</text>')
    for gpus in sorted(set(every)):
        x = at(gpus, 0)[0]
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - 34}" text-anchor="middle">{gpus}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">GPUs</text>')
    for i, (key, name, colour) in enumerate(CURVES):
        points = [p for p in document[key] if p["fits"]]
        path = " ".join("{:.1f},{:.1f}".format(*at(p["gpus"], p["scaling_efficiency"])) for p in points)
        dash = ' stroke-dasharray="6 4"' if i else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>')
        for p in points:
            x, y = at(p["gpus"], p["scaling_efficiency"])
            label = escape(f"{name}: {p['gpus']} GPUs, {100 * p['scaling_efficiency']:.0f} %, {p['cause']}")
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{label}</title></circle>')
        out.append(f'<text x="{WIDTH - 150}" y="{14 + 16 * i}" fill="{colour}">{name} scaling</text>')
    return "".join(out) + "</svg>\n"


def write_picture(*, path: Path, svg: str) -> None:
    """Write an SVG, or an HTML page around it by the name's ending."""
    html = f"<!doctype html><html lang=en><meta charset=utf-8><title>scaling</title><body>{svg}</body></html>\n"
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(html if path.suffix in {".html", ".htm"} else svg, "utf-8")
    temporary.replace(path)
