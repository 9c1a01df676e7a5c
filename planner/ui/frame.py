"""What every page shares: language, the plan of the session, its address, uploads, tables."""

import base64
import binascii
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from planner.scenario import Scenario, ScenarioError, Strategy
from planner.ui import exports, jobs, uploads, work
from planner.ui.text import DEFAULT, LANGUAGES, plain, t
from planner.ui.units import CURRENCIES, MEMORY, TIME, Shown, of_code
from planner.ui.units import shown as chosen_units

FIRST = "llama3-70b-256xh100"
UPLOADED = "uploaded"
# An address holds a preset's name and a handful of numbers; anything longer is not one of ours.
MAX_ADDRESS, MAX_PLAN = 2_000, 4_000
UNDO_STEPS = 50
POLL_S = 0.15
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
EDITS = ("nodes", "batch", "tp", "pp", "micro", "recompute", "strategy")
SEARCHED = "searched"


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
    """Title, language and units; returns the language."""
    left, right = st.columns([4, 1], vertical_alignment="center")
    with right, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        lang = language()
        units(lang)
    left.title(t(title, lang))
    return lang


def asked_units() -> Shown:
    """The units of this session; those of the address when it has just been opened."""
    if "currency" not in st.session_state:
        return of_code(st.query_params.get("units", ""))
    return chosen_units(**{k: str(st.session_state[k] or "") for k in ("memory", "time", "currency")})


def units(lang: str) -> None:
    """The controls of bytes, time and money behind a button, and their parameter in the address."""
    asked = asked_units()
    # Assigning keeps a control over pages, as for the language.
    for key, value in (("memory", asked.memory), ("time", asked.time), ("currency", asked.rate.currency)):
        st.session_state[key] = value
    with st.popover(t("units", lang), icon=":material/straighten:"):
        choices = (("memory", MEMORY), ("time", TIME), ("currency", CURRENCIES))
        for key, options in choices:
            st.segmented_control(
                t(f"unit_{key}", lang),
                options,
                key=key,
                required=True,
                format_func=(lambda x: t(f"time_{x}", lang)) if key == "time" else str,
            )
        found = asked_units()
        if found.rate.currency != "USD":
            rate = found.rate
            st.caption(plain(t("rate", lang, currency=rate.currency, usd=f"{rate.usd_per_unit:g}",
                               date=rate.date or "—", source=rate.source)))  # fmt: skip
    if st.query_params.get("units", "") != found.code:
        if found.code:
            st.query_params["units"] = found.code
        else:
            del st.query_params["units"]


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
    if redo is not None and redo not in (work.AUTO, "none", "selective", "full"):
        return None
    return found if "strategy" not in found or adopted(found["strategy"]) is not None else None


def adopted(settings: Any) -> Strategy | None:
    """A strategy taken over from a search; None where it is not one."""
    try:
        return Strategy.model_validate(settings) if isinstance(settings, dict) else None
    except ValueError:
        return None


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


def store_plan(plan: Mapping[str, Any], *, adopted_now: bool = False) -> None:
    """Keep the plan for the other pages, in the address, and in the history of this session."""
    before = st.session_state.get("plan")
    # A page that writes a plan's own settings out beside it changes nothing: nothing to take back.
    opened = before is not None and all(plan.get(k) == v for k, v in before.items())
    if before is not None and (adopted_now or not opened):
        st.session_state["history"] = [*st.session_state.get("history", []), before][-UNDO_STEPS:]
    st.session_state["plan"] = dict(plan)
    if plan.get("preset") != UPLOADED:
        text = encode(plan)
        if st.query_params.get("plan") != text:
            st.query_params["plan"] = text


def adopt(settings: Mapping[str, Any]) -> None:
    """Make a searched plan the one that the page Plan shows and edits."""
    kept = {k: v for k, v in stored_plan().items() if k in {"preset", "nodes", "batch"}}
    own = {k: v for k, v in settings.items() if v is not None and k not in {"engineering_weeks", "optimisations"}}
    store_plan(kept | {"strategy": own}, adopted_now=True)
    st.session_state["revision"] = st.session_state.get("revision", 0) + 1


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
        own = Scenario.model_validate_json(st.session_state["uploaded"])
    else:
        own = work.load_preset(str(plan["preset"]))
    taken = adopted(plan.get("strategy"))
    if taken is not None:
        name = work.editable(own) or SEARCHED
        old = own.strategies.get(name)
        weeks = old.engineering_weeks if isinstance(old, Strategy) else 0.0
        taken = taken.model_copy(update={"engineering_weeks": weeks})
        own = own.model_copy(update={"strategies": {**own.strategies, name: taken}})
    return uploads.with_files(own, files())


def before_adoption() -> Scenario:
    """The scenario on its cluster and batch with its own strategies: what a search starts from, whatever is adopted."""
    plan = {k: v for k, v in stored_plan().items() if k in {"preset", "nodes", "batch"}}
    return edited(scenario=base_scenario(plan), plan=plan)


def files() -> dict[str, uploads.Kept]:
    """Model, fabric and site that this session has sent and uses."""
    return dict(st.session_state.get("files", {}))


def keep_file(kept: uploads.Kept) -> None:
    """Use a file from now on."""
    st.session_state["files"] = files() | {kept.kind: kept}
    st.session_state["revision"] = st.session_state.get("revision", 0) + 1


def forget_file(kind: str) -> None:
    """Use the scenario's own again."""
    st.session_state["files"] = {k: v for k, v in files().items() if k != kind}
    st.session_state["revision"] = st.session_state.get("revision", 0) + 1


def say_files(lang: str) -> None:
    """What of this session stands in the place of the scenario's own, each with a button that takes it out."""
    for kind, kept in files().items():
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(plain(t(f"uses_{kind}", lang, name=kept.label)))
            st.button(t("take_out", lang), key=f"forget-{kind}", on_click=forget_file, args=(kind,), type="tertiary")


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
    say_files(lang)
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
        st.error(plain(t("cannot_forecast", lang, reason=uploads.without_paths(str(error)))))
        return None


def long_answer(
    *,
    command: Sequence[str],
    key: str,
    lang: str,
    scenario: Scenario | None = None,
    sent: Mapping[str, bytes] | None = None,
    makes: Sequence[str] = (),
) -> Any | None:
    """The answer of `planner COMMAND`, with progress and a button that stops it; None until there is one.

    Args:
        command: its words; the scenario's file is `scenario.yaml`.
        key: of the button and the words around it.
        lang: language of the words.
        scenario: of this session.
        sent: further files by name.
        makes: files that are the answer instead of the document on stdout.
    """
    given = dict(sent or {})
    if scenario is not None:
        local, used = uploads.bundle(scenario, files())
        given |= used | {"scenario.yaml": local.model_dump_json().encode()}
    mark = work.fingerprint(command=command, files=given)
    known = jobs.DESK.answers.get(mark)
    if known is not None:
        return known
    job = st.session_state.get("job")
    if job is not None and job.key != mark:
        jobs.DESK.drop(job)
        job = st.session_state["job"] = None
    holder = st.empty()
    with holder.container(horizontal=True, vertical_alignment="center"):
        st.button(t("stop", lang), key=f"stop-{key}", on_click=_stop_job, icon=":material/stop:")
        says = st.empty()
        while job is None:
            job = jobs.DESK.start(key=mark, command=command, files=given, makes=makes)
            st.session_state["job"] = job
            if job is None:
                says.caption(t("queued", lang))
                time.sleep(POLL_S)
        while job.running:
            # Writing to the page is also where a press of the button, or another page, ends this loop.
            says.caption(plain(f"{t('at_work', lang, seconds=f'{job.elapsed_s:.0f}')} {job.said()}"))
            time.sleep(POLL_S)
    holder.empty()
    st.session_state["job"] = None
    try:
        return jobs.DESK.finish(job)
    except jobs.JobError as error:
        st.error(plain(t("cannot_forecast", lang, reason=uploads.without_paths(str(error)))))
        return None


def _stop_job() -> None:
    job = st.session_state.get("job")
    if job is not None:
        job.stop()


def downloads(*, document: Any, sheets: Mapping[str, exports.Rows], stem: str, lang: str) -> None:
    """The answer of a page as JSON, its first sheet as CSV, all of them as a workbook; made when asked for."""
    first = next(iter(sheets.values()))
    text = uploads.without_paths
    with st.container(horizontal=True):
        for label, make, ending, mime in (
            ("download_csv", lambda: exports.csv_bytes(first), "csv", "text/csv"),
            ("download_xlsx", lambda: exports.xlsx_bytes(sheets), "xlsx", XLSX),
            ("download_json", lambda: text(json.dumps(document, indent=2, ensure_ascii=False, default=str)), "json",
             "application/json"),
        ):  # fmt: skip
            st.download_button(
                t(label, lang), make, f"{stem}.{ending}", mime, key=f"{stem}-{ending}", on_click="ignore",
                icon=":material/download:",
            )  # fmt: skip


def asked_for(*, label: str, state: str, lang: str) -> bool:
    """A button for work of more than a second or two; once pressed, the answer stays for this plan."""
    if st.button(t(label, lang), key=f"button-{state}"):
        st.session_state[state] = True
    return bool(st.session_state.get(state))


def table(*, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any] | None = None) -> None:
    """A table that a screen reader can read and a spreadsheet can take."""
    st.dataframe([dict(r) for r in rows], column_config=dict(config or {}), hide_index=True, width="stretch")
