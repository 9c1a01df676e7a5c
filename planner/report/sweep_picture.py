"""Scaling curves as a picture: one SVG, alone or inside a page with its table. No library, no script, no network."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from planner.report.sweep import CAUSE_WORDS, knee_text
from planner.report.units import percent, seconds, whole

WIDTH, PANEL, LEFT, RIGHT, TOP, BOTTOM = 900, 300, 64, 24, 44, 44
# Okabe-Ito, plus two: distinguishable with every common colour-vision deficiency.
CAUSE_COLOURS = {
    "bubble": "#CC79A7",
    "exposed_tp": "#D55E00",
    "exposed_dp": "#E69F00",
    "exposed_ep": "#882255",
    "exposed_cp": "#AA4499",
    "exposed_pp": "#F0E442",
    "batch_limit": "#000000",
    "layout": "#666666",
    "stragglers": "#44AA99",
    "launch": "#999999",
    "kernels": "#0072B2",
    "optimizer": "#009E73",
    "other": "#BBBBBB",
}
LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def svg(*, document: Mapping[str, Any], title: str) -> str:
    """Efficiency over GPUs (log2), one panel for each kind of scaling; a dot's colour is what holds the size back."""
    kinds = list(dict.fromkeys(c["kind"] for c in document["curves"]))
    names = list(dict.fromkeys(c["strategy"] for c in document["curves"]))
    causes = [k for k in CAUSE_COLOURS if any(p["cause"] == k for c in document["curves"] for p in c["points"])]
    rows = math.ceil(len(causes) / 4) + math.ceil(len(names) / 4)
    height = TOP + len(kinds) * PANEL + 24 + 20 * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(title, quote=True)}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
    ]
    for i, kind in enumerate(kinds):
        curves = [c for c in document["curves"] if c["kind"] == kind]
        parts += _panel(curves=curves, kind=kind, names=names, top=TOP + i * PANEL)
    parts += _legend(names=names, causes=causes, top=TOP + len(kinds) * PANEL + 8)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(*, curves: Sequence[Mapping[str, Any]], kind: str, names: Sequence[str], top: float) -> list[str]:
    points = [p for c in curves for p in c["points"]]
    if not points:
        return [f'<text x="{LEFT}" y="{top + 40}">{kind} scaling: no size of this range can be run</text>']
    low: float = min(p["gpus"] for p in points)
    high: float = max(p["gpus"] for p in points)
    ceiling: float = max(1.05, 1.05 * max(p["scaling_efficiency"] for p in points))

    def x(gpus: float) -> float:
        span = math.log2(high / low) or 1.0
        return LEFT + 10 + (WIDTH - LEFT - RIGHT - 40) * math.log2(gpus / low) / span

    def y(efficiency: float) -> float:
        return top + PANEL - BOTTOM - (PANEL - BOTTOM - 24) * efficiency / ceiling

    out = [f'<text x="{LEFT}" y="{top + 14}" font-weight="bold">{kind} scaling: efficiency over GPUs</text>']
    for k in range(math.floor(ceiling / 0.2) + 1):
        at = y(0.2 * k)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{20 * k} %</text>')
    ticks = sorted({p["gpus"] for p in points})
    for gpus in [g for i, g in enumerate(ticks) if i == 0 or x(g) - x(ticks[i - 1]) > 30]:
        out.append(f'<text x="{x(gpus):.1f}" y="{top + PANEL - BOTTOM + 18}" text-anchor="middle">{whole(gpus)}</text>')
    for curve in curves:
        out += _line(curve=curve, colour=LINE_COLOURS[names.index(curve["strategy"]) % len(LINE_COLOURS)], x=x, y=y)
    return out


def _line(*, curve: Mapping[str, Any], colour: str, x: Any, y: Any) -> list[str]:
    path = " ".join(f"{x(p['gpus']):.1f},{y(p['scaling_efficiency']):.1f}" for p in curve["points"])
    out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for p in curve["points"]:
        at, up = x(p["gpus"]), y(p["scaling_efficiency"])
        words = (
            f"{curve['strategy']}, {whole(p['gpus'])} GPUs: {percent(p['scaling_efficiency'])}, "
            f"step {seconds(p['step_s'])}, {CAUSE_WORDS[p['cause']]}"
        )
        out.append(
            f'<circle cx="{at:.1f}" cy="{up:.1f}" r="5" fill="{CAUSE_COLOURS[p["cause"]]}" stroke="{colour}" '
            f'stroke-width="2"><title>{escape(words)}</title></circle>'
        )
        if curve["knee"]["reached"] and p["gpus"] == curve["knee"]["gpus"]:
            out.append(
                f'<circle cx="{at:.1f}" cy="{up:.1f}" r="10" fill="none" stroke="{colour}" stroke-dasharray="3 2"/>'
                f'<text x="{at:.1f}" y="{up - 14:.1f}" text-anchor="middle" fill="{colour}">knee</text>'
            )
    return out


def _legend(*, names: Sequence[str], causes: Sequence[str], top: float) -> list[str]:
    out, cell = [], (WIDTH - LEFT - RIGHT) / 4
    for i, name in enumerate(names):
        at, up = LEFT + cell * (i % 4), top + 20 * (i // 4)
        colour = LINE_COLOURS[i % len(LINE_COLOURS)]
        out.append(f'<line x1="{at}" x2="{at + 20}" y1="{up + 8}" y2="{up + 8}" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{at + 26}" y="{up + 12}">{escape(name)}</text>')
    below = top + 20 * math.ceil(len(names) / 4)
    for i, cause in enumerate(causes):
        at, up = LEFT + cell * (i % 4), below + 20 * (i // 4)
        out.append(f'<circle cx="{at + 10}" cy="{up + 8}" r="5" fill="{CAUSE_COLOURS[cause]}"/>')
        out.append(f'<text x="{at + 26}" y="{up + 12}">{escape(CAUSE_WORDS[cause])}</text>')
    return out


def page(*, document: Mapping[str, Any], title: str) -> str:
    """A self-contained HTML page: the picture, each curve's knee and table, and the notes."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>',
        "<style>body{font-family:sans-serif;max-width:960px;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse;margin-bottom:2em}td,th{padding:.2em .8em;text-align:right}"
        "td:last-child,th:last-child{text-align:left}tr:nth-child(even){background:#f4f4f4}</style>",
        svg(document=document, title=title),
    ]
    for curve in document["curves"]:
        heading = f"{curve['strategy']}, {curve['kind']} scaling"
        parts.append(f"<h2>{escape(heading)}</h2><p>{escape(knee_text(curve))}</p><table>")
        heads = ("GPUs", "step", "efficiency", "what holds it back")
        parts.append("<tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>")
        for p in curve["points"]:
            cells = (
                whole(p["gpus"]),
                seconds(p["step_s"]),
                percent(p["scaling_efficiency"]),
                CAUSE_WORDS[p["cause"]],
            )
            parts.append("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
        parts.append("</table>")
    parts += [f"<p>Note: {escape(w)}</p>" for w in document["warnings"]]
    return "\n".join([*parts, "</html>"]) + "\n"


def write_picture(*, document: Mapping[str, Any], title: str, path: Path) -> None:
    """Write the picture as `.svg` or `.html`, by way of a temporary name.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written.
    """
    makers = {".svg": svg, ".html": page, ".htm": page}
    if path.suffix.lower() not in makers:
        raise ValueError(f"a picture ends in .svg or .html, not {path.suffix or path.name!r}")
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(makers[path.suffix.lower()](document=document, title=title), encoding="utf-8")
    temporary.replace(path)
