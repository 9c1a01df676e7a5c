"""Goals in, cluster out: which GPUs, how many, rented or bought, and what to measure before paying."""

import streamlit as st

from planner.report.units import percent, whole
from planner.ui import exports, frame
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
                line = t(
                    "size_answer",
                    lang,
                    nodes=whole(best["nodes"]),
                    node=best["node"],
                    gpus=whole(best["gpus"]),
                    source=f"{best['provider']}, {best['tenure'].replace('_', ' ')}",
                    days=shown.days(best["days"]["p50"]),
                    cost=shown.money(best["cost_usd"]["p50"]),
                )
                (st.success if document["feasible"] else st.warning)(plain(line))
                with st.container(horizontal=True):
                    for key, value in (("p_deadline", document["p_deadline"]), ("p_budget", document["p_budget"])):
                        if value is not None:
                            st.metric(t(key, lang), percent(value))
                    st.metric(t("racks", lang), whole(document["required"]["racks"]))
                    st.metric(t("power", lang), whole(document["required"]["power_kw"]))
                    st.metric(t("spares", lang), whole(best["spares"]))
            if document["relax"]:
                st.subheader(t("relax", lang))
                frame.table(rows=document["relax"])
            st.subheader(t("acceptance", lang))
            frame.table(rows=document["acceptance"])
            st.subheader(t("options", lang))
            options = [{r["setting"]: r["value"] for r in exports.flat(o)} for o in document["options"]]
            frame.table(rows=options)
            sheets = {"Options": options, "Acceptance": document["acceptance"], "Relax": document["relax"] or []}
            frame.downloads(document=document, sheets=sheets, stem=f"size-{asked.hash()}", lang=lang)
