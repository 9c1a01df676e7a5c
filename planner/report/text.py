"""Terminal tables of a forecast or a comparison. Values come from the result document; nothing is computed here."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.decide.compare import Comparison
from planner.report.relax import relax_lines
from planner.report.units import days, dollars, gigabytes, percent, seconds, whole

BREAKDOWN_WORDS = {
    "compute_matmul": "matrix products",
    "compute_attention": "attention",
    "compute_memory_bound": "memory-bound kernels",
    "launch_gap": "launch gap (host)",
    "exposed_tp": "tensor-parallel wait",
    "exposed_pp": "pipeline transfer wait",
    "exposed_dp": "data-parallel wait",
    "exposed_cp": "context-parallel wait",
    "exposed_ep": "expert-parallel wait",
    "bubble": "pipeline bubble",
    "optimizer": "optimizer",
    "straggler": "stragglers",
    "other": "other",
}
MEMORY_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "buffers": "logits and buffers",
    "reserved": "context and reserve",
    "peak": "allocated peak",
    "capacity": "capacity",
}

BUCKET_WORDS = {
    "compute": "machines",
    "network": "network",
    "storage": "storage",
    "power": "electricity",
    "facility": "facility",
    "support": "managed service",
    "people": "people",
}


def layout_text(strategy: Mapping[str, Any]) -> str:
    """A layout in one line."""
    parts = [f"{k.upper()}{strategy[k]}" for k in ("tp", "pp", "cp", "ep", "dp") if strategy[k] > 1 or k == "dp"]
    if strategy["vpp"] > 1:
        parts.append(f"VPP{strategy['vpp']}")
    parts.append(f"ZeRO-{strategy['zero_stage']}")
    parts.append(f"micro-batch {strategy['micro_batch_sequences']} x {strategy['micro_batches']}")
    parts.append(f"recompute {strategy['recompute']}")
    return ", ".join(parts)


def _rows(docs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    def line(label: str, pick: Any) -> tuple[str, list[str]]:
        return label, [pick(d) for d in docs.values()]

    rows = [
        line("layout", lambda d: layout_text(d["strategy"])),
        line("software", lambda d: f"{d['strategy']['framework']['name']} {d['strategy']['framework']['release']}"),
        line("fits", lambda d: "yes" if d["fits"] else f"NO, {gigabytes(d['memory_over_gb'])} over"),
        line(
            "step time P50 (P10-P90)",
            lambda d: f"{seconds(d['step_s']['p50'])} ({seconds(d['step_s']['p10'])}-{seconds(d['step_s']['p90'])})",
        ),
        line("tokens/s/GPU", lambda d: whole(d["tokens_per_s_per_gpu"])),
        line("MFU / HFU", lambda d: f"{percent(d['mfu'])} / {percent(d['hfu'])}"),
        line(
            "scaling efficiency",
            lambda d: (
                "-"
                if d["scaling_efficiency"]["value"] is None
                else f"{percent(d['scaling_efficiency']['value'])} of {d['scaling_efficiency']['reference_gpus']} GPUs"
            ),
        ),
        line("exposed communication", lambda d: percent(d["utilization"]["comm_wait_frac"])),
        line("bubble", lambda d: percent(d["breakdown_s"]["bubble"] / d["step_s"]["p50"])),
    ]
    return rows


def _run_rows(docs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    def line(label: str, pick: Any) -> tuple[str, list[str]]:
        return label, [pick(d) for d in docs.values()]

    return [
        line("days ideal", lambda d: days(d["days_ideal"])),
        line(
            "days P50 (P10-P90)",
            lambda d: f"{days(d['days']['p50'])} ({days(d['days']['p10'])}-{days(d['days']['p90'])})",
        ),
        line("goodput", lambda d: percent(d["goodput"])),
        line("GPU-hours", lambda d: whole(d["gpu_hours"])),
        line("energy", lambda d: f"{whole(d['energy_kwh'])} kWh"),
        *(
            line(BUCKET_WORDS.get(bucket, bucket), lambda d, bucket=bucket: dollars(d["cost_usd"][bucket]))
            for bucket in BUCKET_WORDS
            if any(d["cost_usd"][bucket] for d in docs.values())
        ),
        line(
            "total P50 (P10-P90)",
            lambda d: (
                f"{dollars(d['cost_usd_total']['p50'])} "
                f"({dollars(d['cost_usd_total']['p10'])}-{dollars(d['cost_usd_total']['p90'])})"
            ),
        ),
        line("useful GPU-hour", lambda d: f"{d['cost_usd_per_useful_gpu_hour']:.2f} USD"),
        line("over the programme", lambda d: dollars(d["programme_usd"])),
    ]


def _table(*, title: str, names: list[str], rows: list[tuple[str, list[str]]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for label, values in rows:
        table.add_row(label, *values)
    return table


def _shares(docs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    rows = []
    for key, words in BREAKDOWN_WORDS.items():
        values = [d["breakdown_s"][key] for d in docs.values()]
        if any(abs(v) > 1e-9 for v in values):
            rows.append(
                (
                    words,
                    [
                        f"{seconds(v)}  {percent(v / d['step_s']['p50']):>6}"
                        for v, d in zip(values, docs.values(), strict=True)
                    ],
                )
            )
    return rows


def _optimisations_table(*, name: str, effects: Sequence[Mapping[str, Any]]) -> Table:
    """What each named optimisation did, in the order in which they were applied."""
    table = Table(
        title=f"Optimisations of {name}, each on top of the last",
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
    )
    for column in ("", "step before", "after", "gain", "weeks"):
        table.add_column(column, justify="right" if column else "left")
    table.add_column("how, and what to know", overflow="fold")
    for e in effects:
        if not e["applied"]:
            table.add_row(e["key"], "-", "-", "-", "-", e["note"])
            continue
        words = "; ".join(w for w in (e["by"], e["note"]) if w)
        numbers = (seconds(e["before_s"]), seconds(e["after_s"]), percent(e["gain_frac"]), f"{e['effort_weeks']:.1f}")
        table.add_row(e["key"], *numbers, words)
    return table


def print_documents(*, docs: Mapping[str, Mapping[str, Any]], title: str, console: Console) -> None:
    """Print the tables of one or more forecasts."""
    names = list(docs)
    console.print(f"[bold]{title}[/bold]\n")
    console.print(_table(title="The step", names=names, rows=_rows(docs)))
    console.print()
    console.print(_table(title="Where the step goes (mean over GPUs)", names=names, rows=_shares(docs)))
    console.print()
    for name, d in docs.items():
        if d["optimisations"]:
            console.print(_optimisations_table(name=name, effects=d["optimisations"]))
            console.print()
    memory = [(w, [gigabytes(d["memory_gb"][k]) for d in docs.values()]) for k, w in MEMORY_WORDS.items()]
    console.print(_table(title="Memory of the fullest rank", names=names, rows=memory))
    console.print()
    console.print(_table(title="The run and the bill", names=names, rows=_run_rows(docs)))
    console.print()
    for line in relax_lines(docs):
        console.print(f"[red]![/red] {line}")
    for name, d in docs.items():
        shares = ", ".join(f"{k} {percent(v)}" for k, v in d["label_share"].items())
        console.print(f"{name}: kernel and link time rests on {shares} figures")
    seen = list(dict.fromkeys(w for d in docs.values() for w in d["warnings"]))
    for warning in seen:
        console.print(f"[yellow]note[/yellow] {warning}")


def figure(*, value: float | None, unit: str) -> str:
    """A figure of the decision table in words of its unit."""
    if value is None:
        return "-"
    words = {"s": seconds, "1": percent, "day": days, "USD": dollars}
    if unit == "USD" and value < 100:
        return f"{value:.2f} USD"
    if unit == "s" and value >= 600:
        return f"{value / 60:,.0f} min"
    if unit in words:
        return words[unit](value)
    return f"{value:.1f}" if unit in {"count", "week"} else f"{whole(value)} {unit}"


def print_comparison(*, comparison: Comparison, title: str, console: Console) -> None:
    """Print strategies side by side, the verdict and what would change it."""
    document = comparison.document
    docs = document["strategies"]
    print_documents(docs=docs, title=title, console=console)
    console.print()
    decision = [
        (row["text"], [figure(value=v, unit=row["unit"]) for v in row["values"].values()])
        for row in document["decision_table"]
    ]
    console.print(_table(title="Decision table", names=list(docs), rows=decision))
    verdict = document["verdict"]
    console.print()
    console.print(f"[bold]Verdict: {verdict['choice'] or 'no strategy fits'}[/bold]")
    for reason in verdict["reasons"]:
        console.print(f"  - {reason}")
    for flip in document["flips_at"]:
        console.print(f"  what flips it: {flip['input']}: {flip['value']:.3g}")
