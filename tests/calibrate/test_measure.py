"""The measuring code on a CPU with tiny shapes: a whole profile, resuming, interruption, timing rules."""

import json

import pytest

torch = pytest.importorskip("torch", reason="calibrate needs torch")
if torch.cuda.is_available():
    pytest.skip("the CPU path is tried where there is no GPU", allow_module_level=True)

from calibrate.measure import sampling, session  # noqa: E402
from calibrate.measure.chains import layer_samples  # noqa: E402
from calibrate.measure.matmul import matmul_samples  # noqa: E402
from calibrate.measure.plan import GROUPS, full, quick  # noqa: E402
from calibrate.measure.step import step_samples  # noqa: E402
from planner.profile.load import parse_profile  # noqa: E402


def tiny(m):
    return ("matmul", f"{m}", lambda: matmul_samples(m=m, n=32, k=32, device="cpu", dtype="fp32", budget_s=0.0))


def quiet(text):
    pass


def test_a_run_gives_a_profile_that_loads(tmp_path):
    out = tmp_path / "p.json"
    plan = [
        tiny(64),
        (
            "block",
            "layer",
            lambda: layer_samples(
                kind="llama",
                hidden=32,
                heads=2,
                kv_heads=1,
                ffn=64,
                mbs=1,
                seq=16,
                precision="bf16",
                device="cpu",
                budget_s=0.0,
                host=True,
            ),
        ),
    ]
    session.run(out=out, plan=plan, say=quiet)
    profile = parse_profile(out.read_text(), source="p")
    assert profile.run.complete
    assert {s.kind for s in profile.samples} == {"matmul", "block", "dispatch"}
    assert all(s.p10_s <= s.p50_s <= s.p90_s for s in profile.samples)


def test_resuming_adds_a_session_and_repeats_nothing(tmp_path):
    out = tmp_path / "p.json"
    jobs = [tiny(64), tiny(128)]
    session.run(out=out, plan=[jobs[0], ("matmul", "128", _stop)], say=quiet)
    assert not json.loads(out.read_text())["run"]["complete"]
    document = session.run(out=out, plan=jobs, resume=True, say=quiet)
    assert [(s["shape"]["m"], s["session"]) for s in document["samples"]] == [(64, 1), (128, 2)]


def _stop():
    raise KeyboardInterrupt


def test_resuming_on_something_else_is_refused(tmp_path):
    out = tmp_path / "p.json"
    session.run(out=out, plan=[tiny(64)], say=quiet)
    data = json.loads(out.read_text())
    data["software"]["torch"] = "1.0"
    out.write_text(json.dumps(data))
    with pytest.raises(session.ResumeError, match=r"torch 1\.0"):
        session.run(out=out, plan=[tiny(64)], resume=True, say=quiet)


def test_a_failing_job_is_a_warning_and_the_rest_goes_on(tmp_path):
    def broken():
        raise RuntimeError("no such kernel")

    document = session.run(out=tmp_path / "p.json", plan=[("matmul", "bad", broken), tiny(64)], say=quiet)
    assert document["run"]["warnings"] == ["matmul bad: RuntimeError: no such kernel"]
    assert len(document["samples"]) == 1


def test_small_working_sets_are_rotated_beyond_the_cache():
    assert sampling.copies_beyond_l2(1e6) == 16
    assert sampling.copies_beyond_l2(100e6) == 2
    assert sampling.copies_beyond_l2(1e9) == 1


def test_a_step_gives_its_parts():
    found = step_samples(
        kind="gpt", layers=1, hidden=32, heads=2, kv_heads=2, ffn=64, vocab=64, mbs=1, seq=8, device="cpu", budget_s=0.0
    )
    assert {s["op"] for s in found} == {f"gpt_{part}_fused" for part in ("forward", "backward", "update", "step")}


def test_the_quick_plan_is_a_small_part_of_the_full_one():
    short, long = list(quick()), list(full())
    assert {job[0] for job in short} <= {job[0] for job in long} <= set(GROUPS)
    assert len(short) * 4 < len(long)
