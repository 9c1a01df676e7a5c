"""The accuracy table: our error by group with the constant-MFU baseline beside it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import mean, median
from textwrap import fill
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.validate.explain import FAR_PCT, far_groups


def _pct(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def print_accuracy(*, document: Mapping[str, Any], console: Console) -> None:
    """Print groups, then the summary."""
    table = Table(show_edge=False, pad_edge=False)
    for column in ("group", "trust", "runs", "error %", "median %", "bias %", "worst %", "in band", "baseline %"):
        table.add_column(column, justify="left" if column == "group" else "right")
    for g in document["groups"]:
        z = g["zero_shot"]
        if not z:
            continue
        base = g["baseline"]["mape_pct"] if g["baseline"] else None
        table.add_row(
            g["group"],
            g["trust"],
            str(g["n_configs"]),
            _pct(z["mape_pct"]),
            _pct(z["median_ape_pct"]),
            _pct(z["bias_pct"]),
            _pct(z["worst_pct"]),
            _pct(100 * z["coverage_frac"]),
            _pct(base),
        )
    console.print(table)
    s = document["summary"]
    z = s["zero_shot"]
    console.print(
        f"{s['n_forecast']} of {s['n_rows']} rows forecast; mean over groups {_pct(z['mean_group_mape_pct'])} %, "
        f"median group {_pct(z['median_group_mape_pct'])} %, constant-MFU baseline "
        f"{_pct(s['baseline']['median_group_mape_pct'])} %; skipped {s['skipped'] or 'none'}"
    )
    if s["site"]:
        fitted = sum("site_fitted_to_this_run" in r["flags"] for r in document["rows"])
        console.print(
            f"with site constants: mean over groups {_pct(s['site']['mean_group_mape_pct'])} %, median group "
            f"{_pct(s['site']['median_group_mape_pct'])} %"
            + (f"; {fitted} rows are of runs that the site was fitted to: a fit, not a forecast" if fitted else "")
        )
    for name, g in ({"all": s["gains"]} | s["gains"]["by_class"]).items() if "gains" in s else ():
        rho, sign = g["spearman"], g["sign_right_frac"]
        console.print(
            f"gains, {name}: {g['n']} rows of {g['sources']} sources; rank correlation "
            f"{'-' if rho is None else f'{rho:.2f}'}, median error {_pct(g['median_error_points'])} points, sign right "
            f"{_pct(None if sign is None else 100 * sign)} %, losses {g['losses_found']} of {g['losses']}"
        )
    for name, g in s.get("outcomes", {}).items():
        console.print(
            f"outcomes, {name.replace('_', ' ')}: {g['inside']} of {g['forecast']} forecast rows inside the band "
            f"({g['rows']} rows); outside: {', '.join(g['outside']) or 'none'}"
        )


MANY = 5  # configurations from which on a group of trust A or B says something about the model


def _said(group: Mapping[str, Any]) -> bool:
    return bool(group["zero_shot"]) and group["trust"] in {"A", "B"} and group["n_configs"] >= MANY


def markdown_table(groups: Iterable[Mapping[str, Any]]) -> str:
    """Groups as a table of a page."""
    lines = ["| group | runs | error % | median % | bias % | in band % | baseline % |", "|---|---|---|---|---|---|---|"]
    for g in groups:
        z = g["zero_shot"]
        base = g["baseline"]["mape_pct"] if g["baseline"] else None
        lines.append(
            f"| {g['group'].replace(' | ', ', ')} | {g['n_configs']} | {_pct(z['mape_pct'])} | "
            f"{_pct(z['median_ape_pct'])} | "
            f"{_pct(z['bias_pct'])} | {_pct(100 * z['coverage_frac'])} | {_pct(base)} |"
        )
    return "\n".join(lines)


SHORT = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
WHOLE = "<!-- accuracy by group: begin -->", "<!-- accuracy by group: end -->"


def _summary(document: Mapping[str, Any]) -> str:
    s = document["summary"]
    z, r = s["zero_shot"], s["ranking"]
    said = [g["zero_shot"]["mape_pct"] for g in document["groups"] if _said(g)]
    many = (
        f"The {len(said)} groups of trust A or B with five or more configurations: mean {_pct(mean(said))} %, median "
        f"{_pct(median(said))} %. "
        if said
        else ""
    )
    text = (
        f"{date.today().isoformat()}, {s['n_forecast']:,} of {s['n_rows']:,} packaged rows forecast, nothing fitted to "
        f"a site. {many}All groups: mean {_pct(z['mean_group_mape_pct'])} %, median {_pct(z['median_group_mape_pct'])} "
        f"%; constant-MFU baseline, median {_pct(s['baseline']['median_group_mape_pct'])} %. The P10-P90 band holds "
        f"{_pct(100 * (z['coverage_frac'] or 0))} % of rows. Ranking of plans: mean rank correlation "
        f"{r['spearman']:.2f}, regret {_pct(100 * r['regret_frac'])} %."
    )
    return fill(text, 120, break_on_hyphens=False)


def _far(document: Mapping[str, Any]) -> str:
    return "\n".join(
        f"- *{g['group'].replace(' | ', ', ')}* ({_pct(g['zero_shot']['mape_pct'])} %): {why}."
        for g, why in far_groups(document)
    )


def update_pages(*, paths: Sequence[Path], document: Mapping[str, Any]) -> None:
    """Replace the text between accuracy markers: the table of groups that say something, or all of them with reasons.

    Raises:
        ValueError: a file has no markers; none is written then.
    """
    named = [(path, path.read_text("utf-8")) for path in paths]
    out = []
    for path, text in named:
        pair = next((m for m in (SHORT, WHOLE) if all(mark in text for mark in m)), None)
        if pair is None:
            raise ValueError(f"{path} has no {SHORT[0]} ... {SHORT[1]} or {WHOLE[0]} ... {WHOLE[1]} block")
        groups = [g for g in document["groups"] if (_said(g) if pair is SHORT else g["zero_shot"])]
        body = f"{_summary(document)}\n\n{markdown_table(groups)}"
        if pair is WHOLE:
            body += f"\n\n## Groups off by more than {FAR_PCT:.0f} %, one by one\n\n{_far(document)}"
        out.append((path, f"{text.split(pair[0])[0]}{pair[0]}\n{body}\n{pair[1]}{text.split(pair[1])[1]}"))
    for path, text in out:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
