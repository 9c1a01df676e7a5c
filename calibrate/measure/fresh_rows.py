"""Rows of the yardstick (a file given by path) over many shapes in one process, each kept as soon as it is known.

The model is drawn on the device instead of the CPU (seconds saved, nothing timed changes); caches and peak counters are
reset between rows. `--warm` first compiles the compiled shapes side by side so that their rows start from a warm cache.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

# kind layers hidden heads kv ffn vocab mbs seq mode precision optimizer recompute
SHAPES = """
gpt 12 768 12 12 3072 50304 1 1024 eager amp fused none
gpt 12 768 12 12 3072 50304 16 1024 eager amp fused none
gpt 12 768 12 12 3072 50304 16 1024 eager bf16 fused none
gpt 12 768 12 12 3072 50257 16 1024 eager amp fused none
gpt 12 768 12 12 3072 50304 16 1024 compile amp fused none
gpt 24 1024 16 16 4096 50304 4 1024 eager amp foreach none
gpt 24 1024 16 16 4096 50304 4 1024 eager amp fused full
gpt 24 1024 16 16 4096 50304 4 1024 eager amp loop none
gpt 14 1408 11 11 5632 65536 6 1024 eager bf16 fused none
gpt 8 2560 32 32 10240 50304 2 2048 eager amp fused none
gpt 8 2560 32 32 10240 50304 2 2048 regional amp fused none
gpt 4 4096 32 32 16384 100352 1 2048 eager bf16 foreach none
llama 16 1280 20 5 3456 32000 16 1024 eager amp fused none
llama 16 1280 20 5 3456 32000 16 1024 regional amp fused none
llama 16 1280 20 5 3456 32000 16 1024 compile bf16 fused none
llama 8 2304 18 6 6144 64000 4 2048 eager bf16 fused none
llama 8 2304 18 6 6144 64000 4 2048 eager bf16 fused full
llama 8 2304 18 6 6144 64000 4 2048 eager amp fused none
llama 3 6144 48 8 16384 128256 1 4096 eager bf16 fused none
llama 4 4096 32 8 14336 128256 2 4096 eager amp fused full
llama 20 1024 16 8 2816 200064 2 2048 eager amp fused none
llama 6 3072 24 8 8192 128256 1 8192 eager bf16 fused none
gpt 8 512 8 8 2048 32768 4 512 eager amp fused none
gpt 8 512 8 8 2048 32768 64 512 eager amp fused none
gpt 12 768 12 12 3072 50304 1 1024 compile amp fused none
llama 10 896 14 2 4864 32000 1 1024 eager bf16 foreach none
llama 10 896 14 2 4864 32000 1 1024 regional bf16 fused none
llama 16 1280 20 5 3456 32000 1 512 eager amp loop none
"""
KEYS = [
    "kind",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "mbs",
    "seq",
    "mode",
    "precision",
    "optimizer",
    "recompute",
]


def shapes() -> list[dict[str, Any]]:
    """The table above as keyword arguments of the yardstick."""
    rows = [dict(zip(KEYS, line.split(), strict=True)) for line in SHAPES.strip().splitlines()]
    return [{k: int(v) if v.isdigit() else v for k, v in row.items()} for row in rows]


def _warm(yardstick: Path, *, limit_s: float) -> None:
    todo = [s for s in shapes() if s["mode"] != "eager"]
    end, running = time.perf_counter() + limit_s, []
    for s in todo:
        flags = [f for k, v in s.items() for f in (f"--{k.replace('_', '-')}", str(v))]
        running.append(
            subprocess.Popen(  # noqa: S603
                [sys.executable, str(yardstick), *flags],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
    for process in running:
        try:
            process.wait(max(0.1, end - time.perf_counter()))
        except subprocess.TimeoutExpired:
            process.kill()


def main() -> None:
    """Measure until the time is up."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--yardstick", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seconds", type=float, default=250.0)
    p.add_argument("--warm", type=float, default=0.0, help="seconds to spend at most on compiling side by side")
    p.add_argument("--prefix", default="H")
    a = p.parse_args()
    began = time.perf_counter()
    if a.warm:
        _warm(a.yardstick, limit_s=a.warm)
        print(f"compiled side by side in {time.perf_counter() - began:.0f} s", flush=True)
    spec = importlib.util.spec_from_file_location("yardstick", a.yardstick)
    assert spec is not None
    assert spec.loader is not None
    yard: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(yard)
    decoder = yard.Decoder

    def on_device(args: Any) -> Any:
        with torch.device("cuda"):
            return decoder(args)

    yard.Decoder = on_device
    if not a.out.exists():
        a.out.write_text(",".join(yard.COLUMNS) + "\n")
    order = sorted(enumerate(shapes(), 1), key=lambda x: x[1]["mode"] == "compile")
    for index, shape in order:
        if time.perf_counter() - began > a.seconds:
            print("time is up", flush=True)
            break
        start = time.perf_counter()
        args = argparse.Namespace(**shape, id=f"{a.prefix}{index:02d}", accumulation=1)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            name = torch.cuda.get_device_name()
            row = vars(args) | {"gpu": yard.GPU_NAMES.get(name, name), "torch": torch.__version__} | yard.measure(args)
        except Exception as error:
            print(f"{args.id} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        text = ",".join(f"{row[c]:.6g}" if isinstance(row[c], float) else str(row[c]) for c in yard.COLUMNS)
        with a.out.open("a") as f:
            f.write(text + "\n")
        print(f"{time.perf_counter() - start:5.1f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
