"""What to optimise next, what it brings, when it has paid, and when to stop."""

import streamlit as st

from planner.report.units import percent
from planner.ui import exports, frame, more_charts, work
from planner.ui.text import plain, t

lang = frame.heading("page.roadmap")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    text, shown = scenario.model_dump_json(), frame.asked_units()
    name = frame.strategy_choice(scenario=scenario, lang=lang, key="roadmap-strategy")
    document = frame.answer_of(compute=lambda: work.roadmap_answer(text, name), lang=lang)
    if document is not None and not document["feasible"]:
        st.warning(t("verdict_none", lang))
    elif document is not None:
        ceilings = document["ceilings"]
        with st.container(horizontal=True):
            st.metric(t("bottleneck", lang), more_charts.cause_text(document["bottleneck"], lang))
            for key in ("glue", "operator", "parallel"):
                st.metric(t(f"ceiling.{key}", lang), percent(ceilings[key]))
            st.metric(t("all_steps", lang), f"{document['waterfall']['speedup']:.2f}×")
        order = document["waterfall"]["sequence"]
        words = "; ".join(f"{s['key'].replace('_', ' ')}: {percent(s['gain_frac'])}" for s in order)
        st.altair_chart(more_charts.waterfall_chart(document=document, lang=lang), width="stretch", alt=words)
        for step in document["steps"]:
            gain = step["gain_frac"]
            title = f"{step['name']} · {percent(gain['p50'])} ({percent(gain['p10'])} – {percent(gain['p90'])})"
            with st.expander(plain(title)):
                weeks = step["effort_weeks"]
                st.markdown(
                    plain(
                        t(
                            "step_line",
                            lang,
                            weeks=f"{weeks['mid']:.1f}",
                            low=f"{weeks['low']:.1f}",
                            high=f"{weeks['high']:.1f}",
                            cost=shown.money(step["cost_usd"]),
                            saving=shown.money(step["expected_saving_usd"]),
                            payback=step["payback_date"] or "—",
                            success=percent(step["p_success"]),
                            risk=step["risk"],
                        )
                    )
                )
                frame.table(rows=step["checks"])
        cutoff = document["cutoff"]
        if cutoff.get("next"):
            st.info(
                plain(
                    t(
                        "cutoff",
                        lang,
                        steps=cutoff["after_steps"],
                        next=cutoff["next"],
                        gain=shown.money(cutoff["next_gain_usd"]),
                        cost=shown.money(cutoff["next_cost_usd"]),
                    )
                )
            )
        refused = [{t("step", lang): k, t("why", lang): v} for k, v in document["refused"].items()]
        with st.expander(t("refused", lang)):
            frame.table(rows=refused)
        flat = [{r["setting"]: r["value"] for r in exports.flat({k: v for k, v in s.items() if k != "checks"})}
                for s in document["steps"]]  # fmt: skip
        sheets = {"Steps": flat, "Order": order, "Refused": refused}
        frame.downloads(document=document, sheets=sheets, stem=f"roadmap-{scenario.hash()}", lang=lang)
