"""Pictures as inline SVG: stacked bars, intervals, curves and a log-log scatter; text labels, no scripts.

Colours are those of Okabe and Ito (2008) with one purple, told apart under every common colour-vision deficiency; every
curve has its own dash and every family of points its own mark, so that no picture rests on colour alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 760, 64, 24
INK, GRID, MUTED = "#222222", "#d9d9d9", "#5a5a5a"
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#882255", "#56B4E9", "#444444")
DASHES = ("", "7 4", "2 3", "10 3 2 3", "1 4", "12 5", "4 2", "6 2 2 2")
MARKS = ("circle", "square", "triangle", "diamond", "cross", "down")
DARK = {"#0072B2", "#882255", "#444444", "#D55E00", "#009E73"}
CHAR_PX = 6.6  # mean advance of the 12 px sans-serif face
Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a stacked bar: its words and its colour, the same in every picture."""

    words: str
    colour: str


def short(text: str, limit: int = 60) -> str:
    """A name cut to fit a picture."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def picture(*, body: Sequence[str], height: float, title: str) -> str:
    """An SVG element around its parts; `title` is what a screen reader says."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'font-family="sans-serif" font-size="12" fill="{INK}"><title>{escape(title)}</title>{"".join(body)}</svg>'
    )


def words(x: float, y: float, text: str, *, anchor: str = "start", fill: str = INK, bold: bool = False) -> str:
    """A line of text, escaped."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{weight}>{escape(text)}</text>'


def _centred(x: float, y: float, text: str, *, fill: str = INK, bold: bool = False) -> str:
    """Text centred on x, or as near as the picture's edges allow."""
    half = CHAR_PX * len(text) / 2
    return words(min(max(x, half), WIDTH - half), y, text, anchor="middle", fill=fill, bold=bold)


def _rule(x1: float, y1: float, x2: float, y2: float, *, stroke: str = GRID, dash: str = "", width: float = 1) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def _box(x: float, y: float, width: float, height: float, *, fill: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{fill}" stroke="#fff" '
        f'stroke-width="0.7"><title>{escape(title)}</title></rect>'
    )


def ticks(high: float, count: int = 5) -> list[float]:
    """Round numbers from zero to at least `high`, about `count` of them; `high` must be positive."""
    raw = high / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    return [i * step for i in range(math.ceil(high / step - 1e-9) + 1)]


def legend(*, entries: Sequence[tuple[str, str]], top: float) -> tuple[list[str], float]:
    """Swatches with words, wrapped; returns the parts and the y below them."""
    out, x, y = [], 0.0, top
    for text, swatch in entries:
        wide = 26 + CHAR_PX * len(text) + 16
        if x and x + wide > WIDTH:
            x, y = 0.0, y + 19
        out.append(f'<g transform="translate({x:.1f} {y:.1f})">{swatch}{words(22, 10, text)}</g>')
        x += wide
    return out, y + 22


def stacked_bars(
    *,
    rows: Sequence[tuple[str, Sequence[float]]],
    parts: Sequence[Part],
    show: Show,
    title: str,
    limits: Mapping[str, tuple[float, str]] | None = None,
) -> str:
    """One horizontal bar a row, cut into parts with their own words; `limits` puts a mark across a row's bar."""
    limits = limits or {}
    top_value = max([sum(v) for _, v in rows] + [limit for limit, _ in limits.values()] + [1e-12])
    scale = (WIDTH - 8) / top_value
    out: list[str] = []
    y = 14.0
    for name, values in rows:
        out.append(words(0, y, short(name), bold=True))
        limit = limits.get(name)
        note = show(sum(values)) + (f", {limit[1]} {show(limit[0])}" if limit else "")
        out.append(words(WIDTH, y, note, anchor="end"))
        x = 0.0
        for part, value in zip(parts, values, strict=True):
            wide = value * scale
            if wide < 0.4:
                continue
            label = f"{part.words} {show(value)}"
            out.append(_box(x, y + 6, wide, 26, fill=part.colour, title=f"{name}: {label}"))
            inside = next((t for t in (label, part.words) if len(t) * CHAR_PX + 8 < wide), None)
            if inside:
                out.append(words(x + 5, y + 23, inside, fill="#fff" if part.colour in DARK else INK))
            x += wide
        if limit:
            at = limit[0] * scale
            out.append(_rule(at, y + 2, at, y + 36, stroke=INK, dash="3 2", width=2))
        y += 56
    used = [p for i, p in enumerate(parts) if any(v[i] * scale >= 0.4 for _, v in rows)]
    swatches = [(p.words, _box(6, 0, 12, 12, fill=p.colour, title=p.words)) for p in used]
    drawn, bottom = legend(entries=swatches, top=y - 8)
    return picture(body=out + drawn, height=bottom, title=title)


def interval_bars(
    *,
    rows: Sequence[tuple[str, Mapping[str, float]]],
    show: Show,
    title: str,
    limit: tuple[float, str] | None = None,
) -> str:
    """P10 to P90 of each row as a bar with a tick at P50, on one axis from zero; `limit` is a goal."""
    high = max([b["p90"] for _, b in rows] + ([limit[0]] if limit else []) + [1e-12])
    marks = ticks(high)
    scale = (WIDTH - LEFT - RIGHT) / marks[-1]
    bottom = 20 + 50 * len(rows)
    out = []
    for mark in marks:
        x = LEFT + mark * scale
        out += [_rule(x, 4, x, bottom), _centred(x, bottom + 16, show(mark), fill=MUTED)]
    for i, (name, band) in enumerate(rows):
        y = 22.0 + 50 * i
        low, mid, top = (LEFT + band[k] * scale for k in ("p10", "p50", "p90"))
        text = f"{name}: {show(band['p50'])} ({show(band['p10'])} to {show(band['p90'])})"
        out.append(words(LEFT, y - 4, short(text, 100)))
        out.append(_box(low, y + 2, max(2.0, top - low), 18, fill=LINES[i % len(LINES)], title=text))
        out.append(_rule(mid, y - 1, mid, y + 23, stroke=INK, width=3))
    if limit:
        x = LEFT + limit[0] * scale
        out.append(_rule(x, 2, x, bottom, stroke=INK, dash="5 3", width=2))
        out.append(_centred(x, bottom + 32, f"{limit[1]} {show(limit[0])}", bold=True))
    return picture(body=out, height=bottom + (40 if limit else 24), title=title)


def chance_curves(
    *,
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    unit: str,
    title: str,
    limit: tuple[float, str] | None = None,
) -> str:
    """Chance (0 to 1) of being through by a value, one curve a name; points are (value, chance)."""
    values = [x for _, points in curves for x, _ in points] + ([limit[0]] if limit else [])
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05 * high or 1.0
    low, high = max(0.0, low - margin), high + margin
    top, bottom = 16.0, 280.0

    def at(value: float, chance: float) -> tuple[float, float]:
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), bottom - chance * (bottom - top)

    out = []
    for tenth in (0, 2, 4, 5, 6, 8, 9, 10):
        y = at(low, tenth / 10)[1]
        out += [_rule(LEFT, y, WIDTH - RIGHT, y), words(LEFT - 8, y + 4, f"{10 * tenth} %", anchor="end", fill=MUTED)]
    step = ticks(high - low)[1]
    for value in (step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)):
        x = at(value, 0)[0]
        out += [_rule(x, bottom, x, bottom + 5), words(x, bottom + 19, f"{value:.4g}", anchor="middle", fill=MUTED)]
    out.append(words(WIDTH / 2, bottom + 36, unit, anchor="middle"))
    if limit:
        x = at(limit[0], 0)[0]
        out += [
            _rule(x, top, x, bottom, stroke=INK, dash="5 3", width=2),
            words(x - 5, top + 10, limit[1], anchor="end"),
        ]
    entries = []
    for i, (name, points) in enumerate(curves):
        colour, dash = LINES[i % len(LINES)], DASHES[i % len(DASHES)]
        path = " ".join("{:.1f},{:.1f}".format(*at(x, p)) for x, p in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"{dashed}/>')
        entries.append((short(name), _rule(0, 6, 18, 6, stroke=colour, dash=dash, width=2.5)))
    drawn, end = legend(entries=entries, top=bottom + 48)
    return picture(body=out + drawn, height=end, title=title)


def mark_at(x: float, y: float, *, kind: str, colour: str, title: str = "", size: float = 4.0) -> str:
    """A point of a scatter."""
    s, hint = size, f"<title>{escape(title)}</title>" if title else ""
    shapes = {
        "square": f"M{-s} {-s}h{2 * s}v{2 * s}h{-2 * s}z",
        "triangle": f"M0 {-s * 1.2}L{s * 1.1} {s}H{-s * 1.1}z",
        "down": f"M0 {s * 1.2}L{s * 1.1} {-s}H{-s * 1.1}z",
        "diamond": f"M0 {-s * 1.3}L{s * 1.3} 0L0 {s * 1.3}L{-s * 1.3} 0z",
    }
    place = f'transform="translate({x:.1f} {y:.1f})"'
    if kind == "cross":
        path = f"M{-s} {-s}L{s} {s}M{-s} {s}L{s} {-s}"
        return f'<path {place} d="{path}" stroke="{colour}" stroke-width="2" fill="none">{hint}</path>'
    if kind == "circle":
        return f'<circle {place} r="{s}" fill="{colour}" fill-opacity="0.75">{hint}</circle>'
    return f'<path {place} d="{shapes[kind]}" fill="{colour}" fill-opacity="0.75">{hint}</path>'


@dataclass(frozen=True, slots=True)
class Spot:
    """One point of a scatter, both coordinates positive."""

    x: float
    y: float
    family: str
    text: str


def scatter(*, spots: Sequence[Spot], families: Sequence[str], axes: tuple[str, str], title: str) -> str:
    """Points on two equal log axes with the line of equality and 20 % to either side.

    Args:
        spots: at least one.
        families: all families in the order of their colours and marks; the legend names those that have a point.
        axes: words of x and y.
        title: what a screen reader says.
    """
    values = [v for s in spots for v in (s.x, s.y)]
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1
    top, bottom = 10.0, 470.0
    right = LEFT + (bottom - top) * 1.3

    def at(x: float, y: float) -> tuple[float, float]:
        share_x, share_y = ((math.log10(v) - low) / (high - low) for v in (x, y))
        return LEFT + share_x * (right - LEFT), bottom - share_y * (bottom - top)

    out = [
        f'<rect x="{LEFT}" y="{top}" width="{right - LEFT:.1f}" height="{bottom - top}" fill="none" stroke="{GRID}"/>'
    ]
    steps = (1, 2, 5) if high - low < 2.2 else (1,)
    for value in (m * 10.0**p for p in range(math.floor(low), math.ceil(high) + 1) for m in steps):
        if low <= math.log10(value) <= high:
            x, y = at(value, value)
            out += [_rule(x, top, x, bottom), _rule(LEFT, y, right, y)]
            out.append(words(x, bottom + 16, f"{value:g}", anchor="middle", fill=MUTED))
            out.append(words(LEFT - 6, y + 4, f"{value:g}", anchor="end", fill=MUTED))
    ends = (10**low, 10**high)
    for factor, dash in ((1.0, ""), (1.2, "4 4"), (1 / 1.2, "4 4")):
        first, last = max(ends[0], ends[0] / factor), min(ends[1], ends[1] / factor)
        out.append(_rule(*at(first, first * factor), *at(last, last * factor), stroke=MUTED, dash=dash, width=1.2))
    out.append(words((LEFT + right) / 2, bottom + 34, axes[0], anchor="middle"))
    out.append(
        f'<g transform="translate(14 {(top + bottom) / 2}) rotate(-90)">{words(0, 0, axes[1], anchor="middle")}</g>'
    )
    for s in spots:
        style = families.index(s.family)
        colour, kind = LINES[style % len(LINES)], MARKS[style % len(MARKS)]
        out.append(mark_at(*at(s.x, s.y), kind=kind, colour=colour, title=s.text))
    entries = [
        (short(f), mark_at(8, 6, kind=MARKS[i % len(MARKS)], colour=LINES[i % len(LINES)], size=5))
        for i, f in enumerate(families)
        if any(s.family == f for s in spots)
    ]
    drawn, end = legend(entries=entries, top=bottom + 46)
    return picture(body=out + drawn, height=end, title=title)
