"""Folklore put to the test."""

import streamlit as st

from planner.ui import frame
from planner.ui.text import plain, t

ICONS = {"holds": ":material/check_circle:", "holds_when": ":material/help:"}

lang = frame.heading("page.claims")
st.caption(t("claims_note", lang))
if frame.asked_for(label="do_claims", state="claims", lang=lang):
    answers = frame.long_answer(command=["claims", "--json"], key="claims", lang=lang)
    for answer in answers or ():
        verdict = answer["verdict"]
        title = plain(f"{answer['sentence']} — {t(f'verdict.{verdict}', lang)}")
        with st.expander(title, icon=ICONS.get(verdict, ":material/cancel:")):
            st.caption(plain(f"{answer['origin']}"))
            st.markdown(plain(answer["conditions"]["note"]))
            cases = answer["numbers"]["cases"]
            frame.table(rows=[{t("case", lang): k, t("col_value", lang): v} for k, v in cases.items()])
    if answers:
        rows = [
            {"id": a["id"], "sentence": a["sentence"], "verdict": a["verdict"], "note": a["conditions"]["note"]}
            | {"origin": a["origin"]}
            for a in answers
        ]
        frame.downloads(document=answers, sheets={"Claims": rows}, stem="claims", lang=lang)
