"""Answers that take more than a moment: each by the command line in a process of its own.

So a page stays quick for other people, a long answer can be stopped (what it has by then is kept where the command
keeps it), and nobody runs two at once. The files of an answer live in a folder that is gone with it.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import planner

SLOTS = 2  # at the same time, over all sessions
LIMIT_S = 300.0  # then an answer is stopped
GRACE_S = 20.0  # a stopped command writes what it has
MAX_ANSWER_BYTES = 100_000_000
KEPT_ANSWERS = 32
# Input error and crash: a document of errors instead of an answer (contract 1).
FAILED = (1, 70)


class JobError(ValueError):
    """A command that gave no answer, in its own words."""


@dataclass(slots=True)
class Job:
    """A command under way."""

    key: str
    folder: Path
    process: subprocess.Popen[bytes]
    started_s: float
    makes: tuple[str, ...] = ()
    timers: list[threading.Timer] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_s

    def said(self) -> str:
        """The last thing it said of its progress."""
        with (self.folder / "progress").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 300))
            lines = file.read().decode("utf-8", "replace").replace("\r", "\n").split("\n")
        return next((line.strip()[:120] for line in reversed(lines) if line.strip()), "")

    def stop(self) -> None:
        """Ask it to end with what it has; it is ended if it does not."""
        if self.running:
            self.process.send_signal(signal.SIGINT)
            self._later(GRACE_S, self.process.kill)

    def _later(self, seconds: float, what: Any) -> None:
        timer = threading.Timer(seconds, what)
        timer.daemon = True
        timer.start()
        self.timers.append(timer)

    def limit(self, seconds: float) -> None:
        """Stop it when it takes longer."""
        self._later(seconds, self.stop)


@dataclass(slots=True)
class Desk:
    """All commands under way and the last answers, shared by the sessions of a server."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    jobs: list[Job] = field(default_factory=list)
    answers: OrderedDict[str, Any] = field(default_factory=OrderedDict)

    def free(self) -> bool:
        """Whether another command may start."""
        with self.lock:
            self.jobs = [j for j in self.jobs if j.running]
            return len(self.jobs) < SLOTS

    def start(
        self, *, key: str, command: Sequence[str], files: Mapping[str, bytes], makes: Sequence[str] = ()
    ) -> Job | None:
        """Start `planner COMMAND` in a folder with these files; None where all slots are taken.

        Args:
            key: under which the answer is kept.
            command: words after `planner`; file names are relative to the folder.
            files: by name.
            makes: files that it writes and whose bytes are the answer, instead of the document on stdout.
        """
        with self.lock:
            self.jobs = [j for j in self.jobs if j.running]
            if len(self.jobs) >= SLOTS:
                return None
            folder = Path(tempfile.mkdtemp(prefix="planner-"))
            for name, data in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            root = str(Path(planner.__file__).resolve().parents[1])
            paths = [root, *(p for p in (os.environ.get("PYTHONPATH"),) if p)]
            with (folder / "answer").open("wb") as out, (folder / "progress").open("wb") as err:
                process = subprocess.Popen(  # noqa: S603 - our own interpreter and words, no shell
                    [sys.executable, "-c", "from planner.cli import main; main()", *command],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PLANNER_PROGRESS": "1"},
                )
            job = Job(key, folder, process, time.monotonic(), tuple(makes))
            job.limit(LIMIT_S)
            self.jobs.append(job)
            return job

    def finish(self, job: Job) -> Any:
        """The answer of a command that has ended; its folder goes.

        Raises:
            JobError: it gave none.
        """
        for timer in job.timers:
            timer.cancel()
        try:
            found = _answer(job)
        finally:
            shutil.rmtree(job.folder, ignore_errors=True)
        stopped = isinstance(found, dict) and found.get("interrupted")
        if not stopped:
            with self.lock:
                self.answers[job.key] = found
                while len(self.answers) > KEPT_ANSWERS:
                    self.answers.popitem(last=False)
        return found

    def drop(self, job: Job) -> None:
        """End a command whose answer nobody waits for."""
        for timer in job.timers:
            timer.cancel()
        if job.running:
            job.process.kill()
            job.process.wait()
        shutil.rmtree(job.folder, ignore_errors=True)

    def close(self) -> None:
        """End everything."""
        for job in self.jobs:
            self.drop(job)


def _answer(job: Job) -> Any:
    if job.makes:
        made = [job.folder / name for name in job.makes]
        if job.process.returncode in FAILED or not all(p.is_file() for p in made):
            raise JobError(job.said() or f"ended with code {job.process.returncode}")
        return {p.name: p.read_bytes() for p in made}
    path = job.folder / "answer"
    if not 0 < path.stat().st_size <= MAX_ANSWER_BYTES:
        raise JobError(job.said() or f"ended with code {job.process.returncode}")
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise JobError(f"no answer: {error}") from error
    if isinstance(document, dict) and "errors" in document and job.process.returncode in FAILED:
        raise JobError("; ".join(str(e["message"]) for e in document["errors"]))
    return document


DESK = Desk()
atexit.register(DESK.close)
