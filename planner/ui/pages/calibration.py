"""What a calibrated GPU does, against its data sheet; and collectives that somebody measured, as the plan's fabric."""

import streamlit as st

from planner.profile.load import shipped
from planner.ui import evidence_charts, frame, work
from planner.ui.text import plain, t

lang = frame.heading("page.calibration")
gpu_tab, fabric_tab = st.tabs([t("tab_gpu", lang), t("tab_fabric", lang)])

with gpu_tab:
    names = shipped()
    name = str(st.selectbox(t("profile", lang), names, key="calibration-profile"))
    upload = st.file_uploader(
        t("profile_upload", lang), type=["json", "gz"], key="calibration-upload", max_upload_size=2
    )
    if upload is not None:
        sent = upload.getvalue()
        answer = frame.answer_of(compute=lambda: work.uploaded_profile(sent), lang=lang)
    else:
        answer = frame.answer_of(compute=lambda: work.profile_rows(name), lang=lang)
    if answer is not None:
        head, samples = answer
        device, run = head["device"], head["run"]
        watts = "" if device["power_limit_w"] is None else f" · {device['power_limit_w']:.0f} W"
        st.caption(plain(f"{device['name']}{watts} · {run['mode']} · {len(samples):,} samples · {run['started']}"))
        for warning in run["warnings"]:
            st.warning(plain(str(warning)))
        products = evidence_charts.product_rows(samples=samples, gpu=device["gpu"])
        if products:
            st.subheader(t("roofline", lang))
            best = max(products, key=lambda r: r["tflops"])
            words = (
                f"{t('roofline', lang)}: {len(products)}; {best['shape']} {best['dtype']} {best['tflops']:.0f} TFLOP/s"
            )
            st.altair_chart(evidence_charts.roofline_chart(rows=products, lang=lang), width="stretch", alt=words)
            st.caption(t("roofline_note", lang))
        st.subheader(t("samples", lang))
        rows = evidence_charts.sample_rows(samples=samples)
        frame.table(rows=rows)
        frame.downloads(document={**head, "samples": samples}, sheets={"Samples": rows}, stem="profile", lang=lang)

with fabric_tab:
    st.caption(t("fabric_note", lang))
    log = st.file_uploader(
        t("fabric_upload", lang), type=["txt", "log", "out", "json", "gz"], key="fabric-upload", max_upload_size=2
    )
    with st.expander(t("fabric_missing", lang)), st.container(horizontal=True):
        op = st.selectbox(t("collective", lang), work.COLLECTIVES, index=None, key="fabric-op", placeholder="—")
        ranks = st.number_input(t("ranks", lang), 2, 100_000, None, key="fabric-ranks", placeholder="—")
        nodes = st.number_input(t("nodes", lang), 1, 100_000, None, key="fabric-nodes", placeholder="—")
    if log is not None:
        raw, sent_as = log.getvalue(), log.name
        answer = frame.answer_of(compute=lambda: work.measured_fabric(raw, sent_as, op, ranks, nodes), lang=lang)
        if answer is not None:
            kept, samples, notes = answer
            for note in notes[:5]:
                st.warning(plain(note))
            rows = evidence_charts.collective_rows(samples=samples, lang=lang)
            chart = evidence_charts.collective_chart(samples=samples, lang=lang)
            words = f"{t('bus_rate', lang)}: {max(r[t('bus_rate', lang)] for r in rows):.1f} GB/s"
            st.altair_chart(chart, width="stretch", alt=words)
            with st.container(horizontal=True):
                st.button(
                    t("use_fabric", lang),
                    on_click=frame.keep_file,
                    args=(kept,),
                    icon=":material/check:",
                )
                st.download_button(
                    t("download_fabric", lang),
                    kept.data,
                    kept.name,
                    "application/json",
                    on_click="ignore",
                    icon=":material/download:",
                )
            frame.table(rows=rows)
    frame.say_files(lang)
