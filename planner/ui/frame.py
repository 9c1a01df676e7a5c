"""What every page shares: language, the plan of the session, its address, uploads, tables."""

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from planner import catalog
from planner.profile.load import shipped
from planner.scenario import Scenario, ScenarioError, Strategy, parse_scenario
from planner.scenario.reader import plain as plain_tree
from planner.scenario.reader import read_yaml
from planner.ui import work
from planner.ui.text import DEFAULT, LANGUAGES, plain, t

FIRST = "llama3-70b-256xh100"
UPLOADED = "uploaded"
# An address holds a preset's name and a handful of numbers; anything longer is not one of ours.
MAX_ADDRESS, MAX_PLAN = 2_000, 4_000
UNDO_STEPS = 50
EDITS = ("nodes", "batch", "tp", "pp", "micro", "recompute")


def asked_language() -> str:
    """The language of this session before any control is drawn."""
    if "lang" not in st.session_state:
        asked = st.query_params.get("lang", DEFAULT)
        st.session_state["lang"] = asked if asked in LANGUAGES else DEFAULT
    return str(st.session_state["lang"] or DEFAULT)


def language() -> str:
    """The language control, bound to the query parameter `lang`."""
    asked = asked_language()
    # Streamlit forgets a control that a page did not draw; assigning keeps it over page changes.
    st.session_state["lang"] = asked
    chosen = st.segmented_control(
        t("language", DEFAULT), LANGUAGES, key="lang", label_visibility="collapsed", required=True, width="content"
    )
    lang = chosen or DEFAULT
    if st.query_params.get("lang", DEFAULT) != lang:
        st.query_params["lang"] = lang
    return lang


def heading(title: str) -> str:
    """Title and language control; returns the language."""
    left, right = st.columns([5, 1], vertical_alignment="center")
    with right:
        lang = language()
    left.title(t(title, lang))
    return lang


def encode(plan: Mapping[str, Any]) -> str:
    """A plan (preset and edits) as text for an address."""
    raw = json.dumps(plan, separators=(",", ":"), sort_keys=True).encode()
    return base64.urlsafe_b64encode(zlib.compress(raw, 9)).decode().rstrip("=")


def decode(text: str) -> dict[str, Any] | None:
    """The plan of an address; None where it is not one of ours (size, encoding, keys and types are checked)."""
    if len(text) > MAX_ADDRESS:
        return None
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        reader = zlib.decompressobj()
        raw = reader.decompress(packed, MAX_PLAN)
        if reader.unconsumed_tail:
            return None
        found = json.loads(raw)
    except (ValueError, binascii.Error, zlib.error, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("preset"), str):
        return None
    if set(found) - {"preset", *EDITS}:
        return None
    for key in ("nodes", "batch", "tp", "pp"):
        value = found.get(key)
        if value is not None and (type(value) is not int or not 1 <= value <= 1 << 24):
            return None
    micro, redo = found.get("micro"), found.get("recompute")
    if micro is not None and micro != work.AUTO and (type(micro) is not int or not 1 <= micro <= 1 << 16):
        return None
    return found if redo in {None, work.AUTO, "none", "selective", "full"} else None


def stored_plan() -> dict[str, Any]:
    """Preset and edits of this session: those of the address when it has just been opened."""
    if "plan" not in st.session_state:
        asked = st.query_params.get("plan")
        found = decode(asked) if asked else None
        if asked and (found is None or found["preset"] not in work.preset_names()):
            st.session_state["bad_address"] = True
            found = None
        names = work.preset_names()
        st.session_state["plan"] = found or {"preset": FIRST if FIRST in names else (names[0] if names else "")}
        st.session_state["history"] = []
    return dict(st.session_state["plan"])


def store_plan(plan: Mapping[str, Any]) -> None:
    """Keep the plan for the other pages, in the address, and in the history of this session."""
    before = st.session_state.get("plan")
    # The first drawing of a preset only writes its own settings out: nothing to take back.
    opened = before is not None and set(before) == {"preset"} and before["preset"] == plan.get("preset")
    if before is not None and dict(plan) != before and not opened:
        st.session_state["history"] = [*st.session_state.get("history", []), before][-UNDO_STEPS:]
    st.session_state["plan"] = dict(plan)
    if plan.get("preset") != UPLOADED:
        text = encode(plan)
        if st.query_params.get("plan") != text:
            st.query_params["plan"] = text


def undo() -> None:
    """Back to the plan before the last change."""
    history = st.session_state.get("history", [])
    if history:
        st.session_state["plan"] = history[-1]
        st.session_state["history"] = history[:-1]
        st.session_state["revision"] = st.session_state.get("revision", 0) + 1


def base_scenario(plan: Mapping[str, Any]) -> Scenario:
    """The scenario a plan starts from.

    Raises:
        ScenarioError, OSError, KeyError: it cannot be read.
    """
    if plan["preset"] == UPLOADED:
        return Scenario.model_validate_json(st.session_state["uploaded"])
    return work.load_preset(str(plan["preset"]))


def edited(*, scenario: Scenario, plan: Mapping[str, Any]) -> Scenario:
    """The scenario with a plan's edits in it."""
    name = work.editable(scenario)
    own = scenario.strategies.get(name) if name else None
    own = own if isinstance(own, Strategy) else None
    return work.edit(
        scenario=scenario,
        nodes=plan.get("nodes") or scenario.cluster.nodes,
        batch=plan.get("batch") or scenario.training.global_batch_sequences,
        name=name,
        tp=plan.get("tp") or (own.tp if own and own.tp else 1),
        pp=plan.get("pp") or (own.pp if own and own.pp else 1),
        micro=plan.get("micro") or (own.micro_batch_sequences if own and own.micro_batch_sequences else work.AUTO),
        recompute=plan.get("recompute") or (own.recompute if own and own.recompute else work.AUTO),
    )


def parse_upload(raw: bytes) -> Scenario:
    """A scenario file that somebody sent: names and inline shapes only, no path of this machine.

    Raises:
        ScenarioError: with every problem found.
        ValueError: it names a file.
    """
    text = raw.decode("utf-8", errors="replace")
    tree = plain_tree(read_yaml(text=text, file="upload")[0])
    cluster = tree.get("cluster") if isinstance(tree.get("cluster"), dict) else {}
    model, fabric = tree.get("model"), cluster.get("fabric")
    if isinstance(model, str) and model not in catalog.models():
        raise ValueError(f"model {model!r}: an uploaded scenario names a model of the catalogue or its shape")
    if cluster.get("site") is not None:
        raise ValueError("cluster.site: an uploaded scenario names no file")
    if cluster.get("profile") not in {None, *shipped()}:
        raise ValueError(f"cluster.profile: one of {', '.join(shipped())}")
    if isinstance(fabric, str) and fabric not in {"ib", "roce", "efa", "opa", "ethernet", "tcpx", "none"}:
        raise ValueError(f"cluster.fabric {fabric!r}: an uploaded scenario names a kind of fabric, no file")
    return parse_scenario(text, file="upload")


def plan_scenario(lang: str) -> Scenario | None:
    """The scenario of this session with its edits, `auto` strategies searched; an error is shown, not raised."""
    plan = stored_plan()
    if not plan.get("preset"):
        st.error(t("no_presets", lang))
        return None
    try:
        scenario = edited(scenario=base_scenario(plan), plan=plan)
        with st.spinner(t("working", lang)):
            scenario = work.resolved(scenario.model_dump_json())
    except (ScenarioError, OSError, KeyError, ValueError) as error:
        st.error(plain(t("bad_preset", lang, reason=error)))
        return None
    store_plan(plan)
    st.caption(f"**{plain(scenario.name)}** · {work.one_line(scenario)}")
    wrong = work.problems(scenario)
    for name, reason in wrong.items():
        st.error(plain(t("cannot_place", lang, name=name, reason=reason)))
    kept = {k: s for k, s in scenario.strategies.items() if k not in wrong}
    return scenario.model_copy(update={"strategies": kept}) if kept else None


def strategy_choice(*, scenario: Scenario, lang: str, key: str) -> str:
    """One strategy of the scenario; the last written one by default."""
    names = list(scenario.strategies)
    if len(names) == 1:
        return names[0]
    return str(st.segmented_control(t("strategy", lang), names, default=names[-1], required=True, key=key))


def answer_of(*, compute: Callable[[], Any], lang: str) -> Any | None:
    """The answer with a spinner, or its error on the page and None."""
    try:
        with st.spinner(t("working", lang)):
            return compute()
    except (ValueError, TypeError, LookupError, ArithmeticError, OSError) as error:
        st.error(plain(t("cannot_forecast", lang, reason=error)))
        return None


def asked_for(*, label: str, state: str, lang: str) -> bool:
    """A button for work of more than a second or two; once pressed, the answer stays for this plan."""
    if st.button(t(label, lang), type="primary", key=f"button-{state}"):
        st.session_state[state] = True
    return bool(st.session_state.get(state))


def table(*, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any] | None = None) -> None:
    """A table that a screen reader can read and a spreadsheet can take."""
    st.dataframe([dict(r) for r in rows], column_config=dict(config or {}), hide_index=True, width="stretch")
