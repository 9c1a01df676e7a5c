"""Every layout: the best ten, why each wins, and time against memory."""

import streamlit as st

from planner.report.units import days, dollars, seconds, whole
from planner.ui import frame, more_charts, work
from planner.ui.text import plain, t

lang = frame.heading("page.search")
scenario = frame.plan_scenario(lang)
text = "" if scenario is None else scenario.model_dump_json()
if scenario is not None and frame.asked_for(label="do_search", state=f"search-{scenario.hash()}", lang=lang):
    document = frame.answer_of(compute=lambda: work.search_answer(text), lang=lang)
    if document is not None and not document["best"]:
        st.warning(t("verdict_none", lang))
    elif document is not None:
        st.success(
            t(
                "searched",
                lang,
                plans=whole(document["plans_total"]),
                memory=whole(document["plans_out_of_memory"]),
                time=seconds(document["seconds"]),
            )
        )
        st.altair_chart(more_charts.pareto_chart(document=document, lang=lang), width="stretch")
        for rank, best in enumerate(document["best"], 1):
            with st.expander(
                plain(f"{rank} · {seconds(best['step_s'])} · {days(best['days'])} · {dollars(best['cost_usd'])}")
            ):
                st.markdown(plain(best["why"]))
                st.caption(t("limited_by", lang, cause=more_charts.cause_text(best["limited_by"], lang)))
                st.code(work.plan_yaml(best["plan"]), language="yaml")
                if best["plan"].get("tp") and st.button(t("take_plan", lang), key=f"take-{rank}"):
                    frame.store_plan(
                        frame.stored_plan()
                        | {
                            "tp": best["plan"]["tp"],
                            "pp": best["plan"]["pp"],
                            "micro": best["plan"]["micro_batch_sequences"],
                            "recompute": best["plan"]["recompute"],
                        }
                    )
                    st.toast(t("taken", lang))
