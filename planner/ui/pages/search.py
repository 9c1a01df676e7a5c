"""Every layout: time against memory, the best ten and why each wins; a point or a row becomes the plan."""

import streamlit as st

from planner.report.units import seconds, whole
from planner.ui import frame, more_charts, work
from planner.ui.text import plain, t

lang = frame.heading("page.search")
scenario = frame.plan_scenario(lang)
shown = frame.asked_units()
document = None
if scenario is not None:
    base = frame.before_adoption()
    mark = base.hash()
    if frame.asked_for(label="do_search", state=f"search-{mark}", lang=lang):
        command = ["search", "scenario.yaml", "--json"]
        document = frame.long_answer(command=command, key="search", lang=lang, scenario=base)
if scenario is not None and document is not None and not document["best"]:
    st.warning(t("verdict_none", lang))
elif scenario is not None and document is not None:
    line = t(
        "searched",
        lang,
        plans=whole(document["plans_total"]),
        memory=whole(document["plans_out_of_memory"]),
        time=seconds(document["seconds"]),
    )
    st.success(line)
    if document["interrupted"]:
        st.warning(t("stopped_early", lang))
    st.caption(t("pick", lang))
    points = {p["id"]: p for p in more_charts.plan_points(document)}
    best = document["best"][0]
    words = f"{t('best_ten', lang)}: {more_charts.short_plan(best['plan'])}, {seconds(best['step_s'])}"
    event = st.altair_chart(
        more_charts.pareto_chart(document=document, lang=lang, shown=shown),
        width="stretch",
        alt=words,
        on_select="rerun",
        selection_mode=["picked"],
        key=f"pareto-{mark}",
    )
    rows = more_charts.plan_rows(document=document, lang=lang, shown=shown)
    table = st.dataframe(
        rows,
        hide_index=True,
        width="stretch",
        on_select="rerun",
        selection_mode="single-row",
        key=f"best-{mark}",
    )
    clicked = [str(p.get("id")) for p in event.selection.get("picked", [])]
    chosen = [f"b{i + 1}" for i in table.selection.rows]
    # What changed last wins: a row after a point, a point after a row.
    before = st.session_state.get("picked_before", ([], []))
    picks = clicked if clicked != before[0] and clicked else chosen or clicked
    st.session_state["picked_before"] = (clicked, chosen)
    pick = points.get(picks[0] if picks else "b1", best)
    with st.container(border=True):
        st.subheader(t("plan_picked", lang, plan=more_charts.short_plan(pick["plan"])))
        with st.container(horizontal=True):
            st.metric(t("one_step", lang), seconds(pick["step_s"]))
            st.metric(t("days", lang), shown.days(pick["days"]))
            st.metric(t("cost", lang), plain(shown.money(pick["cost_usd"])))
            st.metric(t("peak_memory", lang), shown.gigabytes(pick["memory_peak_gb"]))
        if "why" in pick:
            st.markdown(plain(pick["why"]))
            st.caption(t("limited_by", lang, cause=more_charts.cause_text(pick["limited_by"], lang)))
        st.code(work.plan_yaml(pick["strategy"]), language="yaml")
        st.button(
            t("take_plan", lang),
            key=f"take-{pick['id']}",
            on_click=frame.adopt,
            args=(pick["strategy"],),
            icon=":material/check:",
        )
        st.page_link("planner/ui/plan.py", label=t("to_plan", lang), icon=":material/calculate:")
    flat = [
        {"id": p["id"], "step_s": p["step_s"], "days": p["days"], "cost_usd": p["cost_usd"],
         "memory_peak_gb": p["memory_peak_gb"]} | {k: str(v) for k, v in p["strategy"].items()}
        for p in points.values()
    ]  # fmt: skip
    frame.downloads(document=document, sheets={"Plans": flat}, stem=f"search-{scenario.hash()}", lang=lang)
