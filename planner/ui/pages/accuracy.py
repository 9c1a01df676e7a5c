"""How far to trust it: forecast against measured by group, the constant-MFU baseline beside it."""

import streamlit as st

from planner.report.units import percent
from planner.ui import frame, more_charts, work
from planner.ui.text import t

KINDS = ("runs", "steps", "memory", "kernels", "collectives", "gains", "outcomes")

lang = frame.heading("page.accuracy")
kind = str(st.segmented_control(t("kind", lang), KINDS, default="runs", required=True, key="accuracy-kind"))
st.caption(t("accuracy_note", lang))
if frame.asked_for(label="do_validate", state=f"accuracy-{kind}", lang=lang):
    document = frame.answer_of(compute=lambda: work.accuracy_answer(kind), lang=lang)
    if document is not None:
        summary = document["summary"]
        zero = summary["zero_shot"] or {}
        with st.container(horizontal=True):
            st.metric(t("rows_forecast", lang), f"{summary['n_forecast']:,} / {summary['n_rows']:,}")
            for key in ("mean_group_mape_pct", "median_group_mape_pct"):
                value = zero.get(key)
                st.metric(t(key, lang), "—" if value is None else f"{value:.1f} %")
            if zero.get("coverage_frac") is not None:
                st.metric(t("coverage", lang), percent(zero["coverage_frac"]))
        st.altair_chart(more_charts.scatter_chart(document=document, lang=lang), width="stretch")
        st.subheader(t("groups", lang))
        frame.table(rows=more_charts.group_rows(document=document, lang=lang))
        st.subheader(t("worst", lang))
        frame.table(rows=more_charts.worst_rows(document=document, lang=lang))
