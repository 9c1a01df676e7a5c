"""Copies between host and device, pinned and pageable."""

import torch

from calibrate.measure.sampling import Sample, sample, wall_time


def hostlink_samples(*, sizes: tuple[int, ...] = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28)) -> list[Sample]:
    """Seconds of one copy in each direction."""
    out = []
    for size in sizes:
        far = torch.empty(size, dtype=torch.uint8, device="cuda").random_(0, 255)
        for layout in ("pinned", "pageable"):
            near = torch.empty(size, dtype=torch.uint8, pin_memory=layout == "pinned").random_(0, 255)
            for op, call in (
                ("h2d", lambda near=near, far=far: far.copy_(near)),
                ("d2h", lambda near=near, far=far: near.copy_(far)),
            ):
                out.append(
                    sample(
                        kind="hostlink",
                        op=op,
                        shape={"bytes": size},
                        layout=layout,
                        phase="fwd",
                        method="wall",
                        measured=wall_time(call, budget_s=0.15),
                    )
                )
    return out
