"""What this machine is: the head of a profile, and signs that it is not itself."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

from calibrate.measure.sampling import nvml

GPU_NAMES = {
    "NVIDIA H200": "H200-SXM",
    "NVIDIA H100 80GB HBM3": "H100-SXM",
    "NVIDIA A100-SXM4-80GB": "A100-80-SXM",
}


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def header() -> dict[str, Any]:
    """Device, host and software as the profile wants them."""
    software: dict[str, Any] = {
        "driver": None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": _triton_version(),
        "nccl": None,
        "python": platform.python_version(),
    }
    host = {"cpu": _cpu_name(), "cores": os.cpu_count()}
    if not torch.cuda.is_available():
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        device: dict[str, Any] = {
            "name": host["cpu"],
            "gpu": "cpu",
            "sm_count": host["cores"],
            "mem_bytes": memory,
            "l2_bytes": 0,
            "power_limit_w": None,
            "max_clock_mhz": None,
            "ecc": None,
        }
        return {"device": device, "host": host, "software": software}
    p = torch.cuda.get_device_properties(0)
    device = {
        "name": p.name,
        "gpu": GPU_NAMES.get(p.name, p.name),
        "sm_count": p.multi_processor_count,
        "mem_bytes": p.total_memory,
        "l2_bytes": p.L2_cache_size,
        "power_limit_w": None,
        "max_clock_mhz": None,
        "ecc": None,
    }
    software["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    module, handle = nvml()
    if module is not None:
        for box, key, call in (
            (software, "driver", module.nvmlSystemGetDriverVersion),
            (device, "power_limit_w", lambda: module.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0),
            (device, "max_clock_mhz", lambda: float(module.nvmlDeviceGetMaxClockInfo(handle, module.NVML_CLOCK_SM))),
            (device, "ecc", lambda: bool(module.nvmlDeviceGetEccMode(handle)[0])),
        ):
            try:
                box[key] = call()
            except Exception:
                box[key] = None
    return {"device": device, "host": host, "software": software}


def complaints() -> list[str]:
    """Throttling for heat or hardware reasons, and other processes on the device."""
    module, handle = nvml()
    if module is None:
        return []
    out = []
    try:
        reasons = module.nvmlDeviceGetCurrentClocksEventReasons(handle)
        for name, bit in (
            ("hardware slowdown", 0x8),
            ("heat (software)", 0x20),
            ("heat (hardware)", 0x40),
            ("power brake", 0x80),
        ):
            if reasons & bit:
                out.append(f"clock held down: {name}")
        others = [p.pid for p in module.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
        if others:
            out.append(f"{len(others)} other process(es) on the device")
    except Exception:
        return out
    return out
