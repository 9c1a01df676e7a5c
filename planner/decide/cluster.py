"""Tasks on a running Dask or Ray cluster through joblib's back ends."""

import socket
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from typing import Any

from planner import __version__
from planner.decide.spread import Call, Outcome, SpreadError, Table, Where, WorkersLost, call

CONNECT_S = 20.0
# Longest wait for any result. joblib is not told by Dask of a task that was given up, so something must end the wait.
PATIENCE_S = 300.0
# Ray's back end for joblib hands results over list by list: so many tasks for each of its cores at a time.
TASKS_PER_CORE = 4


def on_cluster(
    *, function: Callable[..., Table], calls: Sequence[Call], where: Where
) -> Generator[Outcome, None, None]:
    """Results as they come.

    Raises:
        SpreadError: the extra is not installed, no cluster answers, or its workers lack this version of planner.
        WorkersLost: nothing came back for PATIENCE_S, or the back end gave up.
    """
    if where.address is None:
        raise SpreadError(f"--backend {where.backend} needs the --address of a running cluster")
    try:
        import joblib
    except ImportError as problem:
        raise _missing(where.backend) from problem
    jobs = [joblib.delayed(call)(__version__, function, key, args) for key, args in calls]
    enter = {"dask": _dask, "ray": _ray}[where.backend]
    # Ray tells of dead workers on stdout, which belongs to the answer.
    with redirect_stdout(sys.stderr), enter(where.address):
        if joblib.effective_n_jobs(-1) == 1:
            where.say("the cluster has one core, so joblib runs the tasks here\n")
        try:
            yield from (_streamed if where.backend == "dask" else _in_waves)(jobs)
        except (SpreadError, WorkersLost):
            raise
        except Exception as problem:
            reason = str(problem) or f"nothing came back for {PATIENCE_S:.0f} s"
            raise WorkersLost(f"{type(problem).__name__}: {reason}") from problem


def _streamed(jobs: Sequence[Any]) -> Iterator[Outcome]:
    import joblib

    run = joblib.Parallel(
        n_jobs=-1, batch_size=1, pre_dispatch="all", return_as="generator_unordered", timeout=PATIENCE_S
    )
    with warnings.catch_warnings():
        # joblib warns of results that nobody fetches after an interruption.
        warnings.simplefilter("ignore")
        with closing(run(jobs)) as results:
            yield from results


def _in_waves(jobs: Sequence[Any]) -> Iterator[Outcome]:
    import joblib

    run = joblib.Parallel(n_jobs=-1, batch_size=1, pre_dispatch="all", timeout=PATIENCE_S)
    wave = TASKS_PER_CORE * max(1, joblib.effective_n_jobs(-1))
    for first in range(0, len(jobs), wave):
        yield from run(jobs[first : first + wave])


@contextmanager
def _dask(address: str) -> Iterator[None]:
    try:
        import joblib
        from distributed import Client
    except ImportError as problem:
        raise _missing("dask") from problem
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as problem:
        raise SpreadError(f"no Dask scheduler answers at {address}: {problem}") from problem
    with client:
        _check_workers(client)
        with joblib.parallel_config(backend="dask", client=client, wait_for_workers_timeout=CONNECT_S):
            yield


def _check_workers(client: Any) -> None:
    """Workers without this version of planner are named before any work is sent to them."""
    if not client.ncores():
        try:
            # A task that waits makes an adaptive cluster start a worker.
            client.submit(abs, -1, pure=False).result(timeout=CONNECT_S)
        except TimeoutError as problem:
            raise SpreadError(f"no worker of the Dask cluster came within {CONNECT_S:.0f} s") from problem
    for worker, found in client.run(_version, on_error="return").items():
        if found != __version__:
            has = f"has no planner ({found})" if isinstance(found, Exception) else f"runs planner {found}"
            raise SpreadError(f"worker {worker} {has}; install planner {__version__} on every worker")


def _version() -> str:
    return __version__


@contextmanager
def _ray(address: str) -> Iterator[None]:
    try:
        import joblib
        import ray
        from ray.util.joblib import register_ray
    except ImportError as problem:
        raise _missing("ray") from problem
    try:
        _knock(address.removeprefix("ray://"))
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
    except (ConnectionError, OSError, ValueError, RuntimeError) as problem:
        raise SpreadError(f"no Ray cluster answers at {address}: {problem}") from problem
    try:
        register_ray()
        with joblib.parallel_config(backend="ray"):
            yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Ray itself asks an address where nobody is for minutes.

    Raises:
        OSError: nobody answers.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()


def _missing(backend: str) -> SpreadError:
    return SpreadError(f"--backend {backend} needs an extra: pip install 'cluster-planner[{backend}]'")
