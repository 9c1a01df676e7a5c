"""The answer of a comparison on a page: verdict, figures, pictures, sources; shared by the pages Plan and Compare."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.report.units import percent, seconds
from planner.scenario import Scenario
from planner.ui import charts, exports, frame, uploads, work
from planner.ui.text import flip_text, plain, t
from planner.ui.units import Shown

METRIC_PX = 154  # two side by side on a phone
Documents = Mapping[str, Mapping[str, Any]]
# The line of the provenance behind each figure of a strategy.
LINES = {"days": "days.p50", "cost": "cost_usd_total.p50", "mfu": "mfu", "fits": "memory_gb.activations"}


def verdict(*, document: Mapping[str, Any], lang: str, shown: Shown) -> None:
    """The answer in a sentence, and what would change it."""
    docs: Documents = document["strategies"]
    best = document["verdict"]["choice"]
    if best is None:
        st.warning(t("verdict_none", lang))
        return
    own, others = docs[best], [n for n in docs if n != best and docs[n]["fits"]]
    if not others:
        length, cost = shown.days(own["days"]["p50"]), shown.money(own["cost_usd_total"]["p50"])
        sentences = [t("verdict_only", lang, best=best, days=length, cost=cost)]
    else:
        sentences = []
        for i, other in enumerate(others):
            gap = docs[other]["days"]["p50"] - own["days"]["p50"]
            saved = shown.money(docs[other]["cost_usd_total"]["p50"] - own["cost_usd_total"]["p50"])
            side = t("earlier" if gap >= 0 else "later", lang)
            key = "verdict_also" if i else "verdict_gap"
            sentences.append(t(key, lang, best=best, other=other, saved=saved, gap=shown.days(abs(gap)), side=side))
        fastest = document["verdict"]["fastest"]
        if fastest != best:
            sentences.append(t("fastest", lang, name=fastest))
        if any(_overlap(own["step_s"], docs[o]["step_s"]) for o in others):
            sentences.append(t("overlap", lang))
    st.success(plain(("" if lang == "zh" else " ").join(sentences)))
    if document["flips_at"]:
        with st.expander(t("flips", lang)):
            lines = (f"- {flip_text(flip=f, lang=lang, shown=shown)}" for f in document["flips_at"])
            st.markdown(plain("\n".join(lines)))


def over_memory(*, docs: Documents, lang: str, shown: Shown) -> None:
    """Which strategies do not fit, by how much, and what to relax."""
    for name, doc in docs.items():
        if doc["fits"]:
            continue
        over, capacity = shown.gigabytes(doc["memory_over_gb"]), shown.gigabytes(doc["memory_gb"]["capacity"])
        lines = [t("over_memory", lang, name=name, over=over, capacity=capacity)]
        changes = doc.get("relax") or []
        if changes:
            lines.append(t("relax_fits" if any(c["fits"] for c in changes) else "relax_helps", lang))
            lines += [
                t("relax_line", lang, constraint=c["constraint"], by=c["by"], result=c["result"], why=c["why"])
                for c in changes
            ]
        st.error(plain("\n\n".join(lines[:2]) + "".join(f"\n- {line}" for line in lines[2:])))


def origin(*, doc: Mapping[str, Any], line_id: str, lang: str) -> str | None:
    """Formula, inputs, label and source of a figure, as the help of its metric."""
    line = next((x for x in doc["provenance"] if x["id"] == line_id), None)
    if line is None:
        return None
    inputs = ", ".join(line["inputs"]) or "—"
    return plain(t("origin", lang, id=line["id"], formula=line["formula"], inputs=inputs, label=line["label"],
                   source=line["source"]))  # fmt: skip


def _overlap(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    return a["p10"] < b["p90"] and b["p10"] < a["p90"]


def figures(*, name: str, doc: Mapping[str, Any], lang: str, shown: Shown) -> None:
    """The metric row of a strategy."""
    fits, lay = doc["fits"], doc["strategy"]
    with st.container(border=True):
        st.markdown(f"**{name}**")
        with st.container(horizontal=True):
            cost = doc.get("cost_usd_total") or {}
            for key, value in (
                ("days", shown.days(doc["days"]["p50"]) if fits else "—"),
                ("cost", shown.money(cost["p50"]) if fits else "—"),
                ("mfu", percent(doc["mfu"]) if fits else "—"),
                ("fits", t("yes" if fits else "no", lang)),
            ):
                help_text = origin(doc=doc, line_id=LINES[key], lang=lang)
                st.metric(t(key, lang), plain(value), width=METRIC_PX, help=help_text)
        if fits:
            low, high = doc["days"]["p10"], doc["days"]["p90"]
            words = t(
                "range",
                lang,
                days_low=shown.days(low),
                days_high=shown.days(high),
                cost_low=shown.money(cost["p10"]),
                cost_high=shown.money(cost["p90"]),
                step=seconds(doc["step_s"]["p50"]),
            )
            st.caption(plain(words))
        degrees = " ".join(
            f"{k.upper()}{lay[k]}" for k in ("tp", "pp", "vpp", "cp", "ep", "dp") if lay[k] > 1 or k == "dp"
        )
        st.caption(
            t(
                "layout",
                lang,
                degrees=degrees,
                zero=lay["zero_stage"],
                micro=lay["micro_batch_sequences"],
                count=lay["micro_batches"],
                recompute=lay["recompute"],
                software=f"{lay['framework']['name']} {lay['framework']['release']}",
            )
        )


def pictures(*, docs: Documents, scenario: Scenario, lang: str, shown: Shown) -> None:
    """Breakdown, memory and scaling."""
    feasible = {n: d for n, d in docs.items() if d["fits"]}
    left, right = st.columns(2, gap="large")
    if feasible:
        with left:
            st.subheader(t("breakdown", lang))
            chart = charts.breakdown_chart(documents=feasible, lang=lang)
            words = in_words(charts.time_rows(documents=feasible, lang=lang), t("breakdown", lang))
            st.altair_chart(chart, width="stretch", alt=words)
    with right:
        st.subheader(t("memory", lang))
        chart = charts.memory_chart(documents=docs, lang=lang, shown=shown)
        words = in_words(charts.memory_rows(documents=docs, lang=lang), t("memory", lang))
        st.altair_chart(chart, width="stretch", alt=words)
    st.subheader(t("scaling", lang))
    points = work.scaling_points(scenario.model_dump_json())
    if len({p["gpus"] for p in points}) > 1:
        words = "; ".join(f"{p['strategy']}, {p['gpus']:,} GPU: {p['rate']:,.0f}" for p in points)
        chart = charts.scaling_chart(points=points, names=list(docs), lang=lang)
        st.altair_chart(chart, width="stretch", alt=f"{t('scaling', lang)}, {t('axis_rate', lang)}: {words}")
        st.caption(t("scaling_note", lang))
    else:
        st.caption(t("no_scaling", lang))


def in_words(rows: list[dict[str, Any]], title: str) -> str:
    """Stacked bars as a sentence, for who cannot see them."""
    parts: dict[str, list[str]] = {}
    for row in rows:
        parts.setdefault(str(row["strategy"]), []).append(f"{row['part']} {row['share']}")
    return f"{title}. " + "; ".join(f"{name}: {', '.join(p)}" for name, p in parts.items())


def explain(*, docs: Documents, lang: str) -> None:
    """Every figure with its formula, inputs, label and source."""
    fields = ("id", "value", "unit", "formula", "inputs", "label", "source")
    rows = [r | {"inputs": ", ".join(r["inputs"])} for r in exports.figure_rows(docs)]
    config: dict[str, Any] = {f: st.column_config.Column(t(f"col_{f}", lang)) for f in fields if f != "value"}
    config["strategy"] = st.column_config.Column(t("strategy", lang))
    config["value"] = st.column_config.NumberColumn(t("col_value", lang), format="%.5g")
    with st.expander(t("explain", lang)):
        st.caption(t("explain_note", lang))
        for name, doc in docs.items():
            shares = ", ".join(f"{label} {percent(share)}" for label, share in doc["label_share"].items())
            st.caption(t("rests_on", lang, name=name, shares=shares))
        st.dataframe(rows, column_config=config, column_order=("strategy", *fields), hide_index=True)


def scenario_download(*, scenario: Scenario, lang: str) -> None:
    """The scenario as YAML; with a session's own files, all of it in one archive."""
    stem = f"plan-{scenario.hash()}"
    local, used = uploads.bundle(scenario, frame.files())
    text = work.to_yaml(local)
    if used:
        st.download_button(
            t("download_zip", lang),
            lambda: exports.zip_bytes({"scenario.yaml": text.encode(), **used}),
            f"{stem}.zip",
            "application/zip",
            on_click="ignore",
            icon=":material/download:",
        )
    else:
        st.download_button(
            t("download_yaml", lang), text, f"{stem}.yaml", "application/yaml", on_click="ignore",
            icon=":material/download:",
        )  # fmt: skip


def report(*, scenario: Scenario, lang: str) -> None:
    """The document for a budget meeting, as a page of its own and as PDF."""
    st.subheader(t("report", lang))
    st.caption(t("report_note", lang))
    if not frame.asked_for(label="do_report", state=f"report-{scenario.hash()}", lang=lang):
        return
    command = ["report", "scenario.yaml", "--out", "report.html"]
    found = frame.long_answer(command=command, key="report", lang=lang, scenario=scenario, makes=["report.html"])
    if found is None:
        return
    html = found["report.html"]
    stem = f"report-{scenario.hash()}"
    with st.container(horizontal=True):
        st.download_button(
            t("download_html", lang), html, f"{stem}.html", "text/html", on_click="ignore", icon=":material/download:"
        )
        st.download_button(
            t("download_pdf", lang),
            lambda: work.pdf(html),
            f"{stem}.pdf",
            "application/pdf",
            on_click="ignore",
            icon=":material/download:",
            disabled=not work.can_pdf(),
            help=None if work.can_pdf() else t("no_pdf", lang),
        )
    if not work.can_pdf():
        st.caption(t("no_pdf", lang))
