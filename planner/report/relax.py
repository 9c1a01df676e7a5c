"""What to relax of strategies that do not fit, in sentences for the terminal and the report."""

from collections.abc import Mapping
from typing import Any

from planner.report.units import gigabytes


def relax_lines(docs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each strategy that does not fit, and one for each change that helps."""
    out = []
    for name, document in docs.items():
        if document["fits"]:
            continue
        over = gigabytes(document["memory_over_gb"])
        changes = document.get("relax") or []
        if any(change["fits"] for change in changes):
            hint = "to make it fit, cheapest first:"
        else:
            hint = "no change of its settings was found that makes it fit; these help:" if changes else "nothing helps"
        out.append(f"{name} does not fit: {over} over on the fullest GPU; {hint}")
        out += [f"{name}: {c['constraint']} to {c['by']}: {c['result']} ({c['why']})" for c in changes]
    return out
