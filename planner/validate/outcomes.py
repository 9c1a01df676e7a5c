"""How whole runs ended: interruptions, time to failure, goodput, GPU-hours, energy, carbon, money (contract 5)."""

import csv
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from planner.validate import outcome_epoch, outcome_models
from planner.validate.outcome_models import Band, Row
from planner.validate.setup import SkipRowError, number

NOT_CONFIG = {"id", "observed", "value", "value_low", "value_high", "notes", "judge", "unit"}
MODELS: Mapping[str, Callable[[Row], Band]] = {
    "interruptions": outcome_models.interruptions,
    "mttf_h": outcome_models.mttf_h,
    "effective_time_frac": outcome_models.goodput,
    "goodput_frac": outcome_models.goodput,
    "gpu_hours": outcome_models.gpu_hours,
    "days": outcome_models.days,
    "energy_kwh": outcome_models.energy_kwh,
    "carbon_t": outcome_models.carbon_t,
    "cost_cloud_usd": outcome_models.cloud_usd,
    "cost_acquisition_usd": outcome_epoch.acquisition_usd,
    "cost_amortised_usd": outcome_epoch.amortised_usd,
    "checkpoint_s": outcome_models.checkpoint_s,
    "restart_s": outcome_models.restart_s,
    "power_kw": outcome_models.power_kw,
    "spot_availability_frac": outcome_models.spot_availability,
}


def packaged_rows() -> list[dict[str, str]]:
    """The public rows that travel with the package."""
    text = files("planner.validate").joinpath("data/outcomes.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def inside(*, answer: Mapping[str, Any]) -> bool:
    """Whether the observed figure, or a bound on it, agrees with the band."""
    band, observed = answer["zero_shot"], answer["measured"]
    if "bound:ge" in answer["flags"]:
        return bool(band["p90"] >= observed)
    if "bound:le" in answer["flags"]:
        return bool(band["p10"] <= observed)
    return bool(band["p10"] <= observed <= band["p90"])


def _group(row: Row) -> str:
    quantity, judge = row.get("quantity") or "other", row.get("judge") or "no"
    return {"yes": quantity, "method": f"{quantity} (estimates of a method)"}.get(judge, f"{quantity} (not judged)")


def _hash(row: Row) -> str:
    text = "\x1f".join(f"{k}={row.get(k) or ''}" for k in sorted(k for k in row if k and k not in NOT_CONFIG))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def validate_outcomes(rows: Sequence[Row] | None = None, profile: str | None = None) -> list[dict[str, Any]]:
    """One answer row for each observed outcome, in file order."""
    del profile  # outcomes of whole runs do not depend on one GPU's profile
    return [_answer(index=i, row=r) for i, r in enumerate(rows if rows is not None else packaged_rows())]


def _answer(*, index: int, row: Row) -> dict[str, Any]:
    quantity = (row.get("quantity") or "").strip()
    observed = number(row, "value")
    out: dict[str, Any] = {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": _hash(row),
        "group": _group(row),
        "metric": quantity or "other",
        "unit": row.get("unit") or "",
        "measured": observed,
        "skipped": None,
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [f"bound:{row.get('bound') or 'eq'}", f"judge:{row.get('judge') or 'no'}"],
    }
    if quantity not in MODELS:
        return out | {"skipped": f"setting_missing: {quantity or 'a blank quantity'} is not forecast"}
    if not observed:
        return out | {"skipped": "setting_missing: no observed figure"}
    try:
        band = MODELS[quantity](row)
    except SkipRowError as error:
        return out | {"skipped": str(error)}
    out["assumed"] = list(band.assumed)
    out["zero_shot"] = {
        "predicted": band.p50,
        "p10": band.p10,
        "p90": band.p90,
        "error_pct": 100 * (band.p50 - observed) / observed,
    }
    return out


def outcome_scores(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many judgeable outcomes lie inside the band, and estimates of a method apart."""

    def score(judge: str) -> dict[str, Any]:
        used = [a for a in answers if a["zero_shot"] and f"judge:{judge}" in a["flags"]]
        every = [a for a in answers if f"judge:{judge}" in a["flags"]]
        agree = [a for a in used if inside(answer=a)]
        return {
            "rows": len(every),
            "forecast": len(used),
            "inside": len(agree),
            "inside_frac": len(agree) / len(used) if used else None,
            "outside": [a["id"] for a in used if a not in agree],
        }

    return {"judged": score("yes"), "method": score("method"), "not_judged": score("no")}
