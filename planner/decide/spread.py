"""Many independent tasks on one core, on all cores or on a cluster; what is done is kept and never done twice.

A task is a key and the arguments of one pure function of a module; its result is a table of plain values. The cut of a
job into tasks depends on the job alone and answers are put together in the order of the tasks, so the same job gives
the same answer whatever the cores, the back end, or how often it was interrupted.
"""

import hashlib
import os
import signal
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass
from multiprocessing import active_children
from pathlib import Path
from typing import Any

from planner import __version__

Table = Mapping[str, Any]  # column -> list or array, all of one length
Call = tuple[str, tuple[Any, ...]]  # key and arguments of a task
Outcome = tuple[str, Table | Exception]

BACKENDS = ("local", "dask", "ray")
WORTH_S = 1.0  # work that takes less in all is done before other processes have started
ATTEMPTS = 3  # losses of workers in a row, with nothing done in between, before a job is given up


class SpreadError(Exception):
    """Workers that cannot be reached or are lost again and again, or a file of results that is not this job's."""


class WorkersLost(Exception):
    """A worker died in a way that its back end does not mend by itself."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C, with the tables of the tasks that were done by then; `kept` says what a file holds of them."""

    def __init__(self, done: Mapping[str, Table], kept: str) -> None:
        super().__init__(kept)
        self.done = done
        self.kept = kept


def _silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where tasks run and where their results go.

    Attributes:
        backend: local (processes of this machine), dask or ray (a running cluster).
        address: of the cluster's scheduler.
        cores: local processes; None = every core.
        out: file of results, `.parquet` or `.jsonl`; a job of the same kind goes on from what it holds.
        say: told about progress.
    """

    backend: str = "local"
    address: str | None = None
    cores: int | None = None
    out: Path | None = None
    say: Callable[[str], None] = _silent


ONE_CORE = Where(cores=1)


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done.

    Attributes:
        function: of a module that workers can import; takes a task's arguments, returns its table.
        tasks: arguments by key (letters, digits, dots and dashes), in the order of the answer, long ones first.
        kinds: kind of each column: float, int, str, bool or floats (a list).
        identity: what else the results depend on; a file with another identity is refused.
        expected_s: seconds on one core, roughly; None = long.
    """

    function: Callable[..., Table]
    tasks: Mapping[str, tuple[Any, ...]]
    kinds: Mapping[str, str]
    identity: Mapping[str, Any]
    expected_s: float | None = None


def fingerprint(*inputs: Any) -> str:
    """Twelve hex digits over frozen dataclasses and plain values: equal inputs, equal digits."""
    return hashlib.sha256(_written(inputs).encode()).hexdigest()[:12]


def _written(value: Any) -> str:
    """As `repr`, with the members of sets and the keys of mappings in order: theirs changes between processes."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = [f"{f.name}={_written(getattr(value, f.name))}" for f in fields(value)]
        return f"{type(value).__name__}({','.join(parts)})"
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{_written(k)}:{_written(v)}' for k, v in value.items()))}}}"
    if isinstance(value, Set):
        return f"{{{','.join(sorted(map(_written, value)))}}}"
    if isinstance(value, list | tuple):
        return f"({','.join(map(_written, value))})"
    return repr(value)


def spread(*, job: Job, where: Where = ONE_CORE) -> dict[str, Table]:
    """The table of every task, in the order of the tasks.

    Args:
        job: what to do.
        where: on which workers, into which file.

    Raises:
        SpreadError: see there. What was done by then is in the file.
        Stopped: interrupted.
    """
    from planner.decide.store import Store

    store = Store(path=where.out, kinds=job.kinds, identity=job.identity) if where.out is not None else None
    done = store.done(job.tasks) if store is not None else {}
    if done:
        where.say(f"{where.out} holds {len(done)} of {len(job.tasks)} tasks\n")
    calls = [(key, args) for key, args in job.tasks.items() if key not in done]
    try:
        with closing(_results(job=job, calls=calls, where=where)) as results:
            for key, table in results:
                done[key] = table
                if store is not None:
                    store.put(key, table)
                where.say(f"\r{len(done)} of {len(job.tasks)} tasks")
        if store is not None and calls:
            store.finish(list(job.tasks))
    except KeyboardInterrupt:
        raise Stopped(done, _kept(where=where, done=len(done), total=len(job.tasks))) from None
    except SpreadError as problem:
        kept = f"; {_kept(where=where, done=len(done), total=len(job.tasks))}" if done else ""
        raise SpreadError(f"{problem}{kept}") from problem
    if calls:
        where.say("\n")
    return {key: done[key] for key in job.tasks}


def _kept(*, where: Where, done: int, total: int) -> str:
    if where.out is None:
        return "nothing is kept; with --out FILE the next call would go on from here"
    return f"{done} of {total} tasks are kept beside {where.out}; the same command goes on from there"


def _results(*, job: Job, calls: Sequence[Call], where: Where) -> Generator[tuple[str, Table], None, None]:
    """Tables as they come; tasks of lost workers are done again."""
    left, losses = dict(calls), 0
    while left:
        try:
            with closing(_outcomes(job=job, calls=list(left.items()), where=where)) as outcomes:
                for key, outcome in outcomes:
                    if isinstance(outcome, Exception):
                        raise outcome
                    del left[key]
                    losses = 0
                    yield key, outcome
        except WorkersLost as loss:
            losses += 1
            if losses == ATTEMPTS:
                raise SpreadError(f"workers were lost {ATTEMPTS} times and nothing was done: {loss}") from loss
            where.say(f"\na worker was lost ({loss}); its tasks are done again\n")


def _outcomes(*, job: Job, calls: Sequence[Call], where: Where) -> Generator[Outcome, None, None]:
    if where.backend != "local":
        from planner.decide.cluster import on_cluster

        return on_cluster(function=job.function, calls=calls, where=where)
    cores = min(len(calls), where.cores or os.cpu_count() or 1)
    left_s = None if job.expected_s is None else job.expected_s * len(calls) / max(1, len(job.tasks))
    if cores <= 1 or (left_s is not None and left_s < WORTH_S):
        return (call(__version__, job.function, key, args) for key, args in calls)
    return _on_cores(function=job.function, calls=calls, cores=cores)


def call(version: str, function: Callable[..., Table], key: str, args: tuple[Any, ...]) -> Outcome:
    """One task on a worker: its table, or the error that it is to be raised with at home."""
    if version != __version__:
        return key, SpreadError(f"a worker runs planner {__version__}, this is {version}; install the same on all")
    try:
        return key, function(*args)
    except Exception as problem:
        return key, problem


def _on_cores(*, function: Callable[..., Table], calls: Sequence[Call], cores: int) -> Generator[Outcome, None, None]:
    others = set(active_children())
    pool = ProcessPoolExecutor(cores, initializer=_leave_interrupts_to_the_parent)
    try:
        for future in as_completed([pool.submit(call, __version__, function, key, args) for key, args in calls]):
            yield future.result()
        pool.shutdown()
    except BrokenProcessPool as problem:
        raise WorkersLost("out of memory?") from problem
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(active_children()) - others:
            child.terminate()
        raise


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
