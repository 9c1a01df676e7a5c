"""Entry of the pages (`streamlit run app.py`): page settings and navigation, nothing else."""

import streamlit as st

st.set_page_config(page_title="Cluster planner", page_icon=":material/calculate:", layout="wide")
page = st.navigation([st.Page("planner/ui/plan.py", title="Plan", icon=":material/calculate:", default=True)])
page.run()
