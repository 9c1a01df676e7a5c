import pytest

from planner.profile.schema import Device, Host, Profile, Run, Sample, Software
from planner.profile.surfaces import SurfaceError, Surfaces

DEVICE = Device(
    name="toy", gpu="toy", sm_count=1, mem_bytes=1, l2_bytes=0, power_limit_w=None, max_clock_mhz=None, ecc=None
)
SOFTWARE = Software(driver=None, cuda=None, torch="2", triton=None, nccl=None, python="3")


def sample(kind: str, op: str, shape: dict[str, int], seconds: float) -> Sample:
    return Sample.model_validate(
        {
            "kind": kind,
            "op": op,
            "shape": shape,
            "dtype": "bf16",
            "layout": "",
            "phase": "fwd",
            "state": "hot",
            "method": "graph",
            "n": 9,
            "p10_s": 0.99 * seconds,
            "p50_s": seconds,
            "p90_s": 1.01 * seconds,
            "session": 1,
        }
    )


def surfaces() -> Surfaces:
    samples = [sample("memory", "copy", {"elements": 1 << 26, "bytes": 1 << 28}, (1 << 28) / 4e12)]
    for m in (1024, 4096, 16384):
        for n in (1024, 4096):
            for k in (1024, 4096):
                samples.append(sample("matmul", "matmul", {"m": m, "n": n, "k": k}, 2e-6 + 2 * m * n * k / 6e14 * 1.1))
    samples.append(sample("matmul", "matmul", {"m": 4096, "n": 50257, "k": 1024}, 2e-3))
    run = Run(started="", seconds=1, mode="full", complete=True, warnings=())
    return Surfaces(
        Profile(
            schema_version=1,
            device=DEVICE,
            host=Host(cpu="", cores=1),
            software=SOFTWARE,
            run=run,
            samples=tuple(samples),
        )
    )


def test_a_measured_shape_is_read_as_measured() -> None:
    reading = surfaces().matmul(m=4096, n=4096, k=1024)
    assert reading.label == "measured"
    assert reading.seconds == pytest.approx(2e-6 + 2 * 4096 * 4096 * 1024 / 6e14 * 1.1, rel=1e-12)
    assert reading.spread_frac == pytest.approx(0.02)


def test_between_shapes_the_time_follows_the_work() -> None:
    s = surfaces()
    reading = s.matmul(m=8192, n=2048, k=2048)
    assert reading.label == "interpolated"
    assert reading.seconds == pytest.approx(2e-6 + 2 * 8192 * 2048 * 2048 / 6e14 * 1.1, rel=0.03)


def test_time_grows_with_every_side() -> None:
    s = surfaces()
    times = [s.matmul(m=m, n=3072, k=3072).seconds for m in range(1024, 16384, 512)]
    assert times == sorted(times)


def test_far_outside_is_assumed_and_misaligned_shapes_keep_to_themselves() -> None:
    s = surfaces()
    assert s.matmul(m=1 << 20, n=1024, k=1024).label == "assumed"
    slow, fast = s.matmul(m=4096, n=50257, k=1024), s.matmul(m=4096, n=50304, k=1024)
    assert slow.label == "measured"
    assert slow.seconds > 2 * fast.seconds


def test_what_was_not_measured_is_refused() -> None:
    with pytest.raises(SurfaceError, match="fp8"):
        surfaces().matmul(m=64, n=64, k=64, dtype="fp8")
    with pytest.raises(SurfaceError):
        surfaces().layer(kind="gpt", hidden=64, heads=1, kv_heads=1, ffn=256, mbs=1, seq=8)
