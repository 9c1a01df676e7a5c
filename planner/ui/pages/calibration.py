"""What a calibrated GPU does: products against the data sheet, clock and power."""

import streamlit as st

from planner.profile.load import shipped
from planner.ui import frame, more_charts, work
from planner.ui.text import plain, t

MAX_PROFILE_BYTES = 2_000_000

lang = frame.heading("page.calibration")
names = shipped()
name = str(st.selectbox(t("profile", lang), names, key="calibration-profile"))
upload = st.file_uploader(t("profile_upload", lang), type=["json"], key="calibration-upload", max_upload_size=2)
answer = None
if upload is not None:
    if upload.size > MAX_PROFILE_BYTES:
        st.error(t("too_large", lang))
    else:
        sent = upload.getvalue().decode("utf-8", errors="replace")
        answer = frame.answer_of(compute=lambda: work.uploaded_profile(sent), lang=lang)
else:
    answer = frame.answer_of(compute=lambda: work.profile_rows(name), lang=lang)
if answer is not None:
    head, samples = answer
    device, run = head["device"], head["run"]
    st.caption(
        plain(
            f"{device['name']} · {device['power_limit_w']:.0f} W · {run['mode']} · {len(samples):,} samples · "
            f"{run['started']}"
        )
    )
    for warning in run["warnings"]:
        st.warning(plain(str(warning)))
    products = more_charts.product_rows(samples=samples, gpu=device["gpu"])
    if products:
        st.subheader(t("roofline", lang))
        st.altair_chart(more_charts.roofline_chart(rows=products, lang=lang), width="stretch")
        st.caption(t("roofline_note", lang))
    st.subheader(t("samples", lang))
    frame.table(rows=more_charts.sample_rows(samples=samples))
