"""Goals in, cluster out: which GPUs, how many, rented or bought, and what to measure before paying."""

import streamlit as st

from planner.ui import exports, frame, sizing
from planner.ui.text import plain, t

lang = frame.heading("page.size")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    goals, shown = scenario.goals, frame.asked_units()
    with st.container(horizontal=True):
        deadline = st.number_input(
            t("deadline", lang), 1.0, 3650.0, float(goals.deadline_days or 60.0), key="size-deadline"
        )
        budget = st.number_input(
            t("budget", lang), 1e3, 1e12, float(goals.budget_usd or 5e6), step=1e5, key="size-budget"
        )
        power = st.number_input(t("power", lang), 0.0, 1e6, float(goals.power_kw or 0.0), key="size-power")
    wanted = goals.model_copy(
        update={"deadline_days": deadline, "budget_usd": budget, "power_kw": power if power > 0 else None}
    )
    asked = scenario.model_copy(update={"goals": wanted})
    if frame.asked_for(label="do_size", state=f"size-{asked.hash()}", lang=lang):
        command = ["size", "scenario.yaml", "--json"]
        document = frame.long_answer(command=command, key="size", lang=lang, scenario=asked)
        if document is not None:
            best = document["recommended"]
            if best is None:
                st.warning(t("verdict_none", lang))
            else:
                line = sizing.line(key="size_answer", option=best, lang=lang, shown=shown)
                (st.success if document["feasible"] else st.warning)(plain(line))
                sizing.figures(document=document, lang=lang)
            sizing.details(document=document, lang=lang, shown=shown)
            options = [{r["setting"]: r["value"] for r in exports.flat(o)} for o in document["options"]]
            sheets = {"Options": options, "Acceptance": document["acceptance"], "Relax": document["relax"] or []}
            frame.downloads(document=document, sheets=sheets, stem=f"size-{asked.hash()}", lang=lang)
