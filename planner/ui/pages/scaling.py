"""More GPUs: strong and weak scaling of a strategy, its knee, and what stops it."""

import streamlit as st

from planner.report.units import percent, whole
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
        words = "; ".join(
            f"{t(f'curve.{kind}', lang)}: "
            + ", ".join(f"{p['gpus']:,} GPU {percent(p['scaling_efficiency'])}" for p in points
                        if p["scaling_efficiency"] is not None)
            for kind, points in (("strong", document["points"]), ("weak", document["weak"]))
        )  # fmt: skip
        st.altair_chart(more_charts.sweep_chart(document=document, lang=lang), width="stretch", alt=words)
        st.caption(t("sweep_note", lang))
        rows = more_charts.sweep_rows(document=document, lang=lang)
        frame.table(rows=rows)
        frame.downloads(document=document, sheets={"Scaling": rows}, stem=f"scaling-{scenario.hash()}", lang=lang)
