"""`python -m calibrate.measure --out profile.json --seconds 400`: a calibration of the local GPU, torch only.

The most useful samples come first and the file is renewed after each group, so that an interruption loses seconds.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from calibrate.measure.blocks import head_samples, layer_samples, optimizer_samples
from calibrate.measure.kernels import attention_samples, matmul_samples, memory_samples
from calibrate.measure.timing import state

GPT = [(768, 12, 12, 3072), (1024, 16, 16, 4096), (1280, 20, 20, 5120), (1600, 25, 25, 6400), (2048, 16, 16, 8192)]
LLAMA = [(2048, 32, 8, 8192), (3072, 24, 8, 8192), (4096, 32, 8, 14336), (8192, 64, 8, 28672)]
TOKENS = [(1, 512), (1, 1024), (4, 1024), (8, 1024), (32, 1024), (1, 4096), (4, 4096), (1, 8192)]
VOCABS = (32000, 50257, 50304, 128256, 256000)
PRODUCTS = [
    *((8192, 8192, 8192), (8192, 28672, 8192), (4096, 4096, 4096), (16384, 4096, 4096), (8192, 50304, 1024)),
    *((8192, 50257, 1024), (1024, 2304, 768), (4096, 3072, 768), (32768, 768, 3072), (2048, 2048, 2048)),
    *((8192, 1600, 6400), (16384, 128256, 2048), (512, 4096, 4096), (128, 4096, 4096), (8192, 8192, 512)),
    *((8192, 512, 8192), (1024, 1024, 1024)),
]
ATTENTION = [
    *((8, 12, 12, 1024, 64), (4, 16, 16, 2048, 64), (4, 32, 8, 4096, 64), (1, 32, 8, 8192, 128)),
    *((1, 32, 32, 4096, 128), (1, 16, 16, 16384, 128), (1, 8, 8, 32768, 128), (16, 16, 16, 512, 128)),
    *((2, 16, 16, 2048, 256),),
]
Job = tuple[str, Callable[[], list[dict[str, Any]]]]


def jobs() -> Iterator[Job]:
    """Every measurement, the most useful first."""
    for precision, mode in (("amp", "eager"), ("bf16", "eager"), ("amp", "regional"), ("bf16", "regional")):
        yield from _layer_jobs(precision=precision, mode=mode)
        yield from _head_jobs(precision=precision, mode=mode)
        if mode == "eager":
            for params, tensors in ((124e6, 148), (355e6, 292), (1.5e9, 580), (1e6, 148)):
                for variant in ("fused", "foreach", "loop"):
                    run = partial(
                        optimizer_samples, params=params, precision=precision, variant=variant, tensors=tensors
                    )
                    yield f"adamw {variant} {params:.0f} {precision}", run
        if (precision, mode) == ("amp", "eager"):
            yield from _kernel_jobs()


def _layer_jobs(*, precision: str, mode: str) -> Iterator[Job]:
    for kind, shapes in (("gpt", GPT), ("llama", LLAMA)):
        for (h, heads, kv, ffn), (mbs, seq) in product(shapes, TOKENS):
            if h * mbs * seq > 2.2e8 or (mode == "regional" and (mbs, seq) in ((1, 512), (8, 1024))):
                continue
            run = partial(
                layer_samples,
                kind=kind,
                hidden=h,
                heads=heads,
                kv_heads=kv,
                ffn=ffn,
                mbs=mbs,
                seq=seq,
                precision=precision,
                mode=mode,
                budget_s=0.25,
            )
            yield f"{kind} {h} {mbs}x{seq} {precision} {mode}", run


def _head_jobs(*, precision: str, mode: str) -> Iterator[Job]:
    for vocab, h, (mbs, seq) in product(VOCABS, (768, 1024, 2048, 4096), ((1, 1024), (8, 1024), (4, 4096))):
        if vocab * mbs * seq <= 2.2e9:
            run = partial(
                head_samples,
                hidden=h,
                vocab=vocab,
                mbs=mbs,
                seq=seq,
                precision=precision,
                mode=mode,
                budget_s=0.15,
            )
            yield f"head {vocab} {h} {mbs}x{seq} {precision} {mode}", run


def _kernel_jobs() -> Iterator[Job]:
    for (m, n, k), phase, hot in product(PRODUCTS, ("fwd", "dgrad", "wgrad"), (True, False)):
        yield f"matmul {m} {n} {k} {phase}", partial(matmul_samples, m=m, n=n, k=k, dtype="bf16", phase=phase, hot=hot)
    for dtype in ("fp16", "tf32", "fp32"):
        yield f"matmul {dtype}", partial(matmul_samples, m=4096, n=4096, k=4096, dtype=dtype)
    for batch, heads, kv, seq, dim in ATTENTION:
        run = partial(attention_samples, batch=batch, heads=heads, kv_heads=kv, seq=seq, head_dim=dim)
        yield f"attention {seq} {dim}", run
    for elements in (1 << 20, 1 << 24, 1 << 27):
        yield f"memory {elements}", partial(memory_samples, elements=elements)


def header() -> dict[str, Any]:
    """Device, host and software of this machine."""
    p = torch.cuda.get_device_properties(0)
    return {
        "device": {
            "name": p.name, "gpu": "H200-SXM" if p.name == "NVIDIA H200" else p.name,
            "sm_count": p.multi_processor_count, "mem_bytes": p.total_memory, "l2_bytes": p.L2_cache_size,
            "power_limit_w": None, "max_clock_mhz": None, "ecc": None,
        },
        "host": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "software": {
            "driver": None, "cuda": torch.version.cuda, "torch": torch.__version__, "triton": None,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())), "python": platform.python_version(),
        },
    }  # fmt: skip


def main() -> None:
    """Run what fits in the time and keep it."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seconds", type=float, default=400.0)
    p.add_argument("--mode", choices=["quick", "full"], default="full")
    p.add_argument("--skip", type=int, default=0, help="leave out the first jobs")
    p.add_argument("--session", type=int, default=1)
    a = p.parse_args()
    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    warnings: list[str] = []
    idle = state()
    samples: list[dict[str, Any]] = [
        {"kind": "power", "op": "idle", "shape": {}, "dtype": "", "layout": "", "phase": "step", "state": "cold",
         "method": "wall", "n": 1, "p10_s": 0.0, "p50_s": 0.0, "p90_s": 0.0, **idle}
    ]  # fmt: skip
    complete, saved = True, 0.0
    for index, (name, job) in enumerate(jobs()):
        if index < a.skip:
            continue
        if time.perf_counter() - began > a.seconds:
            complete = False
            break
        try:
            samples += job()
        except Exception as error:
            warnings.append(f"{name}: {type(error).__name__}: {str(error)[:120]}")
        if index % 40 == 0:
            torch._dynamo.reset()
            torch.cuda.empty_cache()
        if time.perf_counter() - saved > 15:
            saved = time.perf_counter()
            _save(a, samples, warnings, started, began, complete=False)
            sys.stderr.write(f"{time.perf_counter() - began:6.0f} s  job {index}: {name}\n")
            sys.stderr.flush()
    _save(a, samples, warnings, started, began, complete=complete)


def _save(a: Any, samples: list[Any], warnings: list[str], started: str, began: float, *, complete: bool) -> None:
    for s in samples:
        s["session"] = a.session
    run = {
        "started": started,
        "seconds": time.perf_counter() - began,
        "mode": a.mode,
        "complete": complete,
        "warnings": warnings[:50],
    }
    document = {"schema_version": 1, **header(), "run": run, "samples": samples}
    temporary = a.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(document))
    temporary.replace(a.out)


if __name__ == "__main__":
    main()
