"""The report for a budget meeting: question and answer first, then why, risks, money and every assumption.

Made from result documents only; nothing is computed here but shares of what they hold.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from html import escape
from typing import Any

from planner.decide.dossier import Dossier
from planner.report.page import bullets, document, folded, paragraph, section, table
from planner.report.relax import relax_lines
from planner.report.svg import Part, chance_curves, interval_bars, stacked_bars
from planner.report.sweep import sweep_svg
from planner.report.text import BUCKET_WORDS, figure, layout_text
from planner.report.units import days, dollars, gigabytes, percent, seconds, whole

Docs = Mapping[str, Mapping[str, Any]]
TIME_PARTS: tuple[tuple[Part, tuple[str, ...]], ...] = (
    (Part("matrix products", "#0072B2"), ("compute_matmul",)),
    (Part("attention", "#56B4E9"), ("compute_attention",)),
    (Part("memory-bound kernels", "#009E73"), ("compute_memory_bound",)),
    (Part("launch gap (host)", "#BBBBBB"), ("launch_gap",)),
    (Part("tensor-parallel wait", "#D55E00"), ("exposed_tp",)),
    (Part("pipeline transfer wait", "#F0E442"), ("exposed_pp",)),
    (Part("data-parallel wait", "#E69F00"), ("exposed_dp",)),
    (Part("context- and expert-parallel wait", "#882255"), ("exposed_cp", "exposed_ep")),
    (Part("pipeline bubble", "#CC79A7"), ("bubble",)),
    (Part("optimizer, stragglers, other", "#777777"), ("optimizer", "straggler", "other")),
)
MEMORY_PARTS = (
    ("weights", Part("weights", "#0072B2")),
    ("gradients", Part("gradients", "#56B4E9")),
    ("optimizer", Part("optimizer states", "#009E73")),
    ("activations", Part("activations", "#E69F00")),
    ("buffers", Part("logits and buffers", "#CC79A7")),
    ("reserved", Part("context and reserve", "#999999")),
)
COST_PARTS = (
    ("compute", Part("machines", "#0072B2")),
    ("network", Part("network", "#56B4E9")),
    ("storage", Part("storage", "#009E73")),
    ("power", Part("electricity", "#F0E442")),
    ("facility", Part("facility", "#E69F00")),
    ("support", Part("managed service", "#CC79A7")),
    ("people", Part("people", "#882255")),
)


def report_html(*, scenario: Mapping[str, Any], gpus: int, dossier: Dossier, today: date) -> str:
    """The whole document.

    Args:
        scenario: all settings as plain values (`Scenario.model_dump(mode="json")`).
        gpus: GPUs of its cluster.
        dossier: the answers.
        today: printed as the date of the report.
    """
    comparison = dossier.comparison
    docs: Docs = comparison["strategies"]
    name = str(scenario["name"])
    parts = [
        f"<header><h1>{escape(name)}</h1></header>",
        _answer(scenario=scenario, gpus=gpus, comparison=comparison),
        _flips(comparison),
        _forecasts(docs=docs, scenario=scenario),
        _step(docs),
        _memory(docs),
        _scaling(dossier.scaling),
        _risk(runs=dossier.runs, deadline=scenario["goals"]["deadline_days"]),
        _cost(docs),
        _rent_or_buy(docs),
        _site(docs),
        _decision(comparison),
        _assumptions(docs),
        _inputs(scenario),
        _colophon(comparison=comparison, runs=dossier.runs, today=today),
    ]
    return document(title=f"{name}: forecast and decision", parts=parts)


def _columns(*, docs: Docs, rows: Sequence[tuple[str, Callable[[Mapping[str, Any]], str]]], caption: str = "") -> str:
    body = [[label, *(pick(d) for d in docs.values())] for label, pick in rows]
    return table(head=["", *docs], rows=body, caption=caption)


def _between(show: Callable[[float], str], key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda d: f"{show(d[key]['p50'])} ({show(d[key]['p10'])} to {show(d[key]['p90'])})"


def _answer(*, scenario: Mapping[str, Any], gpus: int, comparison: Mapping[str, Any]) -> str:
    docs, verdict = comparison["strategies"], comparison["verdict"]
    tokens = scenario["training"]["tokens"]
    model = scenario["model"] if isinstance(scenario["model"], str) else "the model given"
    node = scenario["cluster"]["node"]
    question = (
        f"How should {model} be trained on {tokens / 1e9:,.6g} billion tokens with {gpus:,} GPUs ({node}), "
        f"how long does it take and what does it cost? Compared: {', '.join(docs)}."
    )
    choice = verdict["choice"]
    if choice is None:
        head = "No strategy fits this cluster."
        detail = ""
    else:
        d = docs[choice]
        head = f"{choice}: {days(d['days']['p50'])}, {dollars(d['cost_usd_total']['p50'])}"
        detail = (
            f"Nine runs in ten end within {days(d['days']['p90'])}; nine in ten cost at most "
            f"{dollars(d['cost_usd_total']['p90'])}."
        )
    body = f'<div class="answer"><strong>{escape(head)}</strong>{paragraph(detail) if detail else ""}</div>'
    goals = _goals(docs=docs, goals=scenario["goals"]) if choice else []
    return section(
        "Question and answer", paragraph(question), body, bullets([*dict.fromkeys(verdict["reasons"]), *goals])
    )


def _goals(*, docs: Docs, goals: Mapping[str, Any]) -> list[str]:
    out = []
    for key, chance, words in (("deadline_days", "p_late", "days"), ("budget_usd", "p_over_budget", "USD")):
        if goals[key] is not None:
            odds = ", ".join(f"{n} {percent(d[chance])}" for n, d in docs.items() if d["feasible"])
            out.append(f"chance to miss the goal of {goals[key]:,.0f} {words}: {odds}")
    return out


def _flips(comparison: Mapping[str, Any]) -> str:
    rows = [
        [f["input"], whole(f["value"]) if f["value"] >= 1000 else f"{f['value']:.3g}"] for f in comparison["flips_at"]
    ]
    if not rows:
        return ""
    note = "Each line changes one input and leaves the rest as written."
    return section("What would change the answer", paragraph(note), table(head=["input", "at"], rows=rows))


def _forecasts(*, docs: Docs, scenario: Mapping[str, Any]) -> str:
    rows: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("layout", lambda d: layout_text(d["strategy"])),
        ("software", lambda d: f"{d['strategy']['framework']['name']} {d['strategy']['framework']['release']}"),
        ("fits memory", lambda d: "yes" if d["fits"] else f"no, {gigabytes(d['memory_over_gb'])} over"),
        ("step, P50 (P10 to P90)", _between(seconds, "step_s")),
        ("tokens/s/GPU", lambda d: whole(d["tokens_per_s_per_gpu"])),
        ("MFU, HFU", lambda d: f"{percent(d['mfu'])}, {percent(d['hfu'])}"),
        ("days without a loss", lambda d: days(d["days_ideal"])),
        ("days, P50 (P10 to P90)", _between(days, "days")),
        ("goodput", lambda d: percent(d["goodput"])),
        ("GPU-hours", lambda d: whole(d["gpu_hours"])),
        ("cost, P50 (P10 to P90)", _between(dollars, "cost_usd_total")),
        ("a useful GPU-hour", lambda d: _or_dash(d["cost_usd_per_useful_gpu_hour"], lambda v: f"{v:.2f} USD")),
        ("over the programme", lambda d: dollars(d["programme_usd"])),
    ]
    goals = scenario["goals"]
    deadline, budget = goals["deadline_days"], goals["budget_usd"]
    length = interval_bars(
        rows=[(n, d["days"]) for n, d in docs.items()],
        show=days,
        title="Days to the last token, P10 to P90",
        limit=None if deadline is None else (deadline, "deadline"),
    )
    cost = interval_bars(
        rows=[(n, d["cost_usd_total"]) for n, d in docs.items()],
        show=dollars,
        title="Total cost, P10 to P90",
        limit=None if budget is None else (budget, "budget"),
    )
    unfit = [f"{n} does not fit: its figures say what it would do if it did" for n, d in docs.items() if not d["fits"]]
    return section(
        "Forecast",
        _columns(docs=docs, rows=rows),
        "<h3>Days to the last token, P10 to P90, the tick at P50</h3>",
        length,
        "<h3>Total cost, P10 to P90, the tick at P50</h3>",
        cost,
        bullets([*unfit, *relax_lines(docs)]),
    )


def _or_dash(value: float | None, show: Callable[[float], str]) -> str:
    return "-" if value is None else show(value)


def _step(docs: Docs) -> str:
    values = {n: [sum(max(0.0, d["breakdown_s"][k]) for k in keys) for _, keys in TIME_PARTS] for n, d in docs.items()}
    drawn = stacked_bars(
        rows=list(values.items()), parts=[p for p, _ in TIME_PARTS], show=seconds, title="Where the step goes"
    )
    rows = [
        [p.words, *(f"{seconds(v[i])}, {percent(v[i] / docs[n]['step_s']['p50'])}" for n, v in values.items())]
        for i, (p, _) in enumerate(TIME_PARTS)
        if any(v[i] > 1e-9 for v in values.values())
    ]
    return section("Where the step goes (mean over GPUs)", drawn, table(head=["", *docs], rows=rows))


def _memory(docs: Docs) -> str:
    drawn = stacked_bars(
        rows=[(n, [d["memory_gb"][k] for k, _ in MEMORY_PARTS]) for n, d in docs.items()],
        parts=[p for _, p in MEMORY_PARTS],
        show=gigabytes,
        title="Memory of the fullest GPU",
        limits={n: (d["memory_gb"]["capacity"], "capacity") for n, d in docs.items()},
    )
    rows = [[p.words, *(gigabytes(d["memory_gb"][k]) for d in docs.values())] for k, p in MEMORY_PARTS]
    rows.append(["allocated peak", *(gigabytes(d["memory_gb"]["peak"]) for d in docs.values())])
    rows.append(["capacity", *(gigabytes(d["memory_gb"]["capacity"]) for d in docs.values())])
    return section("Memory of the fullest GPU", drawn, table(head=["", *docs], rows=rows))


def _scaling(scaling: Mapping[str, Any] | None) -> str:
    if scaling is None:
        return section("Scaling", paragraph("The chosen strategy can be placed on no other size."))
    sentences = []
    for key, kind in (("knee", "Strong scaling (same batch)"), ("weak_knee", "Weak scaling (batch grows)")):
        knee = scaling[key]
        sentences.append(
            f"{kind}: no knee in this range."
            if knee is None
            else f"{kind}: below {percent(knee['efficiency'])} beyond {knee['gpus']:,} GPUs, by {knee['cause']}."
        )
    rows = [
        [
            f"{p['gpus']:,}",
            seconds(p["step_s"]),
            percent(p["scaling_efficiency"]) if p["fits"] else "does not fit",
            p["cause"],
        ]
        for p in scaling["points"]
    ]
    drawn = sweep_svg(document=scaling, title=str(scaling["strategy"]))
    points = table(head=["GPUs", "step", "efficiency", "cause"], rows=rows, caption="Strong scaling", left=(3,))
    return section("Scaling", drawn, bullets(sentences), folded("Every size", points))


def _risk(*, runs: Docs, deadline: float | None) -> str:
    if not runs:
        return ""
    some = next(iter(runs.values()))
    fan = chance_curves(
        curves=[(n, [(p["days"], p["probability"]) for p in r["fan"]]) for n, r in runs.items()],
        unit="days from the start",
        title="Chance of being through by a day",
        limit=None if deadline is None else (deadline, f"deadline {deadline:g}"),
    )

    def band(key: str, show: Callable[[float], str]) -> Callable[[Mapping[str, Any]], str]:
        return lambda r: f"{show(r[key]['p50'])} ({show(r[key]['p10'])} to {show(r[key]['p90'])})"

    figures = _columns(
        docs=runs,
        rows=[
            ("days", band("days", days)),
            ("goodput", band("goodput", percent)),
            ("interruptions", band("interruptions", whole)),
            ("wasted GPU-hours", band("wasted_gpu_hours", whole)),
            ("recovery, mean", lambda r: f"{r['recovery_s'] / 60:.0f} min"),
            ("checkpoint every", lambda r: _or_dash(r["checkpoint_interval_s"], lambda v: f"{v / 60:.0f} min")),
            ("runs through in four times the work's time", lambda r: percent(r["finished_frac"])),
        ],
        caption="P50 (P10 to P90)",
    )
    shares = {n: {"productive": r["goodput"]["mean"], **r["losses_frac"]} for n, r in runs.items()}
    kinds = [k for k in next(iter(shares.values())) if any(s[k] >= 5e-5 for s in shares.values())]
    kinds.sort(key=lambda k: -max(s[k] for s in shares.values()))
    losses = table(
        head=["share of elapsed time", *runs],
        rows=[[k.replace("_", " "), *(f"{100 * s[k]:.2f} %" for s in shares.values())] for k in kinds],
        caption="Where elapsed time goes",
    )
    causes = {n: r["interruptions"]["by_cause"] for n, r in runs.items()}
    stops = [k for k in next(iter(causes.values())) if any(c[k] >= 0.005 for c in causes.values())]
    by_cause = table(
        head=["stops by cause, mean", *runs],
        rows=[[k.replace("_", " "), *(f"{c[k]:.2f}" for c in causes.values())] for k in stops],
    )
    note = f"{some['replications']} simulated runs of each strategy that fits, seed {some['seed']}."
    return section("Risk: finish date and losses", paragraph(note), fan, figures, losses, by_cause if stops else "")


def _cost(docs: Docs) -> str:
    drawn = stacked_bars(
        rows=[(n, [max(0.0, d["cost_usd"].get(k, 0.0)) for k, _ in COST_PARTS]) for n, d in docs.items()],
        parts=[p for _, p in COST_PARTS],
        show=dollars,
        title="Cost by bucket",
    )
    rows = [
        [BUCKET_WORDS.get(k, k), *(dollars(d["cost_usd"].get(k, 0.0)) for d in docs.values())]
        for k, _ in COST_PARTS
        if any(d["cost_usd"].get(k) for d in docs.values())
    ]
    rows.append(["total, P50", *(dollars(d["cost_usd_total"]["p50"]) for d in docs.values())])
    rows.append(["total, P90", *(dollars(d["cost_usd_total"]["p90"]) for d in docs.values())])
    rows.append(["energy", *(f"{whole(d['energy_kwh'])} kWh" for d in docs.values())])
    rows.append(["carbon", *(f"{d['carbon_t']:,.3g} t" for d in docs.values())])
    return section("Cost by bucket", drawn, table(head=["", *docs], rows=rows))


def _rent_or_buy(docs: Docs) -> str:
    def edge(d: Mapping[str, Any]) -> str:
        return _or_dash(d["rent_or_buy"]["break_even_utilization_frac"], percent)

    def price(d: Mapping[str, Any]) -> str:
        p = d["price"]
        return f"{p['usd_per_gpu_hour']:.2f} USD, {p['tenure']}, {p['label']}, {p['date'] or 'undated'}"

    rows: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("price used, a GPU-hour", price),
        ("rent, a GPU-hour", lambda d: f"{d['rent_or_buy']['rent_usd_per_gpu_hour']:.2f} USD"),
        ("own, a GPU-hour", lambda d: f"{d['rent_or_buy']['owned_usd_per_gpu_hour']:.2f} USD"),
        ("at this use of owned GPUs", lambda d: percent(d["rent_or_buy"]["utilization_frac"])),
        ("owning pays above a use of", edge),
        ("cheaper", lambda d: str(d["rent_or_buy"]["cheaper"])),
    ]

    def commitment(term: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda d: percent(d["rent_or_buy"]["commitment_break_even_used_frac"][term])

    rows += [
        (f"{words} of commitment pays above a use of", commitment(term))
        for term, words in (("reserved_1y", "one year"), ("reserved_3y", "three years"))
    ]
    sources = list(dict.fromkeys(str(d["price"]["source"]) for d in docs.values()))
    return section("Rent or buy", _columns(docs=docs, rows=rows), paragraph(f"Price from: {'; '.join(sources)}"))


def _site(docs: Docs) -> str:
    rows: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("racks", lambda d: f"{d['facility']['racks']}, {d['facility']['nodes_per_rack']} nodes each"),
        ("IT power to contract", lambda d: f"{d['facility']['contracted_it_kw']:,.1f} kW"),
        ("facility power", lambda d: f"{d['facility']['facility_kw']:,.1f} kW"),
        ("mean IT power while training", lambda d: f"{d['facility']['mean_it_kw']:,.1f} kW"),
        ("cooling, PUE", lambda d: f"{d['facility']['cooling']}, {d['facility']['pue']:.2f}"),
        ("switches, links", lambda d: f"{d['facility']['switches']:,}, {d['facility']['links']:,}"),
    ]
    return section("Power and racks", _columns(docs=docs, rows=rows))


def _decision(comparison: Mapping[str, Any]) -> str:
    docs = comparison["strategies"]
    rows = [
        [r["text"], *(figure(value=v, unit=r["unit"]) for v in r["values"].values())]
        for r in comparison["decision_table"]
    ]
    delta: Mapping[str, Mapping[str, Any]] = comparison["delta"]
    why = delta["step"]["why"] if "step" in delta else None
    note = paragraph(f"What moves most from the first to the second strategy, in a step: {why}.") if why else ""
    return section("Decision table", table(head=["criterion", *docs], rows=rows), note)


def _assumptions(docs: Docs) -> str:
    warnings = list(dict.fromkeys(w for d in docs.values() for w in d["warnings"]))
    shares = {n: ", ".join(f"{k} {percent(v)}" for k, v in d["label_share"].items()) for n, d in docs.items()}
    rests = [f"{n}: kernel and link time rests on {share} figures" for n, share in shares.items()]
    folds = [
        folded(
            f"Every figure of {n} with formula and source ({len(d['provenance'])} lines)",
            table(
                head=["figure", "value", "formula and inputs", "label and source"],
                rows=[
                    [
                        x["id"],
                        f"{x['value']:,.6g} {x['unit']}",
                        f"{x['formula']} [{', '.join(x['inputs'])}]" if x["inputs"] else x["formula"],
                        f"{x['label']}: {x['source']}" if x["source"] else x["label"],
                    ]
                    for x in d["provenance"]
                ],
                left=(0, 2, 3),
                kind="lines",
            ),
        )
        for n, d in docs.items()
    ]
    noted = ("<h3>Warnings</h3>" + bullets(warnings)) if warnings else ""
    return section("Assumptions and sources", bullets(rests), noted, *folds)


def _inputs(scenario: Mapping[str, Any]) -> str:
    text = json.dumps(scenario, indent=2, ensure_ascii=False)
    return section("Inputs", folded("Every setting of the scenario, defaults included", f"<pre>{escape(text)}</pre>"))


def _colophon(*, comparison: Mapping[str, Any], runs: Docs, today: date) -> str:
    versions = ", ".join(f"{k} {v or 'as packaged'}" for k, v in comparison["versions"].items())
    engines = ", ".join(sorted({d["engine"] for d in comparison["strategies"].values()}))
    seed = next(iter(runs.values()))["seed"] if runs else comparison["seed"]
    return section(
        "About this report",
        paragraph(
            f"Made on {today.isoformat()}; scenario {comparison['scenario_hash']}; versions: {versions}; engine "
            f"{engines}; seed {seed}. Bands run from P10 to P90. A figure labelled assumed or datasheet was not "
            "measured.",
            small=True,
        ),
    )
