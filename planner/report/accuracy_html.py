"""The accuracy report: forecast against measured, groups with the baseline beside them, the worst rows taken apart."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from html import escape
from typing import Any

from planner import __version__
from planner.report.page import bullets, document, folded, paragraph, section, table
from planner.report.svg import Part, Spot, scatter, stacked_bars
from planner.report.units import percent, seconds
from planner.validate.explain import FAR_PCT, Explained, far_groups

MAX_SPOTS = 2500
MAX_PICTURES = 6
MAX_FAMILIES = 8
STEP_PARTS: tuple[tuple[Part, tuple[str, ...]], ...] = (
    (Part("matmul", "#0072B2"), ("compute_matmul",)),
    (Part("attention", "#56B4E9"), ("compute_attention",)),
    (Part("memory-bound", "#009E73"), ("compute_memory_bound",)),
    (Part("launch", "#BBBBBB"), ("launch_gap",)),
    (Part("exposed communication", "#D55E00"), tuple(f"exposed_{k}" for k in ("tp", "pp", "dp", "cp", "ep"))),
    (Part("bubble", "#CC79A7"), ("bubble",)),
    (Part("optimizer, stragglers, other", "#777777"), ("optimizer", "straggler", "other")),
)


def accuracy_html(*, answer: Mapping[str, Any], worst: Sequence[Explained], today: date) -> str:
    """The whole page from a document of contract 5 and its worst rows."""
    kind = answer["kind"]
    parts = [
        f"<header><h1>Forecast against measured: {escape(kind)}</h1></header>",
        _summary(answer),
        *_pictures(answer),
        _groups(answer),
        _far(answer),
        section(f"The {len(worst)} worst rows, part by part", *(_worst(w) for w in worst)),
        _ranking(answer["ranking"]),
        _skipped(answer),
        section(
            "About this page",
            paragraph(
                f"Made on {today.isoformat()} with planner {__version__}; engine {answer['engine']}; profile "
                f"{answer['profile']}. Bands run from P10 to P90.",
                small=True,
            ),
        ),
    ]
    return document(title=f"Accuracy: {kind}", parts=parts)


def _pct(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _summary(answer: Mapping[str, Any]) -> str:
    s = answer["summary"]
    z, base = s["zero_shot"], s["baseline"]["median_group_mape_pct"]
    head = f"Median group {_pct(z['median_group_mape_pct'])} %, mean over groups {_pct(z['mean_group_mape_pct'])} %"
    inside = "-" if z["coverage_frac"] is None else percent(z["coverage_frac"])
    facts = [
        f"{s['n_forecast']:,} of {s['n_rows']:,} rows forecast; the P10-P90 band holds {inside} of the judged ones",
        f"constant-MFU baseline, median group: {_pct(base)} %" if base is not None else "no baseline for this kind",
    ]
    if s["site"]:
        seen = sum("site_fitted_to_this_run" in r["flags"] for r in answer["rows"])
        facts.append(
            f"with site constants: median group {_pct(s['site']['median_group_mape_pct'])} %, mean over groups "
            f"{_pct(s['site']['mean_group_mape_pct'])} %"
            + (f"; {seen} rows are of runs that the site was fitted to: a fit, not a forecast" if seen else "")
        )
    body = f'<div class="answer"><strong>{escape(head)}</strong></div>'
    return section("Error of the forecast", body, bullets(facts))


def family_of(*, answers: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """How points are told apart, and each answer's family: trust where known, else a part of the group's name.

    The first that gives two to eight families is taken; else all rows are one.
    """
    trust = {g["group"]: g["trust"] for g in groups}

    def part(index: int) -> list[str]:
        pieces = [a["group"].split(" | ") for a in answers]
        return [p[index] if index < len(p) else "other" for p in pieces]

    trusted = [f"trust {trust[a['group']]}" if trust.get(a["group"]) else "no trust stated" for a in answers]
    choices = [("trust of the source", trusted), *((f"part {i + 1} of the group name", part(i)) for i in (1, 0, 2))]
    choices.append(("source", [a["source"] for a in answers]))
    for name, families in choices:
        if 2 <= len(set(families)) <= MAX_FAMILIES:
            return name, families
    return "all rows alike", ["all rows"] * len(answers)


def _pictures(answer: Mapping[str, Any]) -> list[str]:
    """One scatter a metric and unit, those with most rows first."""
    usable = [
        a
        for a in answer["rows"]
        if a["skipped"] is None and a["metric"] != "oom" and a["zero_shot"] and (a["measured"] or 0) > 0
    ]
    usable = [a for a in usable if a["zero_shot"]["predicted"] > 0]
    by, families = family_of(answers=usable, groups=answer["groups"])
    pairs = list(zip(usable, families, strict=True))
    out = []
    for (metric, unit), count in Counter((a["metric"], a["unit"]) for a in usable).most_common(MAX_PICTURES):
        chosen = [(a, f) for a, f in pairs if (a["metric"], a["unit"]) == (metric, unit)]
        thin = -(-count // MAX_SPOTS)
        # Families in one order on every picture, so that a mark always means the same.
        order = sorted(set(families))
        shown = sorted(chosen[::thin], key=lambda pair: order.index(pair[1]))
        spots = [
            Spot(
                a["measured"],
                a["zero_shot"]["predicted"],
                f,
                f"{a['id'] or a['row']}: {a['group']}: measured {a['measured']:.4g}, forecast "
                f"{a['zero_shot']['predicted']:.4g} {unit}",
            )
            for a, f in shown
        ]
        note = f"{count:,} rows" + (f", every {thin}th drawn" if thin > 1 else "")
        drawn = scatter(
            spots=spots,
            families=order,
            axes=(f"measured, {unit}", f"forecast, {unit}"),
            title=f"{metric}: forecast against measured",
        )
        words = f"{note}; marks: {by}. Full line: equal; dashed: 20 % to either side."
        out.append(section(metric.replace("_", " "), paragraph(words, small=True), drawn))
    return out


def _groups(answer: Mapping[str, Any]) -> str:
    rows = []
    for g in answer["groups"]:
        z, site = g["zero_shot"], g["site"]
        if z:
            rows.append(
                [
                    g["group"],
                    g["trust"] or "-",
                    str(g["n_configs"]),
                    *(_pct(z[k]) for k in ("mape_pct", "median_ape_pct", "bias_pct", "worst_pct")),
                    _pct(100 * z["coverage_frac"]),
                    _pct(site["mape_pct"] if site else None),
                    _pct(g["baseline"]["mape_pct"] if g["baseline"] else None),
                ]
            )
    head = ["group", "trust", "runs", "error %", "median %", "bias %", "worst %", "in band %", "site %", "baseline %"]
    note = paragraph("Bias is positive where more seconds (bytes, gain) are forecast than were measured.", small=True)
    return section("Groups", note, table(head=head, rows=rows))


def _far(answer: Mapping[str, Any]) -> str:
    found = far_groups(answer) if answer["kind"] == "runs" else []
    if not found:
        return ""
    lines = [f"{g['group']} ({_pct(g['zero_shot']['mape_pct'])} %): {why}" for g, why in found]
    return section(f"Groups off by more than {FAR_PCT:.0f} %, one by one", bullets(lines))


def _worst(w: Explained) -> str:
    a, z = w.answer, w.answer["zero_shot"]
    name = f"{a['id'] or 'row ' + str(a['row'])}: {z['error_pct']:+.1f} %"
    facts = [
        f"{a['group']}",
        f"measured {a['measured']:.4g} {a['unit']}, forecast {z['predicted']:.4g} ({z['p10']:.4g} to {z['p90']:.4g}), "
        f"{a['metric']}" + (f"; baseline {a['baseline']['error_pct']:+.1f} %" if a["baseline"] else ""),
        "stated: " + (", ".join(f"{k} {v}" for k, v in w.settings) or "nothing known here"),
        "assumed: " + (", ".join(a["assumed"]) or "nothing"),
        "flags: " + (", ".join(a["flags"]) or "none"),
    ]
    drawn = ""
    if w.parts_s:
        parts = dict(w.parts_s)
        values = [sum(max(0.0, parts.get(k, 0.0)) for k in keys) for _, keys in STEP_PARTS]
        limits = {"forecast step": (w.measured_step_s, "measured")} if w.measured_step_s else {}
        drawn = stacked_bars(
            rows=[("forecast step", values)],
            parts=[p for p, _ in STEP_PARTS],
            show=seconds,
            title=f"Forecast step of {name}",
            limits=limits,
        )
        total = sum(values)
        facts.append(
            "parts: "
            + ", ".join(
                f"{p.words} {seconds(v)} ({percent(v / total)})"
                for (p, _), v in zip(STEP_PARTS, values, strict=True)
                if v > 5e-4 * total
            )
        )
    return f"<h3>{escape(name)}</h3>{drawn}{bullets(facts)}"


def _ranking(ranks: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{r['source']}, {r['model']}, {r['n_gpus']} x {r['gpu']}",
            str(r["n_plans"]),
            "-" if r["spearman"] is None else f"{r['spearman']:.2f}",
            percent(r["regret_frac"]),
        ]
        for r in ranks
    ]
    if not rows:
        return ""
    return section("Ranking of plans", table(head=["workload", "plans", "rank correlation", "regret"], rows=rows))


def _skipped(answer: Mapping[str, Any]) -> str:
    counts = answer["summary"]["skipped"]
    if not counts:
        return ""
    reasons = Counter(r["skipped"] for r in answer["rows"] if r["skipped"])
    rows = [[text, str(n)] for text, n in reasons.most_common()]
    return section(
        "Rows not forecast",
        bullets([f"{k}: {v}" for k, v in counts.items()]),
        folded("Every reason", table(head=["reason", "rows"], rows=rows)),
    )
