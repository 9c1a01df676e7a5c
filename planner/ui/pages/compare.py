"""Strategies side by side: decision table, cost by bucket, what differs, what flips the verdict."""

import json

import streamlit as st

from planner.report.units import percent
from planner.ui import answer, exports, frame, more_charts, uploads, work
from planner.ui.text import plain, t

lang = frame.heading("page.compare")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    shown = frame.asked_units()
    text = scenario.model_dump_json()
    document = frame.answer_of(compute=lambda: work.comparison(text), lang=lang)
    if document is not None:
        docs = document["strategies"]
        answer.over_memory(docs=docs, lang=lang, shown=shown)
        answer.verdict(document=document, lang=lang, shown=shown)
        fitting = {n: d for n, d in docs.items() if d["fits"]}
        if fitting:
            st.subheader(t("cost_buckets", lang))
            parts = more_charts.cost_rows(documents=fitting, lang=lang, shown=shown)
            totals = {n: d["cost_usd_total"] for n, d in fitting.items()}
            shares = [
                p | {"share": percent(p["value"] / shown.money_value(totals[p["strategy"]]["p50"]))} for p in parts
            ]
            chart = more_charts.cost_chart(documents=fitting, lang=lang, shown=shown)
            st.altair_chart(chart, width="stretch", alt=answer.in_words(shares, t("cost_buckets", lang)))
            for name, total in totals.items():
                st.caption(plain(f"{name}: P10 {shown.money(total['p10'])} – P90 {shown.money(total['p90'])}"))
            if len(fitting) > 1:
                st.subheader(t("time_cost", lang))
                chart = more_charts.time_cost_chart(documents=fitting, lang=lang, shown=shown)
                words = "; ".join(
                    f"{n}: {shown.days(d['days']['p50'])}, {shown.money(totals[n]['p50'])}" for n, d in fitting.items()
                )
                st.altair_chart(chart, width="stretch", alt=f"{t('time_cost', lang)}. {words}")
        st.subheader(t("decision_table", lang))
        rows = [
            {t("criterion", lang): r["text"], t("col_unit", lang): r["unit"]}
            | {n: more_charts.four_digits(v) for n, v in r["values"].items()}
            for r in document["decision_table"]
        ]
        frame.table(rows=rows)
        st.subheader(t("differences", lang))
        frame.table(rows=work.differences(scenario))
        answer.explain(docs=docs, lang=lang)
        local, _ = uploads.bundle(scenario, frame.files())
        sheets = exports.forecast_sheets(document=document, scenario=json.loads(local.model_dump_json()))
        frame.downloads(document=document, sheets=sheets, stem=f"compare-{scenario.hash()}", lang=lang)
