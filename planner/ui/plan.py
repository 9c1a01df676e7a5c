"""The page Plan: a scenario, its settings, the answer, and what the answer rests on."""

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.report.units import days, dollars, gigabytes, percent, seconds, whole
from planner.scenario import Scenario, ScenarioError, Strategy
from planner.ui import charts, frame, work
from planner.ui.text import flip_text, plain, t

MICRO = (work.AUTO, 1, 2, 4, 8, 16)
RECOMPUTE = (work.AUTO, "none", "selective", "full")
METRIC_PX = 154  # two side by side on a phone
Documents = Mapping[str, Mapping[str, Any]]


def settings(*, preset: str, scenario: Scenario, lang: str) -> Scenario:
    """The side bar's inputs, and the scenario with them in it; they are kept for the other pages and the address."""
    kept = frame.stored_plan() if frame.stored_plan().get("preset") == preset else {}
    mark = f"{preset}{'-' + str(st.session_state['revision']) if st.session_state.get('revision') else ''}"
    with st.sidebar:
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
        frame.store_plan({"preset": preset, **chosen})
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
    model = scenario.model if isinstance(scenario.model, str) else scenario.model_spec.name
    st.caption(
        t(
            "subtitle",
            lang,
            model=model,
            gpus=whole(scenario.gpus),
            nodes=whole(cluster.nodes),
            node=cluster.node,
            tokens=tokens,
            sequence=whole(training.sequence_length),
            batch=whole(training.global_batch_sequences),
        )
    )


def verdict(*, document: Mapping[str, Any], lang: str) -> None:
    """The answer in a sentence, and what would change it."""
    docs: Documents = document["strategies"]
    best = document["verdict"]["choice"]
    if best is None:
        st.warning(t("verdict_none", lang))
        return
    own, others = docs[best], [n for n in docs if n != best and docs[n]["fits"]]
    if not others:
        sentences = [
            t(
                "verdict_only",
                lang,
                best=best,
                days=days(own["days"]["p50"]),
                cost=dollars(own["cost_usd_total"]["p50"]),
            )
        ]
    else:
        sentences = []
        for i, other in enumerate(others):
            gap = docs[other]["days"]["p50"] - own["days"]["p50"]
            saved = docs[other]["cost_usd_total"]["p50"] - own["cost_usd_total"]["p50"]
            side = t("earlier" if gap >= 0 else "later", lang)
            key = "verdict_also" if i else "verdict_gap"
            sentences.append(t(key, lang, best=best, other=other, saved=dollars(saved), gap=days(abs(gap)), side=side))
        fastest = document["verdict"]["fastest"]
        if fastest != best:
            sentences.append(t("fastest", lang, name=fastest))
        if any(_overlap(own["step_s"], docs[o]["step_s"]) for o in others):
            sentences.append(t("overlap", lang))
    st.success(plain(("" if lang == "zh" else " ").join(sentences)))
    if document["flips_at"]:
        with st.expander(t("flips", lang)):
            st.markdown(plain("\n".join(f"- {flip_text(flip=f, lang=lang)}" for f in document["flips_at"])))


def _overlap(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    return a["p10"] < b["p90"] and b["p10"] < a["p90"]


def figures(*, name: str, doc: Mapping[str, Any], lang: str) -> None:
    """The metric row of a strategy."""
    fits, lay = doc["fits"], doc["strategy"]
    with st.container(border=True):
        st.markdown(f"**{name}**")
        with st.container(horizontal=True):
            cost = doc.get("cost_usd_total") or {}
            for key, value in (
                ("days", days(doc["days"]["p50"]) if fits else "—"),
                ("cost", dollars(cost["p50"]) if fits else "—"),
                ("mfu", percent(doc["mfu"]) if fits else "—"),
                ("fits", t("yes" if fits else "no", lang)),
            ):
                st.metric(t(key, lang), plain(value), width=METRIC_PX)
        if fits:
            low, high = doc["days"]["p10"], doc["days"]["p90"]
            words = t(
                "range",
                lang,
                days_low=days(low),
                days_high=days(high),
                cost_low=dollars(cost["p10"]),
                cost_high=dollars(cost["p90"]),
                step=seconds(doc["step_s"]["p50"]),
            )
            st.caption(plain(words))
        degrees = " ".join(
            f"{k.upper()}{lay[k]}" for k in ("tp", "pp", "vpp", "cp", "ep", "dp") if lay[k] > 1 or k == "dp"
        )
        st.caption(
            t(
                "layout",
                lang,
                degrees=degrees,
                zero=lay["zero_stage"],
                micro=lay["micro_batch_sequences"],
                count=lay["micro_batches"],
                recompute=lay["recompute"],
                software=f"{lay['framework']['name']} {lay['framework']['release']}",
            )
        )


def pictures(*, docs: Documents, scenario: Scenario, lang: str) -> None:
    """Breakdown, memory and scaling."""
    feasible = {n: d for n, d in docs.items() if d["fits"]}
    left, right = st.columns(2, gap="large")
    if feasible:
        with left:
            st.subheader(t("breakdown", lang))
            st.altair_chart(charts.breakdown_chart(documents=feasible, lang=lang), width="stretch")
    with right:
        st.subheader(t("memory", lang))
        st.altair_chart(charts.memory_chart(documents=docs, lang=lang), width="stretch")
    st.subheader(t("scaling", lang))
    points = work.scaling_points(scenario.model_dump_json())
    if len({p["gpus"] for p in points}) > 1:
        st.altair_chart(charts.scaling_chart(points=points, names=list(docs), lang=lang), width="stretch")
        st.caption(t("scaling_note", lang))
    else:
        st.caption(t("no_scaling", lang))


def explain(*, docs: Documents, lang: str) -> None:
    """Every figure with its formula, inputs, label and source."""
    fields = ("id", "value", "unit", "formula", "inputs", "label", "source")
    rows = [
        {"strategy": name} | {f: ", ".join(line[f]) if f == "inputs" else line[f] for f in fields}
        for name, doc in docs.items()
        for line in doc["provenance"]
    ]
    config: dict[str, Any] = {f: st.column_config.Column(t(f"col_{f}", lang)) for f in fields if f != "value"}
    config["strategy"] = st.column_config.Column(t("strategy", lang))
    config["value"] = st.column_config.NumberColumn(t("col_value", lang), format="%.5g")
    with st.expander(t("explain", lang)):
        st.caption(t("explain_note", lang))
        for name, doc in docs.items():
            shares = ", ".join(f"{label} {percent(share)}" for label, share in doc["label_share"].items())
            st.caption(t("rests_on", lang, name=name, shares=shares))
        st.dataframe(rows, column_config=config, hide_index=True)


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
        st.button(t("undo", lang), on_click=frame.undo, icon=":material/undo:")
    subtitle(scenario=scenario, lang=lang)
    wrong = work.problems(scenario)
    for name, reason in wrong.items():
        st.error(plain(t("cannot_place", lang, name=name, reason=reason)))
    placed = {k: s for k, s in scenario.strategies.items() if k not in wrong}
    if placed:
        answer(scenario=scenario, placed=scenario.model_copy(update={"strategies": placed}), lang=lang)


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
    with st.sidebar:
        sent = st.file_uploader(t("upload", lang), type=["yaml", "yml"], key="upload", max_upload_size=1)
    try:
        if sent is not None and st.session_state.get("upload_id") != sent.file_id:
            st.session_state["upload_id"] = sent.file_id
            st.session_state["uploaded"] = frame.parse_upload(sent.getvalue()).model_dump_json()
            frame.store_plan({"preset": frame.UPLOADED})
            st.session_state["revision"] = st.session_state.get("revision", 0) + 1
            st.rerun()
        scenario = frame.base_scenario({"preset": preset})
        scenario = settings(preset=preset, scenario=scenario, lang=lang)
        return work.resolved(scenario.model_dump_json())
    except (ScenarioError, OSError, KeyError, ValueError) as error:
        st.error(plain(t("bad_preset", lang, reason=error)))
        return None


def answer(*, scenario: Scenario, placed: Scenario, lang: str) -> None:
    """Verdict, figures, pictures and sources of the strategies that can be placed."""
    try:
        with st.spinner(t("working", lang)):
            document = work.comparison(placed.model_dump_json())
    except ValueError as error:  # ForecastError, CatalogError and what the stages below raise about a setting
        st.error(plain(t("cannot_forecast", lang, reason=error)))
        return
    docs: Documents = document["strategies"]
    for name, doc in docs.items():
        if not doc["fits"]:
            over, capacity = gigabytes(doc["memory_over_gb"]), gigabytes(doc["memory_gb"]["capacity"])
            st.error(t("over_memory", lang, name=name, over=over, capacity=capacity))
    verdict(document=document, lang=lang)
    for name, doc in docs.items():
        figures(name=name, doc=doc, lang=lang)
    pictures(docs=docs, scenario=placed, lang=lang)
    explain(docs=docs, lang=lang)
    warnings = list(dict.fromkeys(w for doc in docs.values() for w in doc["warnings"]))
    if warnings:
        st.warning(plain(f"**{t('warnings', lang)}**\n\n" + "\n".join(f"- {w}" for w in warnings)))
    with st.container(horizontal=True):
        stem = f"plan-{scenario.hash()}"
        st.download_button(t("download_yaml", lang), work.to_yaml(scenario), f"{stem}.yaml", "application/yaml")
        text = json.dumps(document, indent=2, ensure_ascii=False)
        st.download_button(t("download_json", lang), text, f"{stem}.json", "application/json")


page()
