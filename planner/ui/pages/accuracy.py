"""How far to trust it: forecast against measured by group, the constant-MFU baseline beside it; and your own runs."""

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.report.units import percent, whole
from planner.ui import evidence_charts, frame, uploads, work
from planner.ui.text import plain, t

KINDS = ("runs", "steps", "memory", "kernels", "collectives", "gains", "outcomes")


def show(document: Mapping[str, Any], *, stem: str, lang: str) -> None:
    """Summary, scatter, groups and worst rows of an answer."""
    summary = document["summary"]
    zero = summary["zero_shot"] or {}
    with st.container(horizontal=True):
        st.metric(t("rows_forecast", lang), f"{summary['n_forecast']:,} / {summary['n_rows']:,}")
        for key in ("mean_group_mape_pct", "median_group_mape_pct"):
            value = zero.get(key)
            st.metric(t(key, lang), "—" if value is None else f"{value:.1f} %")
        if zero.get("coverage_frac") is not None:
            st.metric(t("coverage", lang), percent(zero["coverage_frac"]))
    groups = evidence_charts.group_rows(document=document, lang=lang)
    worst = evidence_charts.worst_rows(document=document, lang=lang)
    words = "; ".join(f"{r[t('group', lang)]}: {r[t('error_pct', lang)]:.1f} %" for r in groups[:12])
    chart = evidence_charts.scatter_chart(document=document, lang=lang)
    st.altair_chart(chart, width="stretch", alt=f"{t('error_pct', lang)}: {words}")
    st.subheader(t("groups", lang))
    frame.table(rows=groups)
    st.subheader(t("worst", lang))
    frame.table(rows=worst)
    rows = [{k: v for k, v in r.items() if not isinstance(v, dict)} | (r["zero_shot"] or {}) for r in document["rows"]]
    sheets = {"Groups": groups, "Rows": rows, "Worst": worst}
    frame.downloads(document=document, sheets=sheets, stem=stem, lang=lang)


lang = frame.heading("page.accuracy")
public, own = st.tabs([t("tab_public", lang), t("tab_own", lang)])

with public:
    kind = str(st.segmented_control(t("kind", lang), KINDS, default="runs", required=True, key="accuracy-kind"))
    st.caption(t("accuracy_note", lang))
    if frame.asked_for(label="do_validate", state=f"accuracy-{kind}", lang=lang):
        answer = frame.long_answer(command=["validate", f"--{kind}", "--json"], key=f"accuracy-{kind}", lang=lang)
        if answer is not None:
            show(answer, stem=f"accuracy-{kind}", lang=lang)

with own:
    st.caption(t("own_note", lang))
    st.download_button(
        t("own_template", lang),
        work.runs_template,
        "runs.csv",
        "text/csv",
        on_click="ignore",
        icon=":material/download:",
    )
    sent = st.file_uploader(t("own_upload", lang), type=["csv", "gz"], key="own-runs", max_upload_size=2)
    checked = None
    if sent is not None:
        raw, label = sent.getvalue(), uploads.safe_name(sent.name.partition(".")[0], otherwise="own")
        checked = frame.answer_of(compute=lambda: uploads.runs_of(raw), lang=lang)
    if checked is not None:
        data, count = checked
        file = f"{label}.csv"
        fitted = frame.long_answer(
            command=["fit", "--runs", file, "--out", "site.json"],
            key="fit",
            lang=lang,
            sent={file: data},
            makes=["site.json"],
        )
        judged = None
        if fitted is not None:
            site = json.loads(fitted["site.json"])
            with st.container(horizontal=True):
                st.metric(t("runs_used", lang), f"{site['runs']:,} / {whole(count)}")
                for part in ("compute", "network", "host"):
                    factor, sigma = site[f"{part}_factor"], site[f"{part}_sigma"]
                    st.metric(t(f"site_{part}", lang), f"× {factor:.3f}", help=f"± {percent(sigma)}")
                st.metric(t("site_scatter", lang), percent(site["residual_sigma"]))
            kept = uploads.site_of(fitted["site.json"], label=label)
            with st.container(horizontal=True):
                st.button(t("use_site", lang), on_click=frame.keep_file, args=(kept,), icon=":material/check:")
                st.download_button(
                    t("download_site", lang),
                    kept.data,
                    kept.name,
                    "application/json",
                    on_click="ignore",
                    icon=":material/download:",
                )
            judged = frame.long_answer(
                command=["validate", file, "--runs", "--site", "site.json", "--json"],
                key="judge",
                lang=lang,
                sent={file: data, "site.json": fitted["site.json"]},
            )
        if judged is not None:
            st.subheader(t("own_rows", lang))
            st.caption(t("own_rows_note", lang))
            frame.table(rows=evidence_charts.own_rows(document=judged, lang=lang))
            skipped = {r["skipped"] for r in judged["rows"] if r["skipped"]}
            for reason in sorted(skipped)[:5]:
                st.warning(plain(reason))
            if evidence_charts.judged_rows(judged):
                show(judged, stem="own-runs", lang=lang)
    frame.say_files(lang)
