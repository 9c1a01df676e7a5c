"""Failures, checkpoints and spot: when the run ends, and where its time goes."""

import streamlit as st

from planner.report.units import days, percent, whole
from planner.ui import frame, more_charts, work
from planner.ui.text import t

lang = frame.heading("page.risk")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    text = scenario.model_dump_json()
    name = frame.strategy_choice(scenario=scenario, lang=lang, key="risk-strategy")
    count = st.select_slider(t("replications", lang), (100, 300, 1000, 3000), value=300, key="risk-replications")
    document = frame.answer_of(compute=lambda: work.run_answer(text, name, int(count)), lang=lang)
    if document is not None and not document["feasible"]:
        st.warning(t("verdict_none", lang))
    elif document is not None:
        with st.container(horizontal=True):
            fan = document["days"]
            st.metric(t("days", lang), days(fan["p50"]), help=f"P10 {days(fan['p10'])}, P90 {days(fan['p90'])}")
            st.metric(t("goodput", lang), percent(document["goodput"]["mean"]))
            st.metric(t("interruptions", lang), whole(document["interruptions"]["p50"]))
            st.metric(t("wasted", lang), whole(document["wasted_gpu_hours"]["p50"]))
        late = document["goals"]["p_late"]
        if late is not None:
            line = t("late", lang, share=percent(late), days=f"{document['goals']['deadline_days']:g}")
            (st.warning if late > 1 - scenario.goals.probability else st.success)(line)
        left, right = st.columns(2, gap="large")
        with left:
            st.subheader(t("fan", lang))
            st.altair_chart(more_charts.fan_chart(document=document, lang=lang), width="stretch")
        with right:
            st.subheader(t("losses", lang))
            st.altair_chart(more_charts.loss_chart(document=document, lang=lang), width="stretch")
        if document["checkpoints"]:
            st.subheader(t("checkpoint_curve", lang))
            st.altair_chart(more_charts.checkpoint_chart(document=document, lang=lang), width="stretch")
        with st.expander(t("numbers", lang)):
            frame.table(rows=more_charts.loss_rows(document=document, lang=lang))
            causes = document["interruptions"]["by_cause"]
            frame.table(rows=[{t("cause", lang): k, t("interruptions", lang): v} for k, v in causes.items()])
            frame.table(rows=document["utilization_over_time"])
