"""Failures, checkpoints and spot: when the run ends, and where its time goes."""

import streamlit as st

from planner.report.units import percent, whole
from planner.ui import frame, more_charts, work
from planner.ui.text import t

# A handful of runs is through before another process has started.
AT_ONCE = 300

lang = frame.heading("page.risk")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    shown = frame.asked_units()
    text = scenario.model_dump_json()
    name = frame.strategy_choice(scenario=scenario, lang=lang, key="risk-strategy")
    count = int(st.select_slider(t("replications", lang), (100, 300, 1000, 3000), value=300, key="risk-replications"))
    if count <= AT_ONCE:
        document = frame.answer_of(compute=lambda: work.run_answer(text, name, count), lang=lang)
    else:
        command = ["run", "scenario.yaml", f"--strategy={name}", f"--replications={count}", "--json"]
        document = frame.long_answer(command=command, key="run", lang=lang, scenario=scenario)
    if document is not None and not document["feasible"]:
        st.warning(t("verdict_none", lang))
    elif document is not None:
        fan = document["days"]
        with st.container(horizontal=True):
            st.metric(t("days", lang), shown.days(fan["p50"]))
            st.metric(t("goodput", lang), percent(document["goodput"]["mean"]))
            st.metric(t("interruptions", lang), whole(document["interruptions"]["p50"]))
            st.metric(t("wasted", lang), whole(document["wasted_gpu_hours"]["p50"]))
        st.caption(t("days_range", lang, low=shown.days(fan["p10"]), high=shown.days(fan["p90"]), runs=whole(count)))
        late = document["goals"]["p_late"]
        if late is not None:
            line = t("late", lang, share=percent(late), days=f"{document['goals']['deadline_days']:g}")
            (st.warning if late > 1 - scenario.goals.probability else st.success)(line)
        left, right = st.columns(2, gap="large")
        lost = more_charts.loss_rows(document=document, lang=lang)
        with left:
            st.subheader(t("fan", lang))
            words = f"{t('fan', lang)}: " + ", ".join(
                f"{k.upper()} {shown.days(v)}" for k, v in fan.items() if k[0] == "p"
            )
            chart = more_charts.fan_chart(document=document, lang=lang, shown=shown)
            st.altair_chart(chart, width="stretch", alt=words)
        with right:
            st.subheader(t("losses", lang))
            words = f"{t('losses', lang)}: " + ", ".join(f"{r['part']} {percent(r['share'])}" for r in lost)
            st.altair_chart(more_charts.loss_chart(document=document, lang=lang), width="stretch", alt=words)
        curve = work.checkpoints(text, name)
        if curve:
            st.subheader(t("checkpoint_curve", lang))
            words = ", ".join(f"{r['interval_s'] / 60:.0f} min {percent(r['goodput'])}" for r in curve)
            chart = more_charts.checkpoint_chart(curve=curve, lang=lang)
            st.altair_chart(chart, width="stretch", alt=f"{t('checkpoint_curve', lang)}: {words}")
        causes = [{t("cause", lang): k, t("interruptions", lang): v}
                  for k, v in document["interruptions"]["by_cause"].items()]  # fmt: skip
        with st.expander(t("numbers", lang)):
            frame.table(rows=lost)
            frame.table(rows=causes)
            frame.table(rows=document["utilization_over_time"])
        sheets = {
            "Finish": document["fan"],
            "Losses": lost,
            "Causes": causes,
            "Utilization": document["utilization_over_time"],
        }
        frame.downloads(document=document, sheets=sheets, stem=f"risk-{scenario.hash()}", lang=lang)
