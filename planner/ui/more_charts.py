"""Charts and rows of the pages behind the plan: plain functions of result documents."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from planner.report.units import percent, seconds
from planner.ui.charts import LINES
from planner.ui.text import TEXT, t
from planner.ui.units import Shown

# Okabe-Ito again: one bucket, one colour.
COST_PARTS: tuple[tuple[str, str], ...] = (
    ("compute", "#0072B2"),
    ("network", "#56B4E9"),
    ("storage", "#009E73"),
    ("power", "#E69F00"),
    ("facility", "#D55E00"),
    ("people", "#CC79A7"),
    ("other", "#999999"),
)
Rows = list[dict[str, Any]]


def four_digits(value: Any) -> str:
    """A figure for a table of mixed units."""
    if not isinstance(value, int | float):
        return "—" if value is None else str(value)
    if abs(value) < 1e-9:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def cause_text(cause: str, lang: str) -> str:
    """A cause or bottleneck in words; an unknown one as it is."""
    key = f"cause.{cause}"
    return t(key, lang) if key in TEXT else cause.replace("_", " ")


def cost_rows(*, documents: Mapping[str, Mapping[str, Any]], lang: str, shown: Shown = Shown()) -> Rows:
    """One row a strategy and bucket; buckets without a colour of their own together."""
    named = [k for k, _ in COST_PARTS[:-1]]
    rows = []
    for name, doc in documents.items():
        buckets = doc["cost_usd"]
        parts = {k: buckets.get(k, 0.0) for k in named}
        parts["other"] = sum(v for k, v in buckets.items() if k not in named)
        rows += [
            {"strategy": name, "part": t(f"cost.{k}", lang), "value": shown.money_value(v), "order": i}
            for i, (k, v) in enumerate(parts.items())
            if v > 0
        ]
    return rows


def cost_chart(*, documents: Mapping[str, Mapping[str, Any]], lang: str, shown: Shown = Shown()) -> alt.Chart:
    """Stacked bars of the bill, one a strategy."""
    rows = cost_rows(documents=documents, lang=lang, shown=shown)
    unit = shown.rate.currency
    domain = [t(f"cost.{k}", lang) for k, _ in COST_PARTS]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(size=26, stroke="white", strokeWidth=0.6)
        .encode(
            y=alt.Y("strategy:N", sort=list(documents), title=None, axis=alt.Axis(ticks=False, domain=False)),
            x=alt.X("value:Q", stack="zero", title=unit, axis=alt.Axis(format="~s", tickCount=5)),
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=domain, range=[c for _, c in COST_PARTS]),
                legend=alt.Legend(
                    orient="bottom",
                    columns=3,
                    symbolStrokeWidth=0,
                    values=[d for d in domain if any(r["part"] == d for r in rows)],
                ),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("strategy:N", title=t("strategy", lang)),
                alt.Tooltip("part:N", title=t("part", lang)),
                alt.Tooltip("value:Q", title=unit, format=",.0f"),
            ],
        )
        .properties(height=alt.Step(44))
    )


def time_cost_chart(*, documents: Mapping[str, Mapping[str, Any]], lang: str, shown: Shown = Shown()) -> Any:
    """Length against cost of each strategy, P10 to P90 both ways; those that nobody beats in both are filled."""
    rows = []
    for name, doc in documents.items():
        days, cost = doc["days"], doc["cost_usd_total"]
        beaten = any(
            (d["days"]["p50"] <= days["p50"] and d["cost_usd_total"]["p50"] < cost["p50"])
            or (d["days"]["p50"] < days["p50"] and d["cost_usd_total"]["p50"] <= cost["p50"])
            for d in documents.values()
        )
        rows.append(
            {"strategy": name, "beaten": beaten}
            | {f"x{k}": shown.time_value(days[k]) for k in ("p10", "p50", "p90")}
            | {f"y{k}": shown.money_value(cost[k]) for k in ("p10", "p50", "p90")}
        )
    axis = t("axis_hours" if shown.time == "hours" else "axis_days", lang)
    unit = shown.rate.currency
    colour = alt.Color(
        "strategy:N",
        title=None,
        scale=alt.Scale(domain=list(documents), range=[LINES[i % len(LINES)] for i in range(len(documents))]),
        legend=alt.Legend(orient="bottom"),
    )
    base = alt.Chart(alt.Data(values=rows)).encode(color=colour)
    x = alt.X("xp50:Q", title=axis, scale=alt.Scale(zero=False))
    y = alt.Y("yp50:Q", title=unit, scale=alt.Scale(zero=False), axis=alt.Axis(format="~s"))
    across = base.mark_rule(strokeWidth=2).encode(x="xp10:Q", x2="xp90:Q", y=y)
    up = base.mark_rule(strokeWidth=2).encode(x=x, y="yp10:Q", y2="yp90:Q")
    dots = base.mark_point(size=130, strokeWidth=2, opacity=1).encode(
        x=x,
        y=y,
        shape=alt.Shape("strategy:N", scale=alt.Scale(domain=list(documents)), legend=None),
        fill=alt.condition("datum.beaten", alt.value("white"), colour),
        tooltip=[
            alt.Tooltip("strategy:N", title=t("strategy", lang)),
            *(alt.Tooltip(f"x{k}:Q", title=f"{axis} {k.upper()}", format=".1f") for k in ("p10", "p50", "p90")),
            *(alt.Tooltip(f"y{k}:Q", title=f"{unit} {k.upper()}", format=",.0f") for k in ("p10", "p50", "p90")),
        ],
    )
    return alt.layer(across, up, dots).properties(height=300)


def fan_chart(*, document: Mapping[str, Any], lang: str, shown: Shown = Shown()) -> Any:
    """Chance of being through by a day (or hour), with the deadline."""
    points = [dict(p) | {"days": shown.time_value(p["days"])} for p in document["fan"]]
    axis = t("axis_hours" if shown.time == "hours" else "axis_days", lang)
    base = alt.Chart(alt.Data(values=points)).mark_line(strokeWidth=2.5, color=LINES[0])
    curve = base.encode(
        x=alt.X("days:Q", title=axis, scale=alt.Scale(zero=False)),
        y=alt.Y("probability:Q", title=t("axis_through", lang), axis=alt.Axis(format="%")),
        tooltip=[
            alt.Tooltip("days:Q", title=axis, format=".1f"),
            alt.Tooltip("probability:Q", title=t("axis_through", lang), format=".0%"),
        ],
    )
    deadline = document["goals"]["deadline_days"]
    if deadline is None:
        return curve.properties(height=300)
    rule = alt.Chart(alt.Data(values=[{"days": shown.time_value(deadline)}])).mark_rule(
        color="#D55E00", strokeDash=[5, 3], strokeWidth=2
    )
    return alt.layer(curve, rule.encode(x="days:Q")).properties(height=300)


def loss_rows(*, document: Mapping[str, Any], lang: str) -> Rows:
    """Shares of elapsed time, the largest first."""
    parts = {"productive": document["goodput"]["mean"], **document["losses_frac"]}
    rows = [{"part": t(f"loss.{k}", lang), "share": v} for k, v in parts.items() if v > 1e-5]
    return sorted(rows, key=lambda r: -r["share"])


def loss_chart(*, document: Mapping[str, Any], lang: str) -> alt.Chart:
    """Where elapsed time goes besides work."""
    rows = [r for r in loss_rows(document=document, lang=lang) if r["part"] != t("loss.productive", lang)]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(color=LINES[1])
        .encode(
            y=alt.Y("part:N", sort=[r["part"] for r in rows], title=None, axis=alt.Axis(labelLimit=200)),
            x=alt.X("share:Q", title=t("axis_elapsed", lang), axis=alt.Axis(format=".1%", tickCount=4)),
            tooltip=[alt.Tooltip("part:N", title=" "), alt.Tooltip("share:Q", title=t("share", lang), format=".2%")],
        )
        .properties(height=alt.Step(28))
    )


def checkpoint_chart(*, curve: Sequence[Mapping[str, float]], lang: str) -> alt.Chart:
    """Goodput over the checkpoint interval."""
    rows = [{"minutes": r["interval_s"] / 60, "goodput": r["goodput"]} for r in curve]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=alt.OverlayMarkDef(filled=True, size=60), color=LINES[2], strokeWidth=2)
        .encode(
            x=alt.X("minutes:Q", scale=alt.Scale(type="log"), title=t("axis_interval", lang)),
            y=alt.Y("goodput:Q", scale=alt.Scale(zero=False), title=t("goodput", lang), axis=alt.Axis(format=".1%")),
            tooltip=[
                alt.Tooltip("minutes:Q", title=t("axis_interval", lang), format=".1f"),
                alt.Tooltip("goodput:Q", title=t("goodput", lang), format=".2%"),
            ],
        )
        .properties(height=240)
    )


def sweep_rows(*, document: Mapping[str, Any], lang: str) -> Rows:
    """Both curves as rows."""
    out = []
    for kind, points in (("strong", document["points"]), ("weak", document["weak"])):
        for p in points:
            out.append(
                {
                    t("curve", lang): t(f"curve.{kind}", lang),
                    "GPU": p["gpus"],
                    t("step_s", lang): p["step_s"],
                    t("efficiency", lang): p["scaling_efficiency"],
                    t("why", lang): cause_text(p["cause"], lang),
                }
            )
    return out


def sweep_chart(*, document: Mapping[str, Any], lang: str) -> Any:
    """Scaling efficiency against GPUs."""
    rows = [
        {"kind": t(f"curve.{kind}", lang), "cause": cause_text(p["cause"], lang)} | p
        for kind, points in (("strong", document["points"]), ("weak", document["weak"]))
        for p in points
        if p["scaling_efficiency"] is not None
    ]
    domain = [t("curve.strong", lang), t("curve.weak", lang)]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("gpus:Q", scale=alt.Scale(type="log", base=2), title="GPU", axis=alt.Axis(format=",d", grid=False)),
        y=alt.Y("scaling_efficiency:Q", title=t("efficiency", lang), axis=alt.Axis(format="%")),
        color=alt.Color(
            "kind:N",
            title=None,
            scale=alt.Scale(domain=domain, range=list(LINES[:2])),
            legend=alt.Legend(orient="bottom", symbolType="stroke", columns=1, labelLimit=300),
        ),
        strokeDash=alt.StrokeDash("kind:N", scale=alt.Scale(domain=domain), legend=None),
        tooltip=[
            alt.Tooltip("kind:N", title=t("curve", lang)),
            alt.Tooltip("gpus:Q", title="GPU", format=",d"),
            alt.Tooltip("scaling_efficiency:Q", title=t("efficiency", lang), format=".1%"),
            alt.Tooltip("cause:N", title=t("why", lang)),
        ],
    )
    lines = base.mark_line(strokeWidth=2)
    return alt.layer(lines, base.mark_point(filled=True, size=60, opacity=1)).properties(height=320)


def plan_points(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The best ten, then the front: each with an id, what is drawn, and the strategy to adopt."""
    best = [{"id": f"b{i}", "set": "best_ten", **p} for i, p in enumerate(document["best"], 1)]
    front = [{"id": f"f{i}", "set": "front", "strategy": p["plan"], **p} for i, p in enumerate(document["pareto"], 1)]
    return best + front


def pareto_chart(*, document: Mapping[str, Any], lang: str, shown: Shown = Shown()) -> alt.Chart:
    """Step time against memory: the front, and the best ten on it or near it; points can be picked by their id."""
    rows = [
        {
            "id": p["id"],
            "step_s": p["step_s"],
            "gb": shown.bytes_value(p["memory_peak_gb"]),
            "set": t(p["set"], lang),
            "plan": short_plan(p["plan"]),
        }
        for p in reversed(plan_points(document))
    ]
    domain = [t("front", lang), t("best_ten", lang)]
    picked = alt.selection_point(name="picked", fields=["id"])
    memory = t("axis_memory", lang, unit=shown.memory)
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_point(filled=True, size=90, cursor="pointer")
        .encode(
            x=alt.X("gb:Q", title=memory, scale=alt.Scale(zero=False)),
            y=alt.Y("step_s:Q", title=t("axis_step", lang), scale=alt.Scale(type="log", nice=False, padding=12)),
            color=alt.Color(
                "set:N",
                title=None,
                scale=alt.Scale(domain=domain, range=[LINES[0], LINES[1]]),
                legend=alt.Legend(orient="bottom", columns=1, labelLimit=300),
            ),
            shape=alt.Shape("set:N", scale=alt.Scale(domain=domain, range=["circle", "diamond"]), legend=None),
            opacity=alt.condition(picked, alt.value(0.9), alt.value(0.25)),
            tooltip=[
                alt.Tooltip("plan:N", title=t("page.plan", lang)),
                alt.Tooltip("step_s:Q", format=".3~g", title=t("axis_step", lang)),
                alt.Tooltip("gb:Q", format=".1f", title=memory),
            ],
        )
        .add_params(picked)
        .properties(height=340)
    )


def short_plan(plan: Mapping[str, Any]) -> str:
    """Degrees above one, sharding and recompute of a plan."""
    keys = ("tp", "pp", "vpp", "cp", "ep", "dp")
    degrees = " ".join(f"{k}{plan[k]}" for k in keys if plan.get(k, 1) > 1) or "dp1"
    return f"{degrees} zero{plan.get('zero_stage', 0)} mbs{plan.get('micro_batch_sequences', 1)}"


def plan_rows(*, document: Mapping[str, Any], lang: str, shown: Shown) -> Rows:
    """The best ten as a table."""
    return [
        {
            "#": rank,
            t("page.plan", lang): short_plan(p["plan"]),
            t("one_step", lang): seconds(p["step_s"]),
            t("days", lang): shown.days(p["days"]),
            t("cost", lang): shown.money(p["cost_usd"]),
            t("peak_memory", lang): shown.gigabytes(p["memory_peak_gb"]),
            t("bottleneck", lang): cause_text(p["limited_by"], lang),
            t("why", lang): p["why"],
        }
        for rank, p in enumerate(document["best"], 1)
    ]


def waterfall_chart(*, document: Mapping[str, Any], lang: str) -> alt.Chart:
    """Step time before and after each improvement, in order."""
    rows = [
        {
            "name": s["key"].replace("_", " "),
            "low": s["after_s"],
            "high": s["before_s"],
            "gain": percent(s["gain_frac"]),
        }
        for s in document["waterfall"]["sequence"]
    ]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(color=LINES[2], size=22)
        .encode(
            y=alt.Y("name:N", sort=[r["name"] for r in rows], title=None, axis=alt.Axis(labelLimit=180)),
            x=alt.X("low:Q", title=t("axis_step", lang), scale=alt.Scale(zero=False)),
            x2="high:Q",
            tooltip=[
                alt.Tooltip("name:N", title=t("step", lang)),
                alt.Tooltip("high:Q", title=t("before", lang), format=".4~g"),
                alt.Tooltip("low:Q", title=t("after", lang), format=".4~g"),
                alt.Tooltip("gain:N", title=t("share", lang)),
            ],
        )
        .properties(height=alt.Step(34))
    )


def tornado_chart(*, document: Mapping[str, Any], lang: str) -> Any:
    """Low and high answer of each input, around the middle."""
    rows = [
        {"name": r["input"].replace("_", " "), "low": min(r["low"], r["high"]), "high": max(r["low"], r["high"])}
        for r in document["tornado"]
    ]
    rows.sort(key=lambda r: r["low"] - r["high"])
    unit = document["unit"]
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(color=LINES[0], size=18)
        .encode(
            y=alt.Y("name:N", sort=[r["name"] for r in rows], title=None, axis=alt.Axis(labelLimit=180)),
            x=alt.X("low:Q", title=unit, scale=alt.Scale(zero=False), axis=alt.Axis(format="~s")),
            x2="high:Q",
            tooltip=[
                alt.Tooltip("name:N", title=t("col_inputs", lang)),
                alt.Tooltip("low:Q", title="P10", format=".4~g"),
                alt.Tooltip("high:Q", title="P90", format=".4~g"),
            ],
        )
    )
    middle = alt.Chart(alt.Data(values=[{"value": document["value"]["forecast"]}]))
    rule = middle.mark_rule(color="#D55E00", strokeWidth=2, strokeDash=[5, 3]).encode(x="value:Q")
    return alt.layer(bars, rule).properties(height=alt.Step(28))
