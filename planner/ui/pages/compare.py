"""Strategies side by side: decision table, cost by bucket, what differs, what flips the verdict."""

import streamlit as st

from planner.report.units import dollars
from planner.ui import frame, more_charts, work
from planner.ui.text import flip_text, plain, t

lang = frame.heading("page.compare")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    text = scenario.model_dump_json()
    document = frame.answer_of(compute=lambda: work.comparison(text), lang=lang)
    if document is not None:
        docs = document["strategies"]
        choice = document["verdict"]["choice"]
        if choice is None:
            st.warning(t("verdict_none", lang))
        else:
            st.success(plain("  \n".join([f"**{choice}**", *document["verdict"]["reasons"]])))
        if document["flips_at"]:
            st.subheader(t("flips", lang))
            st.markdown(plain("\n".join(f"- {flip_text(flip=f, lang=lang)}" for f in document["flips_at"])))
        st.subheader(t("cost_buckets", lang))
        fitting = {n: d for n, d in docs.items() if d["fits"]}
        if fitting:
            st.altair_chart(more_charts.cost_chart(documents=fitting, lang=lang), width="stretch")
            for name, doc in fitting.items():
                total = doc["cost_usd_total"]
                st.caption(plain(f"{name}: P10 {dollars(total['p10'])} – P90 {dollars(total['p90'])}"))
        st.subheader(t("decision_table", lang))
        rows = [
            {t("criterion", lang): r["text"], t("col_unit", lang): r["unit"]}
            | {n: more_charts.four_digits(v) for n, v in r["values"].items()}
            for r in document["decision_table"]
        ]
        frame.table(rows=rows)
        st.subheader(t("differences", lang))
        frame.table(rows=work.differences(scenario))
