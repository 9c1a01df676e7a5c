"""`calibrate`: measure the local GPU, look at a profile, compare two, take over nccl-tests."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from calibrate.compare import compare
from planner.profile.fabric_file import fabric_document
from planner.profile.load import MAX_BYTES, ProfileError, load_profile, parse_profile
from planner.profile.nccl import NcclError, read_nccl
from planner.profile.schema import Profile, Sample

main = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
taking_over = typer.Typer(no_args_is_help=True, help="Take over measurements of other tools.")
main.add_typer(taking_over, name="import")
out = Console()


def _load(name: str) -> Profile:
    try:
        return load_profile(name)
    except ProfileError as error:
        raise typer.BadParameter(str(error)) from error


@main.command()
def run(
    *,
    path: Annotated[Path, typer.Option("--out", help="Profile to write.")] = Path("profile.json"),
    quick: Annotated[bool, typer.Option(help="At most 2 minutes instead of 10.")] = False,
    seconds: Annotated[float | None, typer.Option(min=1.0, help="Another limit.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="A group of jobs; may be given again.")] = None,
    resume: Annotated[bool, typer.Option(help="Keep what the file holds and measure the rest.")] = False,
) -> None:
    """Measure this machine (needs torch); the file is renewed as samples come in."""
    mode = "quick" if quick else "full"
    limit_s = seconds or (120.0 if quick else 600.0)
    command = [sys.executable, "-m", "calibrate.measure", "--out", str(path), "--mode", mode, "--seconds", str(limit_s)]
    command += ["--only", *only] if only else []
    command += ["--resume"] if resume else []
    raise typer.Exit(subprocess.run(command, check=False).returncode)  # noqa: S603


@main.command()
def step(
    *,
    kind: Annotated[str, typer.Option(help="gpt or llama.")] = "gpt",
    layers: Annotated[int | None, typer.Option(min=1)] = None,
    hidden: Annotated[int | None, typer.Option(min=1)] = None,
    heads: Annotated[int | None, typer.Option(min=1)] = None,
    kv_heads: Annotated[int | None, typer.Option(min=1, help="As heads by default.")] = None,
    ffn: Annotated[int | None, typer.Option(min=1)] = None,
    vocab: Annotated[int | None, typer.Option(min=1)] = None,
    micro_batch: Annotated[int | None, typer.Option(min=1)] = None,
    sequence: Annotated[int | None, typer.Option(min=1)] = None,
    mode: Annotated[str, typer.Option(help="eager, regional or compile.")] = "eager",
    precision: Annotated[str, typer.Option(help="amp or bf16.")] = "amp",
    optimizer: Annotated[str, typer.Option(help="fused, foreach or loop.")] = "fused",
    recompute: Annotated[bool, typer.Option(help="Every layer runs forward twice.")] = False,
    profile: Annotated[str | None, typer.Option(help="Shipped name or path; that of this GPU by default.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time to measure for.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """A real training step on this machine beside its forecast, part by part (needs torch).

    Open sizes are those of GPT-2 124M on a GPU, and small ones on a CPU.
    """
    given = {
        "kind": kind, "layers": layers, "hidden": hidden, "heads": heads, "kv-heads": kv_heads, "ffn": ffn,
        "vocab": vocab, "micro-batch": micro_batch, "sequence": sequence, "mode": mode, "precision": precision,
        "optimizer": optimizer, "profile": profile, "seconds": seconds,
    }  # fmt: skip
    words = [w for k, v in given.items() if v is not None for w in (f"--{k}", str(v))] + ["--recompute"] * recompute
    command = [sys.executable, "-m", "calibrate.measure.against", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise typer.Exit(1)
    if as_json:
        sys.stdout.write(done.stdout)
        return
    _print_step(json.loads(done.stdout))


def _print_step(document: dict[str, Any]) -> None:
    measured, forecast = document["measured"], document["forecast"] or {}
    names = {"step_s": "step", "forward_backward_s": "forward and backward", "update_s": "update"}
    table = Table("part", Column("measured", justify="right"), Column("forecast", justify="right"), "error")
    for key, name in names.items():
        error = document["error_pct"].get(key)
        table.add_row(
            name,
            f"{measured[key] * 1e3:.4g} ms",
            f"{forecast[key] * 1e3:.4g} ms" if key in forecast else "-",
            "-" if error is None else f"{error:+.1f} %",
        )
    for key in ("device_s", "host_s", "launch_gap_s"):
        if key in forecast:
            table.add_row(key.removesuffix("_s").replace("_", " "), "-", f"{forecast[key] * 1e3:.4g} ms", "-")
    if "peak_bytes" in measured:
        peak = f"{forecast['peak_bytes'] / 1e9:.3g} GB" if forecast else "-"
        error = document["error_pct"].get("peak_bytes")
        table.add_row(
            "peak", f"{measured['peak_bytes'] / 1e9:.3g} GB", peak, "-" if error is None else f"{error:+.1f} %"
        )
    if "compile_s" in measured:
        table.add_row("compilation", f"{measured['compile_s']:.3g} s", "-", "-")
    spread = (measured["step_p10_s"] * 1e3, measured["step_p90_s"] * 1e3)
    out.print(f"{document['device']}, step P10-P90 {spread[0]:.4g}-{spread[1]:.4g} ms", highlight=False, markup=False)
    out.print(table)
    if document["why_no_forecast"]:
        out.print(f"no forecast: {document['why_no_forecast']}", highlight=False, markup=False)


@main.command()
def collectives(
    *,
    path: Annotated[Path, typer.Option("--out", help="Profile to write, or to add a session to.")] = Path("wire.json"),
    backend: Annotated[str, typer.Option(help="nccl, gloo or auto.")] = "auto",
    seconds: Annotated[float, typer.Option(min=1.0, help="Time limit.")] = 600.0,
    largest_bytes: Annotated[int, typer.Option(min=1024, help="Largest message.")] = 2**32,
) -> None:
    """Measure collectives (needs torch); on several nodes by `torchrun ... -m calibrate.cli collectives`.

    Alone, it takes all GPUs of this machine; with one GPU it says what cannot be measured and measures the rest.
    """
    arguments = ["--out", str(path), "--backend", backend, "--seconds", str(seconds)]
    command = [sys.executable, "-m", "calibrate.measure.collectives"]
    if "RANK" not in os.environ:
        command[1:2] = _torchrun()
    raise typer.Exit(
        subprocess.run([*command, *arguments, "--largest-bytes", str(largest_bytes)], check=False).returncode  # noqa: S603
    )


def _torchrun() -> list[str]:
    """Words that start one process a GPU of this machine; plain python for one or none."""
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    count = int(done.stdout or 0) if done.returncode == 0 else 0
    if count < 2:
        return ["-m"]
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), "-m"]


def _figure(s: Sample) -> str:
    if s.kind == "matmul" and {"m", "n", "k"} <= s.shape.keys() and s.p50_s > 0:
        return f"{2 * s.shape['m'] * s.shape['n'] * s.shape['k'] / s.p50_s / 1e12:.0f} TFLOP/s"
    if s.kind == "overlap" and s.shape.get("alone_s", 0) > 0:
        return f"{s.p50_s / s.shape['alone_s']:.2f} x alone"
    if s.kind in ("memory", "hostlink", "collective") and "bytes" in s.shape and s.p50_s > 0:
        return f"{s.shape['bytes'] / s.p50_s / 1e9:.0f} GB/s"
    return f"{s.power_w:.0f} W" if s.kind == "power" and s.power_w is not None else ""


@main.command()
def show(
    *,
    profile: Annotated[str, typer.Argument(help="Shipped name or path.")],
    kind: Annotated[str | None, typer.Option(help="List the samples of one kind.")] = None,
) -> None:
    """What a profile holds."""
    p = _load(profile)
    driver, state = p.software.driver or "unknown", "complete" if p.run.complete else "not complete"
    out.print(f"{p.device.name}, driver {driver}, torch {p.software.torch}", markup=False, highlight=False)
    out.print(f"{p.run.mode}, {p.run.seconds:.0f} s, {state}", markup=False, highlight=False)
    for warning in p.run.warnings:
        out.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)
    if kind is None:
        table = Table("kind", "samples", "sessions")
        for name, count in sorted(Counter(s.kind for s in p.samples).items()):
            table.add_row(name, str(count), str(len({s.session for s in p.samples if s.kind == name})))
        out.print(table)
        return
    table = Table(
        "op", "shape", "dtype", "layout", "phase", "state", "P50 ms", "P10-P90", Column("figure", no_wrap=True)
    )
    for s in p.samples:
        if s.kind == kind:
            shape = " ".join(f"{k}={v}" for k, v in s.shape.items())
            spread = f"{(s.p90_s - s.p10_s) / s.p50_s:.1%}" if s.p50_s > 0 else ""
            table.add_row(s.op, shape, s.dtype, s.layout, s.phase, s.state, f"{s.p50_s * 1e3:.4g}", spread, _figure(s))
    out.print(table)


@main.command()
def diff(*, first: Annotated[str, typer.Argument()], second: Annotated[str, typer.Argument()]) -> None:
    """The samples that both profiles hold, second against first, and how many repeat within what is allowed."""
    rows = compare(first=_load(first), second=_load(second))
    if not rows:
        out.print("no sample is in both profiles")
        raise typer.Exit(1)
    table = Table("kind", "in both", "median ratio", "worst ratio", "allowed", "within")
    for r in rows:
        table.add_row(r.kind, str(r.count), f"{r.median_ratio:.3f}", f"{r.worst_ratio:.3f}", f"{r.allowed:.0%}",
                      f"{r.within}/{r.count}")  # fmt: skip
    out.print(table)
    inside, count = sum(r.within for r in rows), sum(r.count for r in rows)
    out.print(f"{inside} of {count} samples ({inside / count:.0%}) repeat within what is allowed", highlight=False)


@taking_over.command("nccl-tests")
def nccl_tests(
    *,
    source: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Output of an nccl-tests program.")],
    into: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Profile that receives the samples.")
    ] = None,
    path: Annotated[Path | None, typer.Option("--out", help="Fabric file; LOG.fabric.json by default.")] = None,
    op: Annotated[str | None, typer.Option(help="all_reduce, all_gather, ... where the output does not say.")] = None,
    ranks: Annotated[int | None, typer.Option(min=1, help="Where the output does not say.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Where the output does not say.")] = None,
) -> None:
    """Turn nccl-tests (text or JSON) into a fabric that a scenario names, or add it to a profile as a new session."""
    profile = _load(str(into)) if into else None
    session = max((s.session for s in profile.samples), default=0) + 1 if profile else 1
    try:
        log = read_nccl(source.read_text("utf-8", errors="replace"), op=op, ranks=ranks, nodes=nodes, session=session)
    except NcclError as error:
        raise typer.BadParameter(f"{source}: {error}") from error
    for note in log.notes:
        sys.stderr.write(f"{source}: {note}: left out\n")
    if into is not None:
        data: dict[str, Any] = json.loads(into.read_text("utf-8"))
        data["samples"] += log.samples
        _write(into, data)
        out.print(f"{len(log.samples)} samples added as session {session}", highlight=False)
        return
    target = path or Path(f"{source.stem}.fabric.json")
    _write(target, fabric_document(samples=log.samples, device=log.device, source=source.name, notes=log.notes))
    out.print(f"{len(log.samples)} samples of {log.device or 'an unnamed device'} in {target}", highlight=False)
    out.print(f"name it in a scenario: cluster: {{fabric: {target}}}", highlight=False, markup=False)


def _write(path: Path, data: dict[str, Any]) -> None:
    """Check a profile and write it by way of a temporary name."""
    text = json.dumps(data, separators=(",", ":"))
    if len(text.encode()) > MAX_BYTES:
        raise typer.BadParameter(f"{path} would be larger than {MAX_BYTES} bytes")
    try:
        parse_profile(text, source=str(path))
    except ProfileError as error:
        raise typer.BadParameter(str(error)) from error
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def entry() -> None:
    """Run the command line; wrong usage and unreadable input end with code 1, an interruption with 130."""
    try:
        code = main(standalone_mode=False)
    except typer.Exit as done:
        raise SystemExit(done.exit_code) from None
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(130) from None
    except Exception as error:
        text = getattr(error, "format_message", None)
        if not callable(text):
            raise
        sys.stderr.write(f"error: {text()}\n")
        raise SystemExit(1) from None
    raise SystemExit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    entry()
