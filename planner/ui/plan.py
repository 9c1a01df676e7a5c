"""The page Plan: a scenario, its settings, the answer, and what the answer rests on."""

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.report.units import seconds, whole
from planner.scenario import Scenario, ScenarioError, Strategy
from planner.ui import answer, exports, frame, uploads, work
from planner.ui.first import first_estimates
from planner.ui.text import plain, t

MICRO = (work.AUTO, 1, 2, 4, 8, 16)
RECOMPUTE = (work.AUTO, "none", "selective", "full")


def settings(*, preset: str, scenario: Scenario, box: Any, lang: str) -> Scenario:
    """The side bar's inputs, and the scenario with them in it; they are kept for the other pages and the address."""
    kept = frame.stored_plan() if frame.stored_plan().get("preset") == preset else {}
    mark = f"{preset}{'-' + str(st.session_state['revision']) if st.session_state.get('revision') else ''}"
    with box:
        st.subheader(t("cluster", lang))
        choices = work.node_choices(scenario)
        nodes = scenario.cluster.nodes
        if len(choices) > 1:
            nodes = kept.get("nodes") or nodes
            choices = sorted({*choices, nodes})
            nodes = st.select_slider(t("nodes", lang), choices, value=nodes, key=f"nodes-{mark}")
        own = scenario.training.global_batch_sequences
        first = min(1 << 20, kept.get("batch") or own)
        batch = int(st.number_input(t("batch", lang), 1, 1 << 20, first, step=max(1, own // 4), key=f"batch-{mark}"))
        name = work.editable(scenario)
        tp, pp, recompute = 1, 1, work.AUTO
        micro: Any = work.AUTO
        strategy = scenario.strategies[name] if name else None
        if name and isinstance(strategy, Strategy):
            st.subheader(t("edit", lang, name=name))
            tp, pp = kept.get("tp") or strategy.tp or 1, kept.get("pp") or strategy.pp or 1
            tps, pps = (work.powers_of_two(most=most, own=value) for most, value in ((16, tp), (64, pp)))
            tp = st.select_slider(t("tp", lang), tps, value=tp, key=f"tp-{mark}")
            pp = st.select_slider(t("pp", lang), pps, value=pp, key=f"pp-{mark}")
            size: Any = kept.get("micro") or strategy.micro_batch_sequences or work.AUTO
            redo: Any = kept.get("recompute") or strategy.recompute or work.AUTO
            sizes = MICRO if size in MICRO else (*MICRO, size)
            micro = st.selectbox(t("micro", lang), sizes, index=sizes.index(size), key=f"micro-{mark}")
            recompute = st.selectbox(
                t("recompute", lang), RECOMPUTE, index=RECOMPUTE.index(redo), key=f"recompute-{mark}"
            )
            st.caption(t("auto_help", lang))
        chosen = {"nodes": nodes, "batch": batch} | (
            {"tp": tp, "pp": pp, "micro": micro, "recompute": recompute} if name else {}
        )
        taken = {"strategy": kept["strategy"]} if "strategy" in kept else {}
        frame.store_plan({"preset": preset, **chosen, **taken})
        edited = work.edit(
            scenario=scenario, nodes=nodes, batch=batch, name=name, tp=tp, pp=pp, micro=micro, recompute=recompute
        )
        _say_what_followed(before=scenario, after=edited, name=name, lang=lang)
    return edited


def _say_what_followed(*, before: Scenario, after: Scenario, name: str | None, lang: str) -> None:
    pairs = [(before.strategies[k], after.strategies[k]) for k in before.strategies]
    if any(isinstance(a, Strategy) and isinstance(b, Strategy) and a.dp != b.dp for a, b in pairs):
        st.caption(t("dp_freed", lang))
    if name:
        old, new = before.strategies[name], after.strategies[name]
        if isinstance(old, Strategy) and isinstance(new, Strategy) and (old.vpp or 1) != (new.vpp or 1):
            st.caption(t("vpp_changed", lang, vpp=new.vpp or 1, layers=before.model_spec.layers))


def subtitle(*, scenario: Scenario, lang: str) -> None:
    """The scenario in one line."""
    training, cluster = scenario.training, scenario.cluster
    tokens = f"{training.tokens / 1e12:g} T" if training.tokens >= 1e12 else f"{training.tokens / 1e9:g} B"
    st.caption(
        t(
            "subtitle",
            lang,
            model=scenario.model_spec.name,
            gpus=whole(scenario.gpus),
            nodes=whole(cluster.nodes),
            node=cluster.node,
            tokens=tokens,
            sequence=whole(training.sequence_length),
            batch=whole(training.global_batch_sequences),
        )
    )


def page() -> None:
    """The whole page, top to bottom."""
    lang = frame.heading("title")
    names = work.preset_names()
    if not names:
        st.error(t("no_presets", lang))
        return
    kept = frame.stored_plan()
    if st.session_state.pop("bad_address", False):
        st.warning(t("bad_address", lang))
    scenario = chosen_scenario(names=names, kept=kept, lang=lang)
    if scenario is None:
        return
    if st.session_state.get("history"):
        st.button(t("undo", lang), on_click=frame.undo, icon=":material/undo:", shortcut="Ctrl+Z")
    subtitle(scenario=scenario, lang=lang)
    frame.say_files(lang)
    wrong = work.problems(scenario)
    for name, reason in wrong.items():
        st.error(plain(t("cannot_place", lang, name=name, reason=reason)))
    placed = {k: s for k, s in scenario.strategies.items() if k not in wrong}
    if placed:
        show_answer(scenario=scenario, placed=scenario.model_copy(update={"strategies": placed}), lang=lang)


def chosen_scenario(*, names: list[str], kept: Mapping[str, Any], lang: str) -> Scenario | None:
    """A preset or an upload, with the settings of the side bar in it; an error is shown and gives None."""
    options = [*names, *([frame.UPLOADED] if "uploaded" in st.session_state else [])]
    start = options.index(kept["preset"]) if kept.get("preset") in options else 0
    preset = str(
        st.selectbox(
            t("preset", lang),
            options,
            index=start,
            key=f"preset{st.session_state.get('revision', '')}",
            format_func=lambda x: t("uploaded", lang) if x == frame.UPLOADED else x,
        )
    )
    box = st.sidebar.container()
    with st.sidebar.expander(t("own_files", lang), icon=":material/upload_file:"):
        sent = st.file_uploader(t("upload", lang), type=["yaml", "yml"], key="upload", max_upload_size=1)
        model = st.file_uploader(t("upload_model", lang), type=["json"], key="upload-model", max_upload_size=1)
    try:
        if sent is not None and st.session_state.get("upload_id") != sent.file_id:
            st.session_state["upload_id"] = sent.file_id
            st.session_state["uploaded"] = uploads.scenario_of(sent.getvalue()).model_dump_json()
            frame.store_plan({"preset": frame.UPLOADED})
            st.session_state["revision"] = st.session_state.get("revision", 0) + 1
            st.rerun()
        if model is not None and st.session_state.get("model_id") != model.file_id:
            st.session_state["model_id"] = model.file_id
            frame.keep_file(uploads.model_of(model.getvalue(), file_name=model.name)[0])
            st.rerun()
        taken = {"strategy": kept["strategy"]} if "strategy" in kept and kept["preset"] == preset else {}
        scenario = frame.base_scenario({"preset": preset, **taken})
        scenario = settings(preset=preset, scenario=scenario, box=box, lang=lang)
        return work.resolved(scenario.model_dump_json())
    except (ScenarioError, OSError, KeyError, ValueError) as error:
        st.error(plain(t("bad_preset", lang, reason=uploads.without_paths(str(error)))))
        return None


def show_answer(*, scenario: Scenario, placed: Scenario, lang: str) -> None:
    """Verdict, figures, pictures and sources of the strategies that can be placed."""
    shown = frame.asked_units()
    holder = st.empty()
    estimates = first_estimates(placed)
    if estimates:
        with holder.container(border=True):
            st.caption(t("first_estimate", lang))
            for name, (step_s, length_days) in estimates.items():
                words = t("first_line", lang, name=name, step=seconds(step_s), days=shown.days(length_days))
                st.markdown(plain(words))
    document = frame.answer_of(compute=lambda: work.comparison(placed.model_dump_json()), lang=lang)
    holder.empty()
    if document is None:
        return
    docs: answer.Documents = document["strategies"]
    answer.over_memory(docs=docs, lang=lang, shown=shown)
    answer.verdict(document=document, lang=lang, shown=shown)
    for name, doc in docs.items():
        answer.figures(name=name, doc=doc, lang=lang, shown=shown)
    answer.pictures(docs=docs, scenario=placed, lang=lang, shown=shown)
    answer.explain(docs=docs, lang=lang)
    warnings = list(dict.fromkeys(w for doc in docs.values() for w in doc["warnings"]))
    if warnings:
        st.warning(plain(f"**{t('warnings', lang)}**\n\n" + "\n".join(f"- {w}" for w in warnings)))
    st.subheader(t("downloads", lang))
    answer.scenario_download(scenario=scenario, lang=lang)
    local, _ = uploads.bundle(scenario, frame.files())
    sheets = exports.forecast_sheets(document=document, scenario=json.loads(local.model_dump_json()))
    frame.downloads(document=document, sheets=sheets, stem=f"plan-{scenario.hash()}", lang=lang)
    answer.report(scenario=placed, lang=lang)


page()
