"""More GPUs: strong and weak scaling of a strategy, its knee, and what stops it."""

import streamlit as st

from planner.report.units import whole
from planner.ui import frame, more_charts, work
from planner.ui.text import t

lang = frame.heading("page.scaling")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    text = scenario.model_dump_json()
    name = frame.strategy_choice(scenario=scenario, lang=lang, key="scaling-strategy")
    document = frame.answer_of(compute=lambda: work.sweep_answer(text, name), lang=lang)
    if document is not None:
        knee = document["knee"]
        if knee:
            st.info(t("knee", lang, gpus=whole(knee["gpus"]), cause=more_charts.cause_text(knee["cause"], lang)))
        st.altair_chart(more_charts.sweep_chart(document=document, lang=lang), width="stretch")
        st.caption(t("sweep_note", lang))
        frame.table(rows=more_charts.sweep_rows(document=document, lang=lang))
