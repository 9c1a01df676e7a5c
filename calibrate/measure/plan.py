"""What a run measures, in the order of use: an interrupted run has lost the least useful part."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from calibrate.measure.attention import attention_samples
from calibrate.measure.chains import head_samples, layer_samples
from calibrate.measure.hostcost import dispatch_samples, graph_samples
from calibrate.measure.matmul import fp8_samples, grouped_samples, matmul_samples
from calibrate.measure.memory import embedding_samples, loss_samples, memory_samples
from calibrate.measure.optimizer import optimizer_samples
from calibrate.measure.power import idle_sample, power_samples
from calibrate.measure.sampling import Sample
from calibrate.measure.shapes import GPT, GROUPED, HEADS, LLAMA, PRODUCTS, ROW_OPERATORS, ROWS, TOKENS

Job = tuple[str, str, Callable[[], list[Sample]]]
GROUPS = (
    "power",
    "dispatch",
    "matmul",
    "attention",
    "memory",
    "optimizer",
    "block",
    "head",
    "compile",
    "hostlink",
    "allocator",
    "glue",
    "tiles",
    "step",
)


def layer(shape: tuple[str, int, int, int, int], mbs: int, seq: int, **more: Any) -> Callable[[], list[Sample]]:
    """A job for one layer."""
    kind, h, a, kv, f = shape
    return partial(layer_samples, kind=kind, hidden=h, heads=a, kv_heads=kv, ffn=f, mbs=mbs, seq=seq, **more)


def quick() -> Iterator[Job]:
    """About 90 seconds on an H200: what a step forecast reads, coarsely, and a few layers to check it by."""
    yield "power", "idle", lambda: [idle_sample()]
    yield "dispatch", "operators", partial(dispatch_samples, budget_s=0.02)
    yield "dispatch", "graphs", graph_samples
    for shape in (GPT[1], LLAMA[1]):
        for precision in ("amp", "bf16"):
            name = f"{shape[0]} {precision}"
            yield "dispatch", name, layer(shape, 1, 128, precision=precision, host=True, device_part=False)
    yield from _host_steps(modes=("eager",))
    shapes = [(m, n, k) for m in (1024, 16384) for n, k in PRODUCTS[3::3]]
    shapes += [(16384, 4096, 4096), (8192, 50304, 768), (8192, 50257, 768), (4096, 128256, 4096)]
    for m, n, k in shapes:
        for phase in ("fwd", "dgrad", "wgrad"):
            yield "matmul", f"{m} {n} {k} {phase}", partial(matmul_samples, m=m, n=n, k=k, phase=phase, budget_s=0.12)
    for b, a, kv, s, d, layout in (
        (1, 12, 12, 512, 64, "views"),
        (8, 12, 12, 1024, 64, "views"),
        (4, 16, 16, 2048, 64, "views"),
        (4, 32, 8, 4096, 64, "rotated"),
        (2, 20, 20, 2048, 128, "rotated"),
        (1, 32, 8, 8192, 128, "rotated"),
    ):
        call: dict[str, Any] = {
            "batch": b,
            "heads": a,
            "kv_heads": kv,
            "seq": s,
            "head_dim": d,
            "layout": layout,
            "budget_s": 0.12,
        }
        yield "attention", f"{b} {a} {s} {d}", partial(attention_samples, **call)
    for dtype in ("bf16", "fp32"):
        for elements, width in ((1 << 20, 1024), (1 << 26, 4096)):
            job = partial(memory_samples, elements=elements, width=width, dtype=dtype, budget_s=0.04)
            yield "memory", f"{dtype} {elements}", job
        for rows, width in ROWS[1:10:3]:
            job = partial(
                memory_samples, elements=rows * width, width=width, dtype=dtype, budget_s=0.04, only=ROW_OPERATORS
            )
            yield "memory", f"{dtype} {rows} x {width}", job
        for tokens, vocab, h in ((1024, 50304, 768), (16384, 128256, 2048)):
            job = partial(embedding_samples, tokens=tokens, vocab=vocab, hidden=h, dtype=dtype)
            yield "memory", f"embedding {vocab} {h}", job
    for tokens, vocab in ((1024, 50304), (8192, 50257), (4096, 128256)):
        yield "memory", f"loss {tokens} {vocab}", partial(loss_samples, tokens=tokens, vocab=vocab, budget_s=0.1)
    yield "compile", "loss", partial(loss_samples, tokens=4096, vocab=50304, compiled=True)
    for precision in ("amp", "bf16"):
        for params, tensors in ((124e6, 148), (1.5e9, 147)):
            for variant in ("fused", "foreach", "loop"):
                size: dict[str, Any] = {
                    "params": params,
                    "tensors": tensors,
                    "precision": precision,
                    "variant": variant,
                }
                yield "optimizer", f"{variant} {params:.0f}", partial(optimizer_samples, **size, budget_s=0.1)
    yield "power", "load", power_samples
    for shape in (GPT[1], LLAMA[1]):
        for precision in ("amp", "bf16"):
            yield "block", f"{shape} {precision}", layer(shape, 8, 1024, precision=precision)
        yield "block", f"{shape} recompute", layer(shape, 8, 1024, recompute=True)
        yield "block", f"{shape} compiled", layer(shape, 8, 1024, mode="regional", host=True)


def _dispatch() -> Iterator[Job]:
    yield "dispatch", "operators", dispatch_samples
    yield "dispatch", "graphs", graph_samples
    for shape in (GPT[1], LLAMA[1]):
        for precision in ("amp", "bf16"):
            for more in ({}, {"recompute": True}, {"mode": "regional"}):
                name = f"{shape[0]} {precision} {more}"
                yield "dispatch", name, layer(shape, 1, 128, precision=precision, host=True, device_part=False, **more)


def _matmul() -> Iterator[Job]:
    shapes = [(m, n, k) for m in (1024, 4096, 16384) for n, k in PRODUCTS]
    shapes += [(8192, n, k) for n, k in PRODUCTS[1::2]]
    shapes += [(tokens, vocab, h) for tokens, vocab, h in HEADS]
    shapes += [
        (512, 768, 768),
        (512, 2048, 2048),
        (512, 4096, 14336),
        (2048, 3072, 768),
        (2048, 4096, 4096),
        (8192, 8192, 8192),
        (32768, 3072, 768),
        (32768, 4096, 1024),
        (65536, 2048, 512),
        (16, 4096, 4096),
        (128, 8192, 8192),
    ]
    for m, n, k in shapes:
        for phase in ("fwd", "dgrad", "wgrad"):
            yield "matmul", f"{m} {n} {k} {phase}", partial(matmul_samples, m=m, n=n, k=k, phase=phase, budget_s=0.16)
    for m, n, k in ((1024, 768, 768), (4096, 4096, 1024), (4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 2048)):
        yield "matmul", f"cold {m} {n} {k}", partial(matmul_samples, m=m, n=n, k=k, hot=False)
        for dtype in ("fp16", "tf32", "fp32"):
            yield "matmul", f"{dtype} {m} {n} {k}", partial(matmul_samples, m=m, n=n, k=k, dtype=dtype)
        for rowwise in (False, True):
            yield "matmul", f"fp8 {rowwise} {m} {n} {k}", partial(fp8_samples, m=m, n=n, k=k, rowwise=rowwise)
    for e, m, n, k in GROUPED:
        for phase in ("fwd", "dgrad", "wgrad"):
            call: dict[str, Any] = {"experts": e, "m": m, "n": n, "k": k, "phase": phase, "budget_s": 0.12}
            yield "matmul", f"grouped {e} {m} {n} {k} {phase}", partial(grouped_samples, **call)


def _attention() -> Iterator[Job]:
    for b, a, kv, s, d, layout in (
        (1, 12, 12, 512, 64, "views"),
        (1, 16, 16, 1024, 64, "views"),
        (8, 8, 8, 512, 64, "views"),
        (8, 12, 12, 1024, 64, "views"),
        (32, 16, 16, 1024, 64, "views"),
        (64, 12, 12, 512, 64, "views"),
        (4, 16, 16, 2048, 64, "views"),
        (8, 20, 20, 1024, 96, "views"),
        (4, 11, 11, 2048, 128, "views"),
        (2, 16, 16, 2048, 256, "views"),
        (8, 20, 20, 1024, 80, "views"),
        (64, 16, 4, 512, 64, "rotated"),
        (4, 16, 4, 1024, 64, "rotated"),
        (4, 32, 8, 4096, 64, "rotated"),
        (1, 32, 8, 8192, 64, "rotated"),
        (4, 32, 32, 4096, 64, "rotated"),
        (1, 24, 8, 4096, 128, "rotated"),
        (2, 20, 20, 2048, 128, "rotated"),
        (1, 32, 8, 1024, 128, "rotated"),
        (1, 32, 8, 8192, 128, "rotated"),
        (4, 32, 32, 2048, 128, "rotated"),
        (1, 64, 8, 4096, 128, "rotated"),
        (1, 16, 16, 16384, 128, "rotated"),
        (1, 8, 8, 32768, 128, "rotated"),
        (1, 8, 8, 8192, 256, "rotated"),
    ):
        shape: dict[str, Any] = {"batch": b, "heads": a, "kv_heads": kv, "seq": s, "head_dim": d, "layout": layout}
        yield "attention", f"{b} {a} {kv} {s} {d} {layout}", partial(attention_samples, **shape)
    for backend in ("flash", "efficient", "cudnn", "math"):
        for b, a, kv, s, d in ((8, 12, 12, 1024, 64), (2, 32, 32, 4096, 128)):
            yield (
                "attention",
                f"{backend} {s}",
                partial(attention_samples, batch=b, heads=a, kv_heads=kv, seq=s, head_dim=d, backend=backend),
            )
    for s in (1024, 4096):
        yield (
            "attention",
            f"full {s}",
            partial(attention_samples, batch=8192 // s, heads=16, kv_heads=16, seq=s, head_dim=64, causal=False),
        )


def _memory() -> Iterator[Job]:
    for dtype in ("bf16", "fp32"):
        for elements, width in ((1 << 20, 1024), (1 << 22, 512), (1 << 23, 1024), (1 << 24, 8192), (1 << 26, 4096)):
            yield "memory", f"{dtype} {elements}", partial(memory_samples, elements=elements, width=width, dtype=dtype)
        for rows, width in ROWS:
            job = partial(
                memory_samples,
                elements=rows * width,
                width=width,
                dtype=dtype,
                only=ROW_OPERATORS,
            )
            yield "memory", f"{dtype} {rows} x {width}", job
        for tokens, vocab, h in ((1024, 50304, 768), (8192, 50304, 1024), (16384, 128256, 2048), (4096, 256000, 4096)):
            yield (
                "memory",
                f"embedding {vocab} {h}",
                partial(embedding_samples, tokens=tokens, vocab=vocab, hidden=h, dtype=dtype),
            )
    for tokens, vocab in ((1024, 50304), (8192, 50257), (8192, 50304), (16384, 32000), (4096, 128256), (2048, 256000)):
        yield "memory", f"loss {tokens} {vocab}", partial(loss_samples, tokens=tokens, vocab=vocab)


def _blocks() -> Iterator[Job]:
    for precision in ("amp", "bf16"):
        for shape in GPT + LLAMA:
            for mbs, seq in TOKENS:
                if shape[1] * mbs * seq > 7e7:
                    continue
                yield "block", f"{shape} {mbs}x{seq} {precision}", layer(shape, mbs, seq, precision=precision)
        for shape, mbs, seq in ((GPT[1], 8, 1024), (GPT[3], 4, 1024), (LLAMA[1], 4, 1024), (LLAMA[3], 2, 4096)):
            name = f"recompute {shape} {mbs}x{seq} {precision}"
            yield "block", name, layer(shape, mbs, seq, precision=precision, recompute=True)


def _heads(mode: str) -> Iterator[Job]:
    shapes = [
        (50304, 768, 1, 1024),
        (50304, 1024, 8, 1024),
        (50257, 1024, 8, 1024),
        (32000, 2048, 4, 4096),
        (128256, 2048, 2, 4096),
        (256000, 4096, 1, 4096),
        (50304, 1600, 32, 1024),
    ]
    for precision in ("amp", "bf16"):
        for vocab, h, mbs, seq in shapes:
            yield (
                "head" if mode == "eager" else "compile",
                f"{mode} {vocab} {h} {mbs}x{seq} {precision}",
                partial(head_samples, hidden=h, vocab=vocab, mbs=mbs, seq=seq, precision=precision, mode=mode),
            )


def _optimizers() -> Iterator[Job]:
    for precision in ("amp", "bf16"):
        for params, tensors in (
            (1e6, 148),
            (124e6, 148),
            (355e6, 292),
            (1.5e9, 580),
            (1.5e9, 147),
            (3e8, 40),
            (2e9, 40),
        ):
            for variant in ("fused", "foreach", "loop", "clip"):
                yield (
                    "optimizer",
                    f"{variant} {params:.0f}",
                    partial(
                        optimizer_samples,
                        params=params,
                        precision=precision,
                        variant=variant,
                        tensors=tensors,
                        budget_s=0.15,
                    ),
                )


def _compiled() -> Iterator[Job]:
    for precision in ("amp", "bf16"):
        for shape in (GPT[1], GPT[3], LLAMA[1], LLAMA[3]):
            for mbs, seq in ((1, 1024), (8, 1024), (4, 4096)):
                yield (
                    "compile",
                    f"{shape} {mbs}x{seq} {precision}",
                    layer(shape, mbs, seq, precision=precision, mode="regional"),
                )


def _host_parts() -> Iterator[Job]:
    from calibrate.measure.allocator import allocator_samples
    from calibrate.measure.hostlink import hostlink_samples

    yield "hostlink", "copies", hostlink_samples
    yield "allocator", "allocator", allocator_samples


def _glue() -> Iterator[Job]:
    try:
        from calibrate.measure.glue import glue_jobs
    except ImportError:
        return
    yield from glue_jobs()


def _tiles() -> Iterator[Job]:
    try:
        from calibrate.measure.tiles import tile_jobs
    except ImportError:
        return
    yield from tile_jobs()


def _steps() -> Iterator[Job]:
    from calibrate.measure.step import step_samples

    small: dict[str, Any] = {
        "kind": "gpt",
        "layers": 12,
        "hidden": 768,
        "heads": 12,
        "kv_heads": 12,
        "ffn": 3072,
        "vocab": 50304,
    }
    large: dict[str, Any] = {
        "kind": "llama",
        "layers": 8,
        "hidden": 2048,
        "heads": 32,
        "kv_heads": 8,
        "ffn": 8192,
        "vocab": 32000,
    }
    for mode in ("eager", "compile"):
        for shape, mbs, seq in ((small, 8, 1024), (large, 2, 2048)):
            yield "step", f"{mode} {shape['kind']}", partial(step_samples, **shape, mbs=mbs, seq=seq, mode=mode)


def _host_steps(*, modes: tuple[str, ...]) -> Iterator[Job]:
    """Whole steps too small for the device to matter, at two depths: what a layer and what the rest cost the host."""
    from calibrate.measure.step import step_samples

    for mode in modes:
        for kind in ("gpt", "llama"):
            for precision in ("amp", "bf16") if mode == "eager" else ("amp",):
                for layers in (2, 8) if mode in ("eager", "recompute") else (2, 6):
                    shape: dict[str, Any] = {
                        "kind": kind,
                        "layers": layers,
                        "hidden": 512,
                        "heads": 8,
                        "kv_heads": 8,
                        "ffn": 1024,
                    }
                    job = partial(
                        step_samples,
                        **shape,
                        vocab=2048,
                        mbs=1,
                        seq=128,
                        mode="eager" if mode == "recompute" else mode,
                        precision=precision,
                        recompute=mode == "recompute",
                        budget_s=0.5,
                    )
                    yield "step", f"host {mode} {kind} {precision} {layers}", job


def full() -> Iterator[Job]:
    """Eight to ten minutes on an H200."""
    yield "power", "idle", lambda: [idle_sample()]
    for part in (
        _dispatch(),
        _host_steps(modes=("eager", "recompute")),
        _blocks(),
        _heads("eager"),
        _optimizers(),
        _attention(),
        _matmul(),
        _memory(),
        _host_parts(),
    ):
        yield from part
    yield "power", "load", power_samples
    yield from _compiled()
    for tokens, vocab in ((4096, 50304), (8192, 50257), (16384, 32000), (4096, 128256)):
        job = partial(loss_samples, tokens=tokens, vocab=vocab, compiled=True)
        yield "compile", f"loss {tokens} {vocab}", job
    yield from _host_steps(modes=("regional", "compile"))
    yield from _glue()
    yield from _tiles()
    yield from _steps()
    yield from _heads("compile")


def cpu() -> Iterator[Job]:
    """A small plan for a machine without a GPU, where every part can be tried: a few seconds."""
    yield "power", "idle", lambda: [idle_sample()]
    yield "dispatch", "operators", partial(dispatch_samples, device="cpu", budget_s=0.01)
    for m in (256, 1024):
        for phase in ("fwd", "dgrad", "wgrad"):
            for dtype in ("bf16", "fp32"):
                yield (
                    "matmul",
                    f"{m} {phase} {dtype}",
                    partial(matmul_samples, m=m, n=512, k=256, phase=phase, dtype=dtype, budget_s=0.05, device="cpu"),
                )
    yield (
        "attention",
        "512",
        partial(
            attention_samples,
            batch=1,
            heads=4,
            kv_heads=4,
            seq=256,
            head_dim=64,
            backend="math",
            budget_s=0.05,
            device="cpu",
        ),
    )
    for elements in (1 << 18, 1 << 20):
        yield (
            "memory",
            f"{elements}",
            partial(memory_samples, elements=elements, width=1024, dtype="fp32", device="cpu", budget_s=0.02),
        )
    for variant in ("fused", "foreach", "loop"):
        yield (
            "optimizer",
            variant,
            partial(
                optimizer_samples, params=1e6, precision="amp", variant=variant, tensors=20, device="cpu", budget_s=0.05
            ),
        )
    for kind in ("gpt", "llama"):
        yield (
            "block",
            kind,
            layer((kind, 128, 4, 4, 512), 1, 128, precision="bf16", device="cpu", budget_s=0.1, host=True),
        )
    yield (
        "head",
        "head",
        partial(head_samples, hidden=128, vocab=1024, mbs=1, seq=128, precision="bf16", device="cpu", budget_s=0.05),
    )


def jobs(*, mode: str, only: tuple[str, ...] = ()) -> list[Job]:
    """Every job of a mode, limited to some groups."""
    plan = (
        cpu()
        if not torch.cuda.is_available() or os.environ.get("CALIBRATE_CPU")
        else (quick() if mode == "quick" else full())
    )
    return [job for job in plan if not only or job[0] in only]
