"""Which unknown moves the answer most, and what to measure next."""

import streamlit as st

from planner.ui import frame, more_charts, work
from planner.ui.text import plain, t

METRICS = ("days", "cost", "step")

lang = frame.heading("page.sensitivity")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    text = scenario.model_dump_json()
    name = frame.strategy_choice(scenario=scenario, lang=lang, key="sensitivity-strategy")
    metric = str(
        st.segmented_control(
            t("metric", lang),
            METRICS,
            default="days",
            required=True,
            key="sensitivity-metric",
            format_func=lambda m: t({"days": "days", "cost": "cost", "step": "one_step"}[m], lang),
        )
    )
    document = frame.answer_of(compute=lambda: work.sensitivity_answer(text, name, metric), lang=lang)
    if document is not None and not document["feasible"]:
        st.warning(t("verdict_none", lang))
    elif document is not None:
        following = document["measure_next"]
        if following:
            line = t("measure_next", lang, input=following["input"].replace("_", " "), how=following["how"])
            st.success(plain(line))
        words = "; ".join(f"{r['input'].replace('_', ' ')}: {r['low']:.4g} – {r['high']:.4g}"
                          for r in document["tornado"])  # fmt: skip
        chart = more_charts.tornado_chart(document=document, lang=lang)
        st.altair_chart(chart, width="stretch", alt=f"{document['unit']}. {words}")
        with st.expander(t("numbers", lang)):
            frame.table(rows=document["tornado"])
            frame.table(rows=document["sobol"])
            frame.table(rows=document["inputs"])
        sheets = {"Tornado": document["tornado"], "Sobol": document["sobol"], "Inputs": document["inputs"]}
        frame.downloads(document=document, sheets=sheets, stem=f"sensitivity-{scenario.hash()}", lang=lang)
