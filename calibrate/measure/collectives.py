"""Collectives under torchrun: any number of GPUs and nodes with NCCL, and CPUs with gloo.

`torchrun --nnodes N --nproc-per-node G -m calibrate.measure.collectives --out profile.json`. Every rank walks the same
list; rank 0 says when the time is up and writes the profile. A time is that of the slowest rank of a batch of
back-to-back calls, as nccl-tests take it.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from calibrate.measure.collective_groups import LARGEST_BYTES, OPS, RankGroup, missing, rank_groups, sizes
from calibrate.measure.collective_local import local_samples
from calibrate.measure.collective_profile import open_document, save_document
from calibrate.measure.sampling import Sample, sample, state, synchronize

BATCH_S, MAX_CALLS = 0.01, 50
BATCHES = 9
MATMUL = 4096  # side of the square product that runs beside a collective on a GPU; a CPU takes an eighth
OVERLAP_BYTES = (2**20, 2**24, 2**28)


class Wire:
    """This rank's place: device, dtype, the whole world for control, and one communicator for each group."""

    def __init__(self, *, backend: str) -> None:
        self.gpu = backend == "nccl"
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if self.gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        both = "cpu:gloo,cuda:nccl" if self.gpu else "gloo"
        dist.init_process_group(both, timeout=timedelta(minutes=10))
        self.device = torch.device("cuda" if self.gpu else "cpu")
        self.dtype = torch.bfloat16 if self.gpu else torch.float32
        nodes: list[Any] = [None] * self.world
        dist.all_gather_object(nodes, int(os.environ.get("GROUP_RANK", "0")))
        self.groups = rank_groups(nodes)
        self.communicators = {g.ranks: dist.new_group(list(g.ranks)) for g in self.groups}

    def agree(self, value: float, *, how: Any = None, group: Any = None) -> float:
        """The largest (or otherwise reduced) value over ranks."""
        box = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(box, op=how or dist.ReduceOp.MAX, group=group)
        return float(box)

    def free_bytes(self) -> float:
        """Memory that the tightest rank still has."""
        if self.gpu:
            mine = float(torch.cuda.mem_get_info()[0])
        else:
            pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            mine = pages / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return self.agree(0.8 * mine, how=dist.ReduceOp.MIN)


def collective_call(*, wire: Wire, group: RankGroup, op: str, nbytes: int) -> Callable[[], Any]:
    """A call of one collective on fresh buffers; bytes as nccl-tests count them."""
    n, comm = len(group.ranks), wire.communicators[group.ranks]
    count = max(n, nbytes // wire.dtype.itemsize // n * n)
    whole = torch.zeros(count, dtype=wire.dtype, device=wire.device)
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole, group=comm)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, src=group.ranks[0], group=comm)
    other = torch.zeros(count // n if op in {"all_gather", "reduce_scatter"} else count, dtype=wire.dtype,
                        device=wire.device)  # fmt: skip
    if op == "all_gather":
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the name before torch 2.13
        return lambda: gather(whole, other, group=comm)
    if op == "reduce_scatter":
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return lambda: scatter(other, whole, group=comm)
    if op == "all_to_all":
        return lambda: dist.all_to_all_single(other, whole, group=comm)
    place = group.ranks.index(wire.rank)
    following, previous = group.ranks[(place + 1) % n], group.ranks[place - 1]

    def exchange() -> None:
        pair = [dist.P2POp(dist.isend, whole, following, comm), dist.P2POp(dist.irecv, other, previous, comm)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return exchange


def batch_s(*, wire: Wire, call: Callable[[], Any], calls: int) -> float:
    """Seconds of one call in a batch of back-to-back calls on this rank."""
    if not wire.gpu:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / 1e3 / calls


def timed(
    *, wire: Wire, group: RankGroup, call: Callable[[], Any], seconds: float
) -> tuple[list[float], dict[str, Any]]:
    """Times of the slowest rank; every rank runs the same number of calls."""
    comm = wire.communicators[group.ranks]
    for _ in range(2):
        call()
    synchronize()
    once = wire.agree(batch_s(wire=wire, call=call, calls=1), group=comm)
    calls = int(min(MAX_CALLS, max(1, BATCH_S / max(once, 1e-9))))
    batches = int(min(BATCHES, max(3, seconds / max(once * calls, 1e-9))))
    times, at = [], state()
    for _ in range(batches):
        dist.barrier(group=comm)
        times.append(wire.agree(batch_s(wire=wire, call=call, calls=calls), group=comm))
    return times, at


def group_samples(*, wire: Wire, group: RankGroup, op: str, nbytes: int, seconds: float) -> list[Sample]:
    """One operation at one size over one group, on its members."""
    call = collective_call(wire=wire, group=group, op=op, nbytes=nbytes)
    measured = timed(wire=wire, group=group, call=call, seconds=seconds)
    shape = {"bytes": nbytes, "ranks": len(group.ranks), "nodes": group.nodes, "group": group.name}
    layout = "in_place" if op in {"all_reduce", "broadcast"} else "out_of_place"
    return [
        sample(kind="collective", op=op, shape=shape, dtype=str(wire.dtype).removeprefix("torch."), layout=layout,
               method="event" if wire.gpu else "wall", measured=measured)
    ]  # fmt: skip


def _beside(*, wire: Wire, first: Callable[[], Any], others: Callable[[], Any], count: int) -> float:
    """Seconds of `first` on this rank while `count` calls of `others` run on another stream or thread."""
    if not wire.gpu:
        import threading

        thread = threading.Thread(target=lambda: [others() for _ in range(count)])
        thread.start()
        seconds = batch_s(wire=wire, call=first, calls=1)
        thread.join()
        return seconds
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(count):
            others()
    seconds = batch_s(wire=wire, call=first, calls=1)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    return seconds


def overlap_samples(*, wire: Wire, group: RankGroup, op: str, nbytes: int) -> list[Sample]:
    """A collective beside matrix products and a product beside collectives; `alone_s` is the same without the other."""
    comm = wire.communicators[group.ranks]
    side = MATMUL if wire.gpu else MATMUL // 8
    a, b = (torch.randn(side, side, dtype=wire.dtype, device=wire.device) for _ in range(2))
    c = torch.empty(side, side, dtype=wire.dtype, device=wire.device)
    calls = {
        "collective": collective_call(wire=wire, group=group, op=op, nbytes=nbytes),
        "matmul": lambda: torch.mm(a, b, out=c),
    }
    alone = {}
    for name, call in calls.items():
        call()
        synchronize()
        tries = []
        for _ in range(5):
            dist.barrier(group=comm)
            tries.append(wire.agree(batch_s(wire=wire, call=call, calls=1), group=comm))
        alone[name] = statistics.median(tries)
    out = []
    for name, other in (("collective", "matmul"), ("matmul", "collective")):
        # The other side lasts twice as long, so that the measured one is never without it.
        count = int(min(200, max(2, round(2 * alone[name] / alone[other] + 1))))
        times = []
        for _ in range(5):
            dist.barrier(group=comm)
            mine = _beside(wire=wire, first=calls[name], others=calls[other], count=count)
            times.append(wire.agree(mine, group=comm))
        shape = {"bytes": nbytes, "ranks": len(group.ranks), "nodes": group.nodes, "group": group.name,
                 "m": side, "n": side, "k": side, "alone_s": alone[name]}  # fmt: skip
        out.append(
            sample(kind="overlap", op=f"{name}_beside_{op if name == 'matmul' else 'matmul'}", shape=shape,
                   dtype=str(wire.dtype).removeprefix("torch."), method="event" if wire.gpu else "wall",
                   measured=(times, state()))
        )  # fmt: skip
    return out


Job = tuple[str, RankGroup, Callable[[], list[Sample]]]


def jobs(*, wire: Wire, largest: int, seconds_each: float) -> list[Job]:
    """The walk, small messages first so that a short run already covers every operation and group."""
    out: list[Job] = []
    for nbytes in sizes(free_bytes=wire.free_bytes(), largest=largest):
        for group in wire.groups:
            for op in OPS:
                if op == "send_recv" and len(group.ranks) > 2:
                    continue

                def one(group: RankGroup = group, op: str = op, nbytes: int = nbytes) -> list[Sample]:
                    return group_samples(wire=wire, group=group, op=op, nbytes=nbytes, seconds=seconds_each)

                out.append((f"{op} {nbytes} over {len(group.ranks)} ({group.name})", group, one))
    for group in wire.groups:
        for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
            for nbytes in OVERLAP_BYTES:
                if nbytes > largest:
                    continue

                def both(group: RankGroup = group, op: str = op, nbytes: int = nbytes) -> list[Sample]:
                    return overlap_samples(wire=wire, group=group, op=op, nbytes=nbytes)

                out.append((f"{op} {nbytes} beside matmul over {len(group.ranks)}", group, both))
    return out


def walk(
    *, wire: Wire, todo: Sequence[Job], limit_s: float, say: Callable[[str], None]
) -> tuple[list[Sample], list[str]]:
    """Samples that the first rank of each group holds, and what went wrong; stops on every rank at once."""
    began, samples, warnings = time.perf_counter(), [], []
    for index, (name, group, job) in enumerate(todo):
        spent = wire.agree(time.perf_counter() - began)
        if spent > limit_s:
            warnings.append(f"stopped after {spent:.0f} s with {len(todo) - index} of {len(todo)} jobs left")
            break
        if index % 20 == 0:
            say(f"{spent:6.0f} s  job {index + 1}/{len(todo)} {name}")
        if wire.rank not in group.ranks:
            continue
        try:
            found = job()
            if wire.rank == group.ranks[0]:
                samples += found
        except (RuntimeError, NotImplementedError) as error:
            warnings.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:140]}")
        if wire.gpu:
            torch.cuda.empty_cache()
    return samples, warnings


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--backend", choices=["auto", "nccl", "gloo"], default="auto")
    p.add_argument("--seconds", type=float, default=600.0)
    p.add_argument("--largest-bytes", type=int, default=LARGEST_BYTES)
    a = p.parse_args(arguments)
    backend = a.backend if a.backend != "auto" else ("nccl" if torch.cuda.is_available() else "gloo")
    rank = int(os.environ.get("RANK", "0"))

    def say(text: str) -> None:
        if rank == 0:
            print(text, file=sys.stderr, flush=True)

    began = time.perf_counter()
    document = open_document(a.out) if rank == 0 else {}
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        warnings = list(missing(()))
        say(warnings[0])
        samples = local_samples(largest=a.largest_bytes)
    else:
        wire = Wire(backend=backend)
        todo = jobs(wire=wire, largest=a.largest_bytes, seconds_each=0.2)
        mine, trouble = walk(wire=wire, todo=todo, limit_s=a.seconds, say=say)
        everyone: list[Any] = [None] * wire.world
        dist.all_gather_object(everyone, (mine, trouble))
        samples = [s for part, _ in everyone for s in part]
        warnings = [*missing(wire.groups), *dict.fromkeys(t for _, part in everyone for t in part)]
        dist.destroy_process_group()
    if rank == 0:
        save_document(path=a.out, document=document, samples=samples, warnings=warnings,
                      seconds=time.perf_counter() - began)  # fmt: skip
        say(f"{len(samples)} samples in {a.out}")
        for text in warnings:
            say(f"note: {text}")


if __name__ == "__main__":
    main()
