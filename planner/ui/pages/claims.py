"""Folklore put to the test."""

import streamlit as st

from planner.ui import frame, work
from planner.ui.text import plain, t

lang = frame.heading("page.claims")
st.caption(t("claims_note", lang))
if frame.asked_for(label="do_claims", state="claims", lang=lang):
    answers = frame.answer_of(compute=work.claims_answer, lang=lang)
    for answer in answers or ():
        verdict = answer["verdict"]
        icon = {"holds": ":material/check_circle:", "holds_when": ":material/help:"}.get(verdict, ":material/cancel:")
        with st.expander(plain(f"{answer['sentence']} — {t(f'verdict.{verdict}', lang)}"), icon=icon):
            st.caption(plain(f"{answer['origin']}"))
            st.markdown(plain(answer["conditions"]["note"]))
            cases = answer["numbers"]["cases"]
            frame.table(rows=[{t("case", lang): k, t("col_value", lang): v} for k, v in cases.items()])
