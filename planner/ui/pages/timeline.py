"""One step by stage and stream, as the events ran it; the whole of it as a trace for Perfetto."""

import streamlit as st

from planner.report.units import percent, seconds, whole
from planner.ui import frame, timeline, work
from planner.ui.text import plain, t

ZOOMS = (1, 2, 5, 10, 20, 50, 100, 200, 500)

lang = frame.heading("page.timeline")
scenario = frame.plan_scenario(lang)
if scenario is not None:
    text = scenario.model_dump_json()
    name = frame.strategy_choice(scenario=scenario, lang=lang, key="timeline-strategy")
    step = frame.answer_of(compute=lambda: work.step_timeline(text, name), lang=lang)
    if step is not None:
        shown = timeline.stages_shown(step.stages)
        streams = [s for s in timeline.STREAMS if s in step.streams]
        with st.container(horizontal=True):
            st.metric(t("one_step", lang), seconds(step.step_s))
            st.metric(t("stages", lang), whole(step.stages))
            st.metric(t("micro_batches", lang), whole(step.micro_batches))
            st.metric(t("time.bubble", lang), percent(step.bubble_frac))
        chosen = st.pills(
            t("streams", lang),
            streams,
            selection_mode="multi",
            default=streams,
            key=f"timeline-streams-{len(streams)}",
            format_func=lambda s: t(f"stream.{s}", lang),
        )
        lanes = timeline.by_lane(spans=step.spans, stages=shown, streams=chosen or streams)
        first = timeline.first_zoom(spans=sum(map(len, lanes.values())), zooms=ZOOMS)
        left, right = st.columns([1, 2], gap="medium")
        zoom = int(
            left.select_slider(
                t("zoom", lang),
                ZOOMS,
                value=first,
                key=f"timeline-zoom-{scenario.hash()}-{name}",
                format_func=lambda z: f"{z} ×",
            )
        )
        where = right.slider(t("position", lang), 0.0, 100.0, 0.0, 0.1, "%.1f %%", key="timeline-at", disabled=zoom < 2)
        width_s = step.step_s / zoom
        start_s = (step.step_s - width_s) * (where / 100 if zoom > 1 else 0.0)
        end_s = start_s + width_s
        words = t("gantt_alt", lang, stages=step.stages, step=seconds(step.step_s), bubble=percent(step.bubble_frac))
        if zoom > 1:
            whole_step = timeline.bars(
                lanes={k: v for k, v in lanes.items() if k.endswith("/compute")} or lanes, start_s=0, end_s=step.step_s
            )
            st.caption(t("whole_step", lang))
            overview = timeline.gantt_chart(
                found=whole_step, start_s=0, end_s=step.step_s, lang=lang, window_s=(start_s, end_s)
            )
            st.altair_chart(overview, width="stretch", alt=words)
        found = timeline.bars(lanes=lanes, start_s=start_s, end_s=end_s)
        joined = sum(b.count for b in found if b.count > 1)
        chart = timeline.gantt_chart(found=found, start_s=start_s, end_s=end_s, lang=lang)
        st.altair_chart(chart, width="stretch", alt=words)
        notes = [t("gantt_note", lang)]
        if len(shown) < step.stages:
            notes.append(t("stages_left_out", lang, shown=len(shown), stages=step.stages))
        if joined:
            notes.append(t("bars_joined", lang, spans=whole(joined)))
        st.caption(plain(" ".join(notes)))
        st.download_button(
            t("download_trace", lang),
            lambda: work.step_trace(text, name),
            f"step-{scenario.hash()}.json.gz",
            "application/gzip",
            on_click="ignore",
            icon=":material/download:",
            help=t("trace_help", lang),
        )
        with st.expander(t("busy_by_stage", lang)):
            rows = timeline.stage_rows(spans=step.spans, stages=step.stages, step_s=step.step_s, lang=lang)
            share = {c: st.column_config.NumberColumn(c, format="percent") for c in list(rows[0])[1:]}
            frame.table(rows=rows, config=share)
