"""The caching allocator: hit, miss, rounding."""

import torch

from calibrate.measure.sampling import Sample, host_time, sample, state


def allocator_samples(*, size: int = 64 << 20) -> list[Sample]:
    """Host seconds of a served and of a missed request, bytes given for odd sizes."""

    def hit() -> None:
        for _ in range(20):
            torch.empty(size, dtype=torch.uint8, device="cuda")

    def miss() -> None:
        torch.cuda.empty_cache()
        torch.empty(size, dtype=torch.uint8, device="cuda")

    out = [
        sample(
            kind="allocator",
            op="hit",
            shape={"bytes": size},
            method="wall",
            phase="fwd",
            measured=host_time(hit, budget_s=0.1, per=20),
        ),
        sample(
            kind="allocator",
            op="miss",
            shape={"bytes": size},
            method="wall",
            phase="fwd",
            measured=host_time(miss, budget_s=0.2),
        ),
    ]
    for asked in (1, 513, 1_000_000, 1_048_577, 10_485_761, 123_456_789):
        before = torch.cuda.memory_allocated()
        kept = torch.empty(asked, dtype=torch.uint8, device="cuda")
        given = torch.cuda.memory_allocated() - before
        out.append(
            sample(
                kind="allocator",
                op="rounding",
                shape={"bytes": asked, "given_bytes": given},
                method="event",
                phase="fwd",
                measured=([0.0], state()),
            )
        )
        del kept
    return out
