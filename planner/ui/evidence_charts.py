"""Charts and rows of what was measured: accuracy, profiles, collectives; plain functions of documents."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from planner import catalog
from planner.ui.charts import LINES
from planner.ui.text import t

Rows = list[dict[str, Any]]


def judged_rows(document: Mapping[str, Any]) -> Rows:
    """Answer rows with a forecast and a positive measurement."""
    return [
        r for r in document["rows"] if r["zero_shot"] and r["measured"] and r["measured"] > 0 and r["metric"] != "oom"
    ]


def scatter_chart(*, document: Mapping[str, Any], lang: str) -> Any:
    """Forecast over measured against measured, a point a row."""
    rows = judged_rows(document)
    # A browser draws a few thousand points; every n-th keeps all groups.
    rows = rows[:: max(1, math.ceil(len(rows) / 2500))]
    data = [
        {
            "id": r["id"],
            "group": r["group"],
            "metric": r["metric"],
            "measured": r["measured"],
            "ratio": r["zero_shot"]["predicted"] / r["measured"],
        }
        for r in rows
    ]
    points = (
        alt.Chart(alt.Data(values=data))
        .mark_point(filled=True, size=28, opacity=0.5)
        .encode(
            x=alt.X("measured:Q", scale=alt.Scale(type="log"), title=t("measured", lang), axis=alt.Axis(format="~s")),
            y=alt.Y("ratio:Q", scale=alt.Scale(type="log"), title=t("ratio", lang)),
            color=alt.Color(
                "metric:N",
                title=None,
                scale=alt.Scale(range=list(LINES)),
                legend=alt.Legend(orient="bottom", columns=2),
            ),
            tooltip=[
                alt.Tooltip("id:N"),
                alt.Tooltip("group:N"),
                alt.Tooltip("measured:Q", format=".4~g", title=t("measured", lang)),
                alt.Tooltip("ratio:Q", format=".3f", title=t("ratio", lang)),
            ],
        )
    )
    rule = alt.Chart(alt.Data(values=[{"one": 1.0}])).mark_rule(color="#888888").encode(y="one:Q")
    return alt.layer(rule, points).properties(height=340)


def group_rows(*, document: Mapping[str, Any], lang: str) -> Rows:
    """Groups with our error and the baseline's."""
    out = []
    for g in document["groups"]:
        z = g["zero_shot"]
        if z:
            out.append(
                {
                    t("group", lang): g["group"],
                    t("configs", lang): g["n_configs"],
                    t("error_pct", lang): z["mape_pct"],
                    t("median_pct", lang): z["median_ape_pct"],
                    t("bias_pct", lang): z["bias_pct"],
                    t("coverage", lang): 100 * z["coverage_frac"],
                    t("baseline_pct", lang): g["baseline"]["mape_pct"] if g["baseline"] else None,
                }
            )
    return sorted(out, key=lambda r: -r[t("error_pct", lang)])


def worst_rows(*, document: Mapping[str, Any], lang: str, count: int = 20) -> Rows:
    """The rows that miss by most, in logarithm."""
    rows = judged_rows(document)
    rows.sort(key=lambda r: -abs(math.log(max(1e-9, r["zero_shot"]["predicted"]) / r["measured"])))
    return [
        {
            "id": r["id"],
            t("group", lang): r["group"],
            t("col_unit", lang): r["unit"],
            t("measured", lang): r["measured"],
            t("forecast", lang): r["zero_shot"]["predicted"],
            t("error_pct", lang): r["zero_shot"]["error_pct"],
            t("assumed", lang): ", ".join(r["assumed"]),
            t("flags", lang): ", ".join(r["flags"]),
        }
        for r in rows[:count]
    ]


def product_rows(*, samples: Sequence[Mapping[str, Any]], gpu: str) -> Rows:
    """Matrix products of a profile: intensity, rate and share of the data sheet's peak."""
    try:
        peaks = catalog.gpu(gpu).peak_flops
    except catalog.CatalogError:
        peaks = {}
    out = []
    for s in samples:
        shape = s["shape"]
        if s["kind"] != "matmul" or not s["p50_s"] or not {"m", "n", "k"} <= set(shape):
            continue
        m, n, k = (float(shape[x]) for x in ("m", "n", "k"))
        width = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}.get(s["dtype"], 1)
        rate = 2 * m * n * k / s["p50_s"]
        peak = peaks.get(s["dtype"])
        out.append(
            {
                "shape": f"{m:.0f} × {n:.0f} × {k:.0f}",
                "dtype": s["dtype"],
                "state": s["state"],
                "intensity": 2 * m * n * k / (width * (m * k + n * k) + 2 * m * n),
                "tflops": rate / 1e12,
                "share": rate / peak if peak else None,
                "clock_mhz": s["clock_mhz"],
            }
        )
    return out


def roofline_chart(*, rows: Rows, lang: str) -> alt.Chart:
    """Rate against arithmetic intensity, both logarithmic."""
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_point(filled=True, size=32, opacity=0.6)
        .encode(
            x=alt.X("intensity:Q", scale=alt.Scale(type="log"), title=t("axis_intensity", lang)),
            y=alt.Y("tflops:Q", scale=alt.Scale(type="log"), title="TFLOP/s"),
            color=alt.Color("dtype:N", scale=alt.Scale(range=list(LINES)), legend=alt.Legend(orient="bottom")),
            shape=alt.Shape("dtype:N", legend=None),
            tooltip=["shape:N", "dtype:N", "state:N", alt.Tooltip("tflops:Q", format=".1f"),
                     alt.Tooltip("share:Q", format=".1%"), "clock_mhz:Q"],
        )
        .properties(height=340)
    )  # fmt: skip


def sample_rows(*, samples: Sequence[Mapping[str, Any]]) -> Rows:
    """Samples as a flat table."""
    keys = ("kind", "op", "dtype", "layout", "phase", "state", "n", "p10_s", "p50_s", "p90_s", "clock_mhz", "power_w")
    return [{"shape": ", ".join(f"{k} {v}" for k, v in s["shape"].items())} | {k: s[k] for k in keys} for s in samples]


def own_rows(*, document: Mapping[str, Any], lang: str) -> Rows:
    """Every row of somebody's runs: measured, forecast as shipped, and with the fitted constants."""

    def side(row: Mapping[str, Any], key: str) -> tuple[Any, Any]:
        found = row[key] or {}
        return found.get("predicted"), found.get("error_pct")

    out = []
    for row in document["rows"]:
        zero, zero_error = side(row, "zero_shot")
        site, site_error = side(row, "site")
        out.append(
            {
                "id": row["id"] or str(row["row"]),
                "metric": row["metric"],
                t("col_unit", lang): row["unit"],
                t("measured", lang): row["measured"],
                t("forecast", lang): zero,
                t("error_pct", lang): zero_error,
                t("with_site", lang): site,
                t("site_error_pct", lang): site_error,
                t("flags", lang): ", ".join(row["flags"]) or (row["skipped"] or ""),
            }
        )
    return out


# Bytes that a rank's link carries for a byte of the buffer, over n ranks (nccl-tests PERFORMANCE.md).
BUS_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}


def _collectives(samples: Sequence[Mapping[str, Any]]) -> Rows:
    found = []
    for s in samples:
        ranks, nodes, nbytes = (int(s["shape"][k]) for k in ("ranks", "nodes", "bytes"))
        factor = BUS_FACTORS[s["op"]](ranks) if s["op"] in BUS_FACTORS and ranks > 1 else 1.0
        found.append(
            {
                "op": s["op"],
                "ranks": ranks,
                "nodes": nodes,
                "bytes": nbytes,
                "layout": s["layout"],
                "us": s["p50_s"] * 1e6,
                "gbs": factor * nbytes / s["p50_s"] / 1e9,
            }
        )
    return found


def collective_rows(*, samples: Sequence[Mapping[str, Any]], lang: str) -> Rows:
    """Measured collectives as a table."""
    return [
        {
            t("collective", lang): r["op"],
            t("ranks", lang): r["ranks"],
            t("nodes", lang): r["nodes"],
            "bytes": r["bytes"],
            "layout": r["layout"],
            "µs": r["us"],
            t("bus_rate", lang): r["gbs"],
        }
        for r in _collectives(samples)
    ]


def collective_chart(*, samples: Sequence[Mapping[str, Any]], lang: str) -> Any:
    """Bus bandwidth against message size, a line an operation and group."""
    rows = [r | {"name": f"{r['op']} · {r['ranks']} ({r['nodes']})"} for r in _collectives(samples)
            if r["layout"] == "out_of_place"] or _collectives(samples)  # fmt: skip
    base = alt.Chart(alt.Data(values=[r | {"name": r.get("name", r["op"])} for r in rows])).encode(
        x=alt.X("bytes:Q", scale=alt.Scale(type="log", base=2), title="bytes", axis=alt.Axis(format="~s", tickCount=8)),
        y=alt.Y("gbs:Q", title=f"{t('bus_rate', lang)}", axis=alt.Axis(tickCount=5)),
        color=alt.Color(
            "name:N", title=None, scale=alt.Scale(range=list(LINES)), legend=alt.Legend(orient="bottom", columns=2)
        ),
        tooltip=["name:N", alt.Tooltip("bytes:Q", format=","), alt.Tooltip("us:Q", format=".4~g", title="µs"),
                 alt.Tooltip("gbs:Q", format=".1f", title="GB/s")],
    )  # fmt: skip
    return alt.layer(base.mark_line(strokeWidth=2), base.mark_point(filled=True, size=30)).properties(height=300)
