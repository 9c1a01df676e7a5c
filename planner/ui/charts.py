"""Chart specifications from result documents: plain functions, no page in sight."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from planner.report.units import percent
from planner.ui.text import t
from planner.ui.units import Shown

# Okabe-Ito, plus one purple: distinguishable with every common colour-vision deficiency. One part, one colour, always.
TIME_PARTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("matmul", ("compute_matmul",), "#0072B2"),
    ("attention", ("compute_attention",), "#56B4E9"),
    ("memory_bound", ("compute_memory_bound",), "#009E73"),
    ("tp", ("exposed_tp",), "#D55E00"),
    ("pp", ("exposed_pp",), "#F0E442"),
    ("dp", ("exposed_dp",), "#E69F00"),
    ("cp_ep", ("exposed_cp", "exposed_ep"), "#882255"),
    ("bubble", ("bubble",), "#CC79A7"),
    ("rest", ("launch_gap", "optimizer", "straggler", "other"), "#999999"),
)
MEMORY_PARTS: tuple[tuple[str, str], ...] = (
    ("weights", "#0072B2"),
    ("gradients", "#56B4E9"),
    ("optimizer", "#009E73"),
    ("activations", "#E69F00"),
    ("buffers", "#CC79A7"),
    ("reserved", "#999999"),
)
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
VISIBLE_FRAC = 1e-4
BAR, STEP = 26, 44


def time_rows(*, documents: Mapping[str, Mapping[str, Any]], lang: str) -> list[dict[str, Any]]:
    """One row per strategy and visible part of its step."""
    rows = []
    for name, doc in documents.items():
        step = doc["step_s"]["p50"]
        for order, (part, keys, _) in enumerate(TIME_PARTS):
            value = sum(doc["breakdown_s"].get(k, 0.0) for k in keys)
            if value > VISIBLE_FRAC * step:
                label = t(f"time.{part}", lang)
                rows.append(
                    {"strategy": name, "part": label, "value": value, "share": percent(value / step), "order": order}
                )
    return rows


def memory_rows(*, documents: Mapping[str, Mapping[str, Any]], lang: str) -> list[dict[str, Any]]:
    """One row per strategy and part of its fullest GPU."""
    rows = []
    for name, doc in documents.items():
        block = doc["memory_gb"]
        for order, (part, _) in enumerate(MEMORY_PARTS):
            share = percent(block[part] / block["capacity"])
            rows.append(
                {
                    "strategy": name,
                    "part": t(f"memory.{part}", lang),
                    "value": block[part],
                    "share": share,
                    "order": order,
                }
            )
    return rows


def _bars(
    *,
    rows: list[dict[str, Any]],
    names: Sequence[str],
    domain: list[str],
    colours: list[str],
    axis: str,
    unit: str,
    lang: str,
) -> alt.Chart:
    shown = [d for d in domain if any(r["part"] == d for r in rows)]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(size=BAR, stroke="white", strokeWidth=0.6)
        .encode(
            y=alt.Y(
                "strategy:N", sort=list(names), title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=110)
            ),
            x=alt.X("value:Q", stack="zero", title=axis, axis=alt.Axis(tickCount=5, grid=True)),
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=domain, range=colours),
                legend=alt.Legend(
                    orient="bottom", columns=2, values=shown, symbolType="square", symbolStrokeWidth=0, labelLimit=170
                ),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("strategy:N", title=t("strategy", lang)),
                alt.Tooltip("part:N", title=t("part", lang)),
                alt.Tooltip("value:Q", title=unit, format=".3~g"),
                alt.Tooltip("share:N", title=t("share", lang)),
            ],
        )
    )


def breakdown_chart(*, documents: Mapping[str, Mapping[str, Any]], lang: str) -> alt.Chart:
    """Stacked bars of the step, one a strategy."""
    rows = time_rows(documents=documents, lang=lang)
    return _bars(
        rows=rows,
        names=list(documents),
        domain=[t(f"time.{part}", lang) for part, _, _ in TIME_PARTS],
        colours=[colour for _, _, colour in TIME_PARTS],
        axis=t("axis_step", lang),
        unit="s",
        lang=lang,
    ).properties(height=alt.Step(STEP))


def memory_chart(*, documents: Mapping[str, Mapping[str, Any]], lang: str, shown: Shown = Shown()) -> Any:
    """Stacked bars of the fullest GPU, with a rule at its capacity."""
    rows = [r | {"value": shown.bytes_value(r["value"])} for r in memory_rows(documents=documents, lang=lang)]
    bars = _bars(
        rows=rows,
        names=list(documents),
        domain=[t(f"memory.{part}", lang) for part, _ in MEMORY_PARTS],
        colours=[colour for _, colour in MEMORY_PARTS],
        axis=t("axis_memory", lang, unit=shown.memory),
        unit=shown.memory,
        lang=lang,
    )
    limit = max(doc["memory_gb"]["capacity"] for doc in documents.values())
    text = t("capacity", lang, gb=shown.gigabytes(limit))
    mark = alt.Chart(alt.Data(values=[{"limit": shown.bytes_value(limit), "text": text}]))
    rule = mark.mark_rule(color="#D55E00", strokeWidth=2, strokeDash=[5, 3]).encode(x="limit:Q", tooltip=["text:N"])
    tallest = max(doc["memory_gb"]["peak"] + doc["memory_gb"]["reserved"] for doc in documents.values())
    near_left = limit < tallest / 2
    words = mark.mark_text(
        align="left" if near_left else "right",
        baseline="bottom",
        dx=2 if near_left else -2,
        dy=-4,
        color="#D55E00",
        fontWeight="bold",
    ).encode(x="limit:Q", y=alt.value(0), text="text:N")
    return alt.layer(bars, rule, words).properties(height=alt.Step(STEP))


def scaling_chart(*, points: Sequence[Mapping[str, Any]], names: Sequence[str], lang: str) -> Any:
    """Tokens per second per GPU against GPUs, a line per strategy.

    Args:
        points: rows with strategy, gpus, rate, and `here` on the scenario's own size.
        names: all strategies in order, so that a strategy keeps its colour.
        lang: language of the words.
    """
    base = alt.Chart(alt.Data(values=[dict(p) for p in points])).encode(
        x=alt.X(
            "gpus:Q",
            scale=alt.Scale(type="log", base=2, nice=False, padding=18),
            title=t("axis_gpus", lang),
            axis=alt.Axis(values=sorted({p["gpus"] for p in points}), format=",d", grid=False, labelOverlap=True),
        ),
        y=alt.Y(
            "rate:Q", scale=alt.Scale(zero=True), title=t("axis_rate", lang), axis=alt.Axis(format=",d", tickCount=5)
        ),
        color=alt.Color(
            "strategy:N",
            title=None,
            scale=alt.Scale(domain=list(names), range=[LINES[i % len(LINES)] for i in range(len(names))]),
            legend=alt.Legend(orient="bottom", symbolType="stroke"),
        ),
    )
    dots = base.mark_point(filled=True, opacity=1).encode(
        size=alt.condition("datum.here", alt.value(140), alt.value(45)),
        shape=alt.Shape("strategy:N", scale=alt.Scale(domain=list(names)), legend=None),
        tooltip=[
            alt.Tooltip("strategy:N", title=t("strategy", lang)),
            alt.Tooltip("gpus:Q", title=t("axis_gpus", lang), format=",d"),
            alt.Tooltip("rate:Q", title=t("axis_rate", lang), format=",.0f"),
        ],
    )
    return alt.layer(base.mark_line(strokeWidth=2), dots).properties(height=340)
