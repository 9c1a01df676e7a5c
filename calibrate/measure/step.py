"""A whole training step on this machine: seconds, parts, peak memory, and what whole-model compilation costs."""

import time
from typing import Any

import torch

from calibrate.measure.layer import Stack
from calibrate.measure.sampling import Sample, quantiles, sample, state, synchronize


def step_samples(
    *,
    kind: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocab: int,
    mbs: int,
    seq: int,
    mode: str = "eager",
    precision: str = "amp",
    optimizer: str = "fused",
    recompute: bool = False,
    device: str = "cuda",
    budget_s: float = 1.0,
) -> list[Sample]:
    """Step, forward, backward and update in wall seconds (drained between parts), first-step seconds, peak bytes."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model: Any = Stack(
        kind=kind,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocab=vocab,
        seq=seq,
        recompute=recompute,
        device=device,
    )
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    update = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=optimizer == "fused", foreach=optimizer == "foreach")
    if mode == "regional":
        for block in model.blocks:
            block.compile()
    run = torch.compile(model) if mode == "compile" else model
    ids, targets = (torch.randint(0, vocab, (mbs, seq), device=device) for _ in range(2))
    parts: dict[str, list[float]] = {"forward": [], "backward": [], "update": [], "step": []}

    def step(*, split: bool) -> None:
        marks = [time.perf_counter()]

        def mark() -> None:
            if split:
                synchronize()
                marks.append(time.perf_counter())

        with torch.autocast(device, torch.bfloat16, enabled=precision == "amp"):
            loss = run(ids, targets)
        mark()
        loss.backward()
        mark()
        update.step()
        update.zero_grad(set_to_none=True)
        mark()
        if split:
            for name, a, b in zip(parts, marks, marks[1:], strict=False):
                parts[name].append(b - a)

    begin = time.perf_counter()
    step(split=False)
    synchronize()
    first = time.perf_counter() - begin
    for _ in range(3):
        step(split=False)
    synchronize()
    at, end = state(), time.perf_counter() + budget_s
    while len(parts["step"]) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        step(split=False)
        synchronize()
        parts["step"].append(time.perf_counter() - begin)
        if len(parts["step"]) >= 200:
            break
    at = state()
    for _ in range(5):
        step(split=True)
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    shape = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": ffn,
        "vocab": vocab,
        "mbs": mbs,
        "seq": seq,
    }
    common = {"dtype": precision, "layout": mode + "+recompute" * recompute, "method": "wall"}
    out = [
        sample(kind="block", op=f"{kind}_{name}_{optimizer}", shape=shape, measured=(times, at), **common)
        for name, times in parts.items()
    ]
    if mode != "eager":
        out.append(sample(kind="compile", op=f"{kind}_model", shape=shape, measured=([first], at), **common))
    if peak:
        more = shape | {"peak_bytes": peak}
        out.append(sample(kind="allocator", op=f"{kind}_step_{optimizer}", shape=more, measured=([0.0], at), **common))
    return out


def summary(samples: list[Sample]) -> dict[str, float]:
    """Median seconds by operation, for the table of `calibrate step`."""
    return {s["op"]: quantiles([s["p50_s"]])["p50_s"] for s in samples if s["kind"] in ("block", "compile")}
