"""Entry of the pages (`streamlit run app.py`): page settings and navigation, nothing else."""

import streamlit as st

from planner.ui.frame import asked_language
from planner.ui.text import t

PAGES = (("compare", "compare_arrows"), ("scaling", "trending_up"), ("search", "search"), ("size", "straighten"),
         ("timeline", "view_timeline"), ("risk", "casino"), ("sensitivity", "tune"), ("roadmap", "route"),
         ("accuracy", "verified"), ("calibration", "speed"), ("claims", "fact_check"))  # fmt: skip

st.set_page_config(page_title="Cluster planner", page_icon=":material/calculate:", layout="wide")
lang = asked_language()
plan = st.Page("planner/ui/plan.py", title=t("page.plan", lang), icon=":material/calculate:", default=True)
rest = [
    st.Page(f"planner/ui/pages/{name}.py", title=t(f"page.{name}", lang), icon=f":material/{icon}:", url_path=name)
    for name, icon in PAGES
]
st.navigation([plan, *rest]).run()
