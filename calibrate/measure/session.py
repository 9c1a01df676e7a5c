"""One run over a plan: progress with time left, a file that is always whole, resuming in a new session."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from calibrate.measure.device import complaints, header
from calibrate.measure.plan import Job, jobs

SAVE_EVERY_S = 10.0


class ResumeError(RuntimeError):
    """The file to resume was made on something else."""


def run(
    *,
    out: Path,
    mode: str = "full",
    only: tuple[str, ...] = (),
    resume: bool = False,
    limit_s: float = 600.0,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
    plan: list[Job] | None = None,
) -> dict[str, Any]:
    """Measure what fits in the time; the file is renewed every few seconds and at the end, whatever happens."""
    document = _start(out=out, mode=mode, resume=resume)
    session = max((s["session"] for s in document["samples"]), default=0) + 1
    todo = plan if plan is not None else jobs(mode=mode, only=only)
    done = set(document.pop("_done", []))
    todo = [job for job in todo if f"{job[0]} {job[1]}" not in done]
    began, saved, earlier = time.perf_counter(), 0.0, document["run"]["seconds"]
    warnings: list[str] = document["run"]["warnings"]
    complete = True
    finished = sorted(done)
    try:
        for index, (group, name, job) in enumerate(todo):
            spent = time.perf_counter() - began
            if spent > limit_s:
                complete = False
                warnings.append(f"stopped after {spent:.0f} s with {len(todo) - index} of {len(todo)} jobs left")
                break
            if time.perf_counter() - saved > SAVE_EVERY_S:
                saved = time.perf_counter()
                _save(out, document, seconds=earlier + spent, complete=False, done=finished)
                left = spent / max(1, index) * (len(todo) - index)
                say(
                    f"{spent:6.0f} s  job {index + 1}/{len(todo)} {group} {name}, "
                    f"about {min(left, limit_s - spent):.0f} s left"
                )
            try:
                for s in job():
                    document["samples"].append({**s, "session": session})
                finished.append(f"{group} {name}")
            except Exception as error:
                warnings.append(f"{group} {name}: {type(error).__name__}: {str(error)[:160]}")
            if torch.cuda.is_available() and index % 8 == 0:
                for text in complaints():
                    if text not in warnings:
                        warnings.append(text)
                torch.cuda.empty_cache()
    except KeyboardInterrupt:
        complete = False
        warnings.append("interrupted")
    _save(out, document, seconds=earlier + time.perf_counter() - began, complete=complete, done=finished)
    return document


def _start(*, out: Path, mode: str, resume: bool) -> dict[str, Any]:
    head = header()
    if resume and out.exists():
        document: dict[str, Any] = json.loads(out.read_text())
        for part, key in (("device", "name"), ("software", "driver"), ("software", "torch")):
            if document[part][key] != head[part][key]:
                raise ResumeError(f"{out} was made with {key} {document[part][key]}, here it is {head[part][key]}")
        beside = _beside(out)
        document["_done"] = json.loads(beside.read_text()) if beside.exists() else []
        return document
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "schema_version": 1,
        **head,
        "run": {"started": started, "seconds": 0.0, "mode": mode, "complete": False, "warnings": []},
        "samples": [],
    }


def _beside(out: Path) -> Path:
    return out.with_name(out.name + ".done")


def _save(out: Path, document: dict[str, Any], *, seconds: float, complete: bool, done: list[str]) -> None:
    document["run"].update(seconds=round(seconds, 2), complete=complete)
    text = json.dumps({k: v for k, v in document.items() if not k.startswith("_")}, separators=(",", ":"))
    temporary = out.with_name(out.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(out)
    if complete:
        _beside(out).unlink(missing_ok=True)
    else:
        _beside(out).write_text(json.dumps(done))
