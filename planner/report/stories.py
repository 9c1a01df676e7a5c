"""Tables of the roadmap page: claims by story, shipped roads, forecast gains; made from results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VERDICTS = {"holds": "holds", "holds_when": "holds when", "does_not_hold": "does not hold"}


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"


def claims_table(*, answers: Sequence[Mapping[str, Any]], story: str) -> str:
    """Claims of one story with verdict and what was found, case by case."""
    lines = ["| sentence | verdict | found |", "|---|---|---|"]
    for a in answers:
        if a["story"] != story:
            continue
        good = set(a["conditions"]["holds_when"])
        cases = "; ".join(
            f"{'**' if label in good else ''}{label}: {_number(value)}{'**' if label in good else ''}"
            for label, value in a["numbers"]["cases"].items()
        )
        unit = "" if a["numbers"]["unit"] == "1" else f" ({a['numbers']['unit']})"
        lines.append(f"| {a['sentence']} | {VERDICTS[a['verdict']]} | {cases}{unit} |")
    return "\n".join(lines)


def roads_table(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Shipped scenarios: bottleneck, ceilings, the road and where it stops paying."""
    head = "| scenario | bottleneck | glue / operator / parallel | road, each on top of the last | all | pays until |"
    lines = [head, "|---|---|---|---|---|---|"]
    for name, d in documents.items():
        limits = d["ceilings"]
        steps = ", ".join(f"{s['key']} {100 * s['gain_frac']['p50']:.0f} %" for s in d["steps"][:6])
        paying = d["cutoff"]["after_steps"]
        until = d["steps"][paying - 1]["key"] if paying else "nothing pays"
        shares = " / ".join(f"{100 * limits[k]:.0f}" for k in ("glue", "operator", "parallel"))
        lines.append(
            f"| {name} | {d['bottleneck']} | {shares} % | {steps} | {d['waterfall']['speedup']:.2f}x | {until} |"
        )
    return "\n".join(lines)


def gains_table(scores: Mapping[str, Any]) -> str:
    """Forecast against measured gains, over all rows and by class."""
    lines = ["| class | rows | sources | rank correlation | median error, points | sign right | losses found |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, s in ({"all": scores} | scores["by_class"]).items():
        rho = "-" if s["spearman"] is None else f"{s['spearman']:.2f}"
        sign = "-" if s["sign_right_frac"] is None else f"{100 * s['sign_right_frac']:.0f} %"
        lines.append(
            f"| {name} | {s['n']} | {s['sources']} | {rho} | {s['median_error_points']:.1f} | {sign} | "
            f"{s['losses_found']} of {s['losses']} |"
        )
    return "\n".join(lines)


def renew(*, path: Path, blocks: Mapping[str, str]) -> None:
    """Replace the text between `<!-- NAME: begin -->` and `<!-- NAME: end -->` of a page, for each block.

    Raises:
        ValueError: the page lacks a block's markers.
    """
    text = path.read_text("utf-8")
    for name, body in blocks.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if begin not in text or end not in text:
            raise ValueError(f"{path} has no {begin} ... {end} block")
        text = f"{text.split(begin)[0]}{begin}\n{body}\n{end}{text.split(end)[1]}"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
