"""A measured fabric as a file of its own: a profile that holds collectives and nothing else."""

import re
from datetime import UTC, datetime
from typing import Any

from planner import catalog

UNKNOWN_BYTES = 1.0  # a profile wants a size; nothing reads that of a device which the log does not name


def gpu_name(text: str) -> str | None:
    """Catalogue name of a device as a driver prints it (`NVIDIA H100 80GB HBM3`); None where it is not known."""
    plain = re.sub(r"^(NVIDIA|Tesla|AMD|Instinct)\s+", "", text.strip())
    plain = re.sub(r"\s+(80GB HBM3|96GB HBM3|HBM3e?)$", "-SXM", plain)
    for name in (text, plain, plain.replace("SXM4", "SXM"), plain.replace(" ", "-"), f"{plain}-SXM"):
        try:
            return catalog.gpu(name).name
        except ValueError:
            continue
    return None


def fabric_document(*, samples: list[dict[str, Any]], device: str, source: str, notes: list[str]) -> dict[str, Any]:
    """A profile document (contract 6) around the samples of a log."""
    gpu = gpu_name(device) if device else None
    spec = catalog.gpu(gpu) if gpu else None
    return {
        "schema_version": 1,
        "device": {
            "name": device or "unknown", "gpu": gpu or device or "unknown", "sm_count": 0,
            "mem_bytes": spec.mem_bytes if spec else UNKNOWN_BYTES, "l2_bytes": 0, "power_limit_w": None,
            "max_clock_mhz": None, "ecc": None,
        },
        "host": {"cpu": "unknown", "cores": None},
        "software": {"driver": None, "cuda": None, "torch": "none", "triton": None, "nccl": None, "python": "none"},
        "run": {
            "started": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": 0.0, "mode": "full",
            "complete": True, "warnings": [f"taken over from {source}", *notes],
        },
        "samples": samples,
    }  # fmt: skip
