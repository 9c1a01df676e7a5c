"""The profile that collectives are written to: a new one, or a further session of one made on the same machine."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibrate.measure.device import header


class OtherMachineError(RuntimeError):
    """The file was made on something else."""


def open_document(path: Path) -> dict[str, Any]:
    """The document to add to.

    Raises:
        OtherMachineError: the file's device, driver or torch is not this machine's.
    """
    head = header()
    if path.exists():
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        for part, key in (("device", "name"), ("software", "driver"), ("software", "torch")):
            if document[part][key] != head[part][key]:
                text = f"{path} was made with {key} {document[part][key]}, here it is {head[part][key]}"
                raise OtherMachineError(text)
        return document
    started = datetime.now(UTC).isoformat(timespec="seconds")
    run = {"started": started, "seconds": 0.0, "mode": "full", "complete": True, "warnings": []}
    return {"schema_version": 1, **head, "run": run, "samples": []}


def save_document(
    *, path: Path, document: dict[str, Any], samples: list[dict[str, Any]], warnings: list[str], seconds: float
) -> None:
    """Add the samples as a session of their own and write by way of a temporary name."""
    session = max((s["session"] for s in document["samples"]), default=0) + 1
    document["samples"] += [{**s, "session": session} for s in samples]
    document["run"]["warnings"] += [w for w in warnings if w not in document["run"]["warnings"]]
    document["run"]["seconds"] = round(document["run"]["seconds"] + seconds, 2)
    document["run"]["complete"] = document["run"]["complete"] and not any(w.startswith("stopped") for w in warnings)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
    temporary.replace(path)
