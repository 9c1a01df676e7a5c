"""The step as bars: which spans are drawn, and the Gantt chart of stages and streams; plain functions, no page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from planner.simulate.recorder import Span
from planner.ui.text import t

# One kind, one colour (Okabe-Ito), always; a bar that stands for spans of several kinds is "mixed".
KINDS: tuple[tuple[str, str], ...] = (
    ("forward", "#0072B2"),
    ("backward", "#D55E00"),
    ("weight", "#009E73"),
    ("optimizer", "#999999"),
    ("send", "#CC79A7"),
    ("gather", "#56B4E9"),
    ("reduce", "#E69F00"),
    ("mixed", "#882255"),
)
STREAMS = ("compute", "pipeline", "data parallel")
FIRST_LETTER = {"F": "forward", "B": "backward", "W": "weight", "o": "optimizer"}
MAX_STAGES = 16
MAX_BARS = 9000
LEGIBLE_SPANS = 2500
LANE_PX, SMALL_PX = 16, 10
MOSTLY_FRAC = 0.9


@dataclass(frozen=True, slots=True)
class Bar:
    """What is drawn: a span, or `count` neighbours too narrow to be told apart."""

    lane: str
    kind: str
    name: str
    start_s: float
    end_s: float
    busy_s: float
    count: int = 1


def kind_of(span: Span) -> str:
    """What a span is, from its stream and name."""
    stream = span.track.rpartition("/")[2]
    if stream == "compute":
        return FIRST_LETTER.get(span.name[:1], "mixed")
    if stream == "pipeline":
        return "send"
    return "gather" if span.name.startswith("gather") else "reduce"


def stages_shown(count: int) -> list[int]:
    """All stages, or MAX_STAGES of them with the first and the last, evenly apart."""
    if count <= MAX_STAGES:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MAX_STAGES - 1)) for i in range(MAX_STAGES)})


def by_lane(*, spans: Iterable[Span], stages: Sequence[int], streams: Sequence[str]) -> dict[str, list[Span]]:
    """Spans of the chosen stages and streams, by track in the order of drawing and in the order of time."""
    wanted = [f"stage {s}/{stream}" for s in stages for stream in STREAMS if stream in streams]
    lanes: dict[str, list[Span]] = {track: [] for track in wanted}
    for span in spans:
        if span.track in lanes:
            lanes[span.track].append(span)
    return {track: sorted(found, key=lambda s: s.start_s) for track, found in lanes.items() if found}


def bars(*, lanes: Mapping[str, Sequence[Span]], start_s: float, end_s: float) -> list[Bar]:
    """What falls into a window, neighbours joined where bars would be too narrow or too many to draw.

    A bar grows by the next span while the gap between them and one of the two are narrower than a grain, which is
    the window over its share of MAX_BARS; idle time of a grain or more stays visible.
    """
    grain = (end_s - start_s) * max(1, len(lanes)) / MAX_BARS
    out: list[Bar] = []
    for lane, spans in lanes.items():
        group: list[Span] = []
        for span in spans:
            if span.end_s <= start_s or span.start_s >= end_s:
                continue
            if group and not _joins(group[-1], group[0].start_s, span, grain):
                out.append(_bar(lane=lane, group=group, start_s=start_s, end_s=end_s))
                group = []
            group.append(span)
        if group:
            out.append(_bar(lane=lane, group=group, start_s=start_s, end_s=end_s))
    return out


def _joins(last: Span, begin_s: float, span: Span, grain: float) -> bool:
    narrow = min(last.end_s - begin_s, span.end_s - span.start_s) < grain
    return narrow and span.start_s - last.end_s < grain


def _bar(*, lane: str, group: Sequence[Span], start_s: float, end_s: float) -> Bar:
    begin, end = max(start_s, group[0].start_s), min(end_s, group[-1].end_s)
    if len(group) == 1:
        return Bar(lane, kind_of(group[0]), group[0].name, begin, end, end - begin)
    seconds: dict[str, float] = {}
    for span in group:
        kind = kind_of(span)
        seconds[kind] = seconds.get(kind, 0.0) + span.end_s - span.start_s
    busy = sum(seconds.values())
    most = max(seconds, key=lambda k: seconds[k])
    kind = most if seconds[most] >= MOSTLY_FRAC * busy else "mixed"
    return Bar(lane, kind, f"{group[0].name} … {group[-1].name}", begin, end, min(busy, end - begin), len(group))


def stage_rows(*, spans: Iterable[Span], stages: int, step_s: float, lang: str) -> list[dict[str, Any]]:
    """Share of the step that each stream of each stage is busy."""
    busy: dict[str, float] = {}
    for span in spans:
        busy[span.track] = busy.get(span.track, 0.0) + span.end_s - span.start_s
    return [
        {t("stage", lang): stage}
        | {t(f"stream.{s}", lang): busy.get(f"stage {stage}/{s}", 0.0) / step_s for s in STREAMS}
        for stage in range(stages)
    ]


def first_zoom(*, spans: int, zooms: Sequence[int]) -> int:
    """The least magnification at which a window holds few enough spans to be told apart."""
    return next((z for z in zooms if spans / z <= LEGIBLE_SPANS), zooms[-1])


def gantt_chart(
    *, found: Sequence[Bar], start_s: float, end_s: float, lang: str, window_s: tuple[float, float] | None = None
) -> Any:
    """Bars by stage and stream over time.

    Args:
        found: from `bars`.
        start_s: start of what is drawn.
        end_s: end of it.
        lang: language of the words.
        window_s: a part to mark, as in an overview; lanes are then thin and without legend.
    """
    scale, unit = (1e3, "ms") if end_s - start_s < 2 else (1.0, "s")
    small = window_s is not None
    lanes = dict.fromkeys(b.lane for b in found)
    words = {lane: _lane(lane, small=small, lang=lang) for lane in lanes}
    rows = [
        {"l": words[b.lane], "k": t(f"span.{b.kind}", lang), "n": b.name, "s": b.start_s * scale, "e": b.end_s * scale,
         "d": (b.end_s - b.start_s) * scale, "b": b.busy_s / max(1e-30, b.end_s - b.start_s), "c": b.count}
        for b in found
    ]  # fmt: skip
    seen = {b.kind for b in found}
    names = [t(f"span.{k}", lang) for k, _ in KINDS if k in seen]
    colours = [colour for k, colour in KINDS if k in seen]
    legend = None if small else alt.Legend(orient="top", columns=3, symbolType="square", labelLimit=105)
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(height=(SMALL_PX if small else LANE_PX) - 3)
        .encode(
            x=alt.X("s:Q", title=f"{t('axis_in_step', lang)} ({unit})",
                    scale=alt.Scale(domain=[start_s * scale, end_s * scale], nice=False), axis=alt.Axis(tickCount=5)),
            x2="e:Q",
            y=alt.Y("l:N", sort=list(words.values()), title=t("stage", lang) if small else None,
                    axis=alt.Axis(ticks=False, domain=False, labelLimit=120, labelFontSize=10, labelOverlap=small)),
            color=alt.Color("k:N", title=None, scale=alt.Scale(domain=names, range=colours), legend=legend),
            tooltip=[
                alt.Tooltip("l:N", title=t("stage", lang)),
                alt.Tooltip("k:N", title=t("part", lang)),
                alt.Tooltip("n:N", title=" "),
                alt.Tooltip("s:Q", title=f"{t('begin', lang)} ({unit})", format=".4~g"),
                alt.Tooltip("d:Q", title=f"{t('lasts', lang)} ({unit})", format=".4~g"),
                alt.Tooltip("b:Q", title=t("busy", lang), format=".0%"),
                alt.Tooltip("c:Q", title=t("spans", lang), format=",d"),
            ],
        )
    )  # fmt: skip
    if window_s is None:
        return chart.properties(height=alt.Step(LANE_PX))
    edges = [{"s": window_s[0] * scale, "e": window_s[1] * scale}]
    mark = alt.Chart(alt.Data(values=edges)).mark_rect(fill="#888888", fillOpacity=0.25, stroke="#888888")
    return alt.layer(chart, mark.encode(x="s:Q", x2="e:Q")).properties(height=alt.Step(SMALL_PX))


def _lane(lane: str, *, small: bool, lang: str) -> str:
    stage, _, stream = lane.removeprefix("stage ").rpartition("/")
    return stage if small else f"{stage} · {t(f'lane.{stream}', lang)}"
