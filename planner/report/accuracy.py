"""The accuracy table: our error by group with the constant-MFU baseline beside it."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


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


def markdown_table(document: Mapping[str, Any]) -> str:
    """The README's accuracy table."""
    lines = ["| group | runs | error % | median % | bias % | in band % | baseline % |", "|---|---|---|---|---|---|---|"]
    for g in document["groups"]:
        z = g["zero_shot"]
        if z:
            base = g["baseline"]["mape_pct"] if g["baseline"] else None
            lines.append(
                f"| {g['group'].replace(' | ', ', ')} | {g['n_configs']} | {_pct(z['mape_pct'])} | "
                f"{_pct(z['median_ape_pct'])} | "
                f"{_pct(z['bias_pct'])} | {_pct(100 * z['coverage_frac'])} | {_pct(base)} |"
            )
    return "\n".join(lines)


BEGIN, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"


def update_readme(*, path: Path, document: Mapping[str, Any]) -> None:
    """Replace the text between the accuracy markers of a README.

    Raises:
        ValueError: the file has no markers.
    """
    text = path.read_text("utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} has no {BEGIN} ... {END} block")
    s = document["summary"]
    z, r = s["zero_shot"], s["ranking"]
    body = (
        f"{date.today().isoformat()}, {s['n_forecast']} of {s['n_rows']} packaged rows forecast, nothing fitted to a "
        "site. "
        f"Mean over groups {_pct(z['mean_group_mape_pct'])} %, median group {_pct(z['median_group_mape_pct'])} %; "
        f"constant-MFU baseline, median group {_pct(s['baseline']['median_group_mape_pct'])} %. "
        f"P10-P90 band holds {_pct(100 * (z['coverage_frac'] or 0))} % of rows. "
        f"Ranking of plans: mean rank correlation {r['spearman']:.2f}, regret {_pct(100 * r['regret_frac'])} %.\n\n"
        + markdown_table(document)
    )
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f"{head}{BEGIN}\n{body}\n{END}{tail}", "utf-8")
    temporary.replace(path)
