"""The answer of `planner size` on a page: sentences and tables in words, in the language and units chosen."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.report.units import percent, whole
from planner.ui import frame
from planner.ui.more_charts import cause_text
from planner.ui.text import plain, t
from planner.ui.units import Shown

Document = Mapping[str, Any]


def _source(option: Document, lang: str) -> str:
    tenure = t(f"tenure.{option['tenure']}", lang)
    return tenure if option["tenure"] == "own" else f"{option['provider']}, {tenure}"


def line(*, key: str, option: Document, lang: str, shown: Shown) -> str:
    """A cluster in one sentence."""
    return t(
        key,
        lang,
        nodes=whole(option["nodes"]),
        node=option["node"],
        gpus=whole(option["gpus"]),
        source=_source(option, lang),
        days=shown.days(option["days"]["p50"]),
        cost=shown.money(option["cost_usd"]["p50"]),
    )


def _goal(*, name: str, value: float, shown: Shown) -> str:
    forms = {
        "deadline_days": shown.days(value),
        "budget_usd": shown.money(value),
        "power_kw": f"{value:,.0f} kW",
        "rack_kw": f"{value:,.1f} kW",
    }
    return forms.get(name, f"{value:,.1f}")


def relax_rows(*, document: Document, lang: str, shown: Shown) -> list[dict[str, str]]:
    """One row a goal to relax: to what, by how much, and the cluster it would allow."""
    out = []
    for row in document["relax"]:
        name, found = row["constraint"], row["result"]
        out.append(
            {
                t("size.goal", lang): t(f"goal.{name}", lang),
                t("size.to", lang): _goal(name=name, value=row["to"], shown=shown),
                t("size.by", lang): _goal(name=name, value=row["by"], shown=shown),
                t("size.result", lang): f"{found['nodes']:,} × {found['node']} ({_source(found, lang)})",
            }
        )
    return out


def acceptance_rows(*, document: Document, lang: str) -> list[dict[str, str]]:
    """One row a test of the delivered cluster."""
    return [
        {
            t("size.test", lang): row["test"],
            t("size.value", lang): t(f"rule.{row['rule']}", lang, value=f"{row['value']:.4g}", unit=row["unit"]),
            t("size.forecast", lang): f"{row['forecast']:.4g} {row['unit']}",
            t("size.label", lang): row["label"],
        }
        for row in document["acceptance"]
    ]


def option_rows(*, document: Document, lang: str, shown: Shown) -> list[dict[str, str]]:
    """One row a source of GPUs: the cheapest cluster found there."""
    return [
        {
            t("size.gpu", lang): row["gpu"],
            t("size.node", lang): f"{row['nodes']:,} × {row['node']}",
            t("size.gpus", lang): whole(row["gpus"]),
            t("size.provider", lang): row["provider"],
            t("size.tenure", lang): t(f"tenure.{row['tenure']}", lang),
            t("size.days", lang): shown.days(row["days"]),
            t("size.cost_usd", lang): shown.money(row["cost_usd"]),
            t("size.power_kw", lang): f"{row['power_kw']:,.0f}",
            t("size.meets", lang): t("yes" if row["meets"] else "no", lang),
        }
        for row in document["options"]
    ]


def figures(*, document: Document, lang: str) -> None:
    """Chances of the goals, and what the recommended cluster needs."""
    required = document["required"]
    with st.container(horizontal=True):
        for key in ("p_deadline", "p_budget"):
            if document[key] is not None:
                st.metric(t(key, lang), percent(document[key]))
        st.metric(t("racks", lang), whole(required["racks"]))
        st.metric(t("facility_power", lang), whole(required["power_kw"]))
        st.metric(t("spares", lang), whole(required["spare_nodes"]))


def details(*, document: Document, lang: str, shown: Shown) -> None:
    """The smallest cluster, storage and knee; what to relax; what to measure before paying; what else was looked at."""
    smallest, required, knee = document["smallest"], document["required"], document["knee"]
    best = document["recommended"] or {}
    if smallest is not None and any(smallest[k] != best.get(k) for k in ("node", "nodes", "provider", "tenure")):
        st.markdown(plain(line(key="smallest", option=smallest, lang=lang, shown=shown)))
    if required is not None:
        rate, time = f"{required['storage_write_gb_per_s']:.2f}", f"{required['checkpoint_write_s'] / 60:,.0f} min"
        st.markdown(plain(t("size_storage", lang, rate=rate, time=time)))
    if knee is not None:
        st.markdown(plain(t("size_knee", lang, gpus=whole(knee["gpus"]), cause=cause_text(knee["cause"], lang))))
    if document["relax"]:
        st.subheader(t("relax", lang))
        frame.table(rows=relax_rows(document=document, lang=lang, shown=shown))
    st.subheader(t("acceptance", lang))
    frame.table(rows=acceptance_rows(document=document, lang=lang))
    st.subheader(t("options", lang))
    frame.table(rows=option_rows(document=document, lang=lang, shown=shown))
