"""Accelerator parts from `data/gpus.csv`."""

from functools import lru_cache

from planner.catalog.errors import CatalogError
from planner.catalog.tables import aliases_of, index, name_key, number, rows
from planner.catalog.types import GpuSpec

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
LINKS = {
    "NVLink1": "nvlink1",
    "NVLink2": "nvlink2",
    "NVLink3": "nvlink3",
    "NVLink4": "nvlink4",
    "NVLink5": "nvlink5",
    "xGMI": "xgmi",
}


def _link(text: str) -> str:
    # An optional bridge between pairs is not a domain of eight: such cards talk over PCIe.
    if "bridge" in text:
        return "pcie"
    return next((value for key, value in LINKS.items() if text.startswith(key)), "pcie")


@lru_cache(maxsize=1)
def gpus() -> dict[str, GpuSpec]:
    """All parts by name."""
    out = {}
    for r in rows("gpus.csv"):
        link = _link(r["scaleup_link"])
        pcie = number(r, "pcie_gbs_per_dir", default=31.5) * 1e9
        out[r["gpu"]] = GpuSpec(
            name=r["gpu"],
            vendor=r["vendor"],
            arch=r["arch"],
            year=int(number(r, "announced_year")),
            peak_flops={d: number(r, f"{d}_tflops") * 1e12 for d in DTYPES if r.get(f"{d}_tflops")},
            mem_bytes=number(r, "mem_bytes_usable", default=number(r, "mem_gb") * 1e9),
            mem_bytes_per_s=number(r, "mem_bw_gbs") * 1e9,
            l2_bytes=number(r, "l2_mb") * 1e6,
            scaleup_link=link,
            scaleup_bytes_per_s=pcie if link == "pcie" else number(r, "scaleup_gbs_per_dir") * 1e9,
            pcie_bytes_per_s=pcie,
            tdp_w=number(r, "tdp_w", default=400.0),
            sm_count=int(number(r, "sm_count")),
            boost_clock_hz=number(r, "boost_clock_mhz") * 1e6,
            sustained_bf16_flops=number(r, "sustained_bf16_tflops") * 1e12 or None,
            source=r["source"],
            provenance=r["provenance"],
            aliases=aliases_of(r),
        )
    return out


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    return index((g.name, g.aliases) for g in gpus().values())


@lru_cache(maxsize=512)
def gpu(name: str) -> GpuSpec:
    """A part by name or alias, upper or lower case.

    Raises:
        CatalogError: an unknown part, with the nearest names.
    """
    found = _names().get(name_key(name))
    if found is None:
        raise CatalogError(kind="GPU", name=name, known=[x for g in gpus().values() for x in (g.name, *g.aliases)])
    return gpus()[found]
