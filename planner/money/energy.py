"""Energy and carbon of a run as document and lines."""

from collections.abc import Mapping
from typing import Any

from planner.catalog.facility import fact
from planner.catalog.line import Line
from planner.money.accounts import RunHours
from planner.money.power import Draw, carbon_t, mean_draw, reported_kwh, run_load_frac, step_load_frac
from planner.money.site import Site
from planner.scenario.pricing import Pricing


def draws_of(
    *, pricing: Pricing, site: Site, breakdown_s: Mapping[str, float], run: RunHours
) -> tuple[Draw, Draw, Line]:
    """Mean draw of the run and of an idle cluster, per installed GPU."""
    step_frac = step_load_frac(breakdown_s)
    busy = run_load_frac(step_frac=step_frac, working_frac=run.working_frac)
    rest = fact("F194").known
    # GPUs of a node that the job does not use idle beside it.
    load = busy * site.used_frac + rest * (1 - site.used_frac)
    switches, links = site.fabric.switches / site.gpus, site.fabric.links / site.gpus

    def draw(load_frac: float) -> Draw:
        return mean_draw(
            node=site.node, gpu=site.gpu, load_frac=load_frac, switches_per_gpu=switches, links_per_gpu=links
        )

    loaded = draw(load)
    meter = pricing.watts_per_gpu
    if meter is not None:
        loaded = Draw(gpu_w=meter, host_w=0.0, network_w=loaded.network_w, storage_w=loaded.storage_w)
    line = Line(
        "it_watts_per_gpu",
        loaded.it_w,
        "W",
        "TDP x load + (node maximum - TDP) x host load + switches and optics + storage"
        if meter is None
        else "metered node + switches and optics + storage",
        (f"tdp_w={site.gpu.tdp_w:g}", f"load={load:.3f}", f"working_frac={run.working_frac:.4f}", "breakdown_s"),
        "assumed" if meter is None else "measured",
        f"loads measured on an H200 (F194-F199); host load {fact('F200').cited}" if meter is None else "own meter",
    )
    return loaded, draw(rest), line


def energy_of(*, pricing: Pricing, site: Site, run: RunHours, draw: Draw) -> tuple[dict[str, Any], tuple[Line, ...]]:
    """Energy by convention and by part, carbon, and their lines."""
    modelled = run.paid_gpu_hours * draw.it_w / 1e3 * site.pue.value
    by_convention = {"modelled": modelled} | {
        c: reported_kwh(
            convention=c, gpu_hours=run.gpu_hours, gpu=site.gpu.name, tdp_w=site.gpu.tdp_w, pue=site.pue.value
        )
        for c in ("gpu_tdp", "gpu_tdp_pue", "server_factor")
    }
    energy = by_convention[pricing.energy_convention]
    carbon = carbon_t(
        energy_kwh=energy,
        grid_g_per_kwh=site.grid_g_per_kwh.value,
        carbon_free_frac=site.carbon_free_frac.value,
        embodied_g=pricing.embodied_g_per_gpu_hour * run.paid_gpu_hours,
    )
    per_part = run.paid_gpu_hours / 1e3
    document = {
        "energy_kwh": energy,
        "energy_convention": pricing.energy_convention,
        "energy_kwh_by_convention": by_convention,
        "energy_kwh_by_part": {
            "gpu": per_part * draw.gpu_w,
            "host": per_part * draw.host_w,
            "network": per_part * draw.network_w,
            "storage": per_part * draw.storage_w,
            "cooling_and_loss": per_part * draw.it_w * (site.pue.value - 1),
        },
        "electricity": {
            "usd_per_kwh": site.usd_per_kwh.value,
            "label": site.usd_per_kwh.label,
            "source": site.usd_per_kwh.source,
        },
        "carbon_t": carbon,
        "carbon": {
            "basis": pricing.carbon_basis,
            "grid_g_per_kwh": site.grid_g_per_kwh.value,
            "carbon_free_frac": site.carbon_free_frac.value,
        },
    }
    lines = (
        Line(
            "energy_kwh",
            energy,
            "kWh",
            {
                "modelled": "paid GPU-hours x IT watts per GPU x PUE",
                "gpu_tdp": "GPU-hours x TDP",
                "gpu_tdp_pue": "GPU-hours x TDP x PUE",
                "server_factor": "GPU-hours x TDP x server factor x 0.75 x PUE",
            }[pricing.energy_convention],
            ("gpu_hours", "it_watts_per_gpu", f"tdp_w={site.gpu.tdp_w:g}", f"pue={site.pue.value:g}"),
            "assumed",
            f"{site.node.source}; PUE {site.pue.source}",
        ),
        Line(
            "carbon_t",
            carbon,
            "t",
            "energy x grid x (1 - carbon-free share) + embodied x GPU-hours",
            (
                "energy_kwh",
                f"grid_g_per_kwh={site.grid_g_per_kwh.value:g}",
                f"carbon_free_frac={site.carbon_free_frac.value:g}",
                f"embodied_g_per_gpu_hour={pricing.embodied_g_per_gpu_hour:g}",
            ),
            site.grid_g_per_kwh.label,
            site.grid_g_per_kwh.source,
        ),
    )
    return document, lines
