"""Watts against load: idle, a duty cycle of matrix products, a copy loop."""

import time

import torch

from calibrate.measure.sampling import Sample, sample, state, synchronize


def idle_sample() -> Sample:
    """The device as found."""
    return sample(kind="power", op="idle", shape={}, heat="cold", method="wall", measured=([0.0], state()))


def power_samples(*, seconds: float = 1.2, size: int = 8192, device: str = "cuda") -> list[Sample]:
    """Mean watts (second half of each run) at 25, 50, 75 and 100 % duty, and while copying."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in "ab")
    c, out = torch.empty_like(a), []
    jobs = [("matmul", duty, lambda: torch.mm(a, b, out=c)) for duty in (0.25, 0.5, 0.75, 1.0)]
    for op, duty, call in [*jobs, ("copy", 1.0, lambda: c.copy_(a))]:
        times, seen, end, begin = [], [], time.perf_counter() + seconds, time.perf_counter()
        while time.perf_counter() < end:
            start = time.perf_counter()
            for _ in range(8):
                call()
            synchronize()
            busy = time.perf_counter() - start
            times.append(busy / 8)
            if time.perf_counter() - begin > seconds / 2:
                seen.append(state())
            time.sleep(busy * (1 / duty - 1))
        mean = {
            key: sum(s[key] for s in seen) / len(seen) if seen and seen[0][key] is not None else None  # type: ignore[misc]
            for key in ("clock_mhz", "power_w", "temp_c")
        }
        out.append(
            sample(
                kind="power",
                op=op,
                shape={"size": size, "duty": duty},
                dtype="bf16",
                method="wall",
                measured=(times, mean),
            )
        )
    return out
