"""Draw of a node, energy of published runs under each convention, carbon, racks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import catalog
from planner.catalog.facility import fact
from planner.money.power import (
    carbon_t,
    hall,
    host_load_frac,
    mean_draw,
    reported_kwh,
    run_load_frac,
    server_factor,
    step_load_frac,
)


def test_bloom_is_tdp_times_hours():
    """433,196 kWh for 1,082,990 A100 hours and 24.7 t at 57 g/kWh; 11.2 t embodied (arXiv 2211.02001)."""
    kwh = reported_kwh(convention="gpu_tdp", gpu_hours=1_082_990, gpu="A100-80-SXM", tdp_w=400, pue=1.2)
    assert kwh == pytest.approx(433_196, rel=1e-5)
    assert carbon_t(energy_kwh=kwh, grid_g_per_kwh=57) == pytest.approx(24.7, abs=0.05)
    embodied = carbon_t(energy_kwh=0, grid_g_per_kwh=57, embodied_g=fact("F202").known * 1_082_990)
    assert embodied == pytest.approx(11.2, abs=0.1)


def test_gpt3_is_metered_draw_times_pue():
    """1,287 MWh and 552 t: 10,000 V100 for 14.8 days at 330 W, PUE 1.10, 429 g/kWh (arXiv 2104.10350, table 4)."""
    kwh = reported_kwh(
        convention="gpu_tdp_pue", gpu_hours=10_000 * 14.8 * 24, gpu="V100-SXM2-32GB", tdp_w=330, pue=1.10
    )
    assert kwh == pytest.approx(1_287_000, rel=0.003)
    assert carbon_t(energy_kwh=kwh, grid_g_per_kwh=429) == pytest.approx(552, rel=0.003)


def test_gopher_excludes_pue():
    """1,066 MWh for 4,096 chips of 283 W over 920 h; with PUE 1.08 380 t at 330 g/kWh (arXiv 2112.11446)."""
    chips = {"gpu_hours": 4096 * 920, "gpu": "TPUv3", "tdp_w": 283.0}
    assert reported_kwh(convention="gpu_tdp", pue=1.08, **chips) == pytest.approx(1_066_000, rel=0.001)
    with_pue = reported_kwh(convention="gpu_tdp_pue", pue=1.08, **chips)
    assert carbon_t(energy_kwh=with_pue, grid_g_per_kwh=330) == pytest.approx(380, rel=0.002)


@pytest.mark.parametrize(
    ("gpu", "gpu_hours", "tonnes"),
    [
        ("A100-80-SXM", 184_320, 31.22),
        ("A100-80-SXM", 1_720_320, 291.42),
        ("H100-SXM", 1_300_000, 390),
        ("H100-SXM", 30_840_000, 8930),
        ("H100-SXM", 7_000_000, 2040),
    ],
)
def test_llama_cards_are_tdp_at_one_grid(gpu, gpu_hours, tonnes):
    """Meta's cards: TDP x hours at 411 to 429 g/kWh, no server or PUE overhead visible; market-based they print 0."""
    kwh = reported_kwh(convention="gpu_tdp", gpu_hours=gpu_hours, gpu=gpu, tdp_w=catalog.gpu(gpu).tdp_w, pue=1.1)
    assert carbon_t(energy_kwh=kwh, grid_g_per_kwh=420) == pytest.approx(tonnes, rel=0.025)
    assert carbon_t(energy_kwh=kwh, grid_g_per_kwh=420, carbon_free_frac=1.0) == 0


def test_server_factor_convention():
    """DGX H100: 10.2 kW over 8 x 0.7 kW; 0.75 of it drawn (Epoch)."""
    assert server_factor("H100-SXM") == pytest.approx(10.2 / 5.6, rel=1e-3)
    kwh = reported_kwh(convention="server_factor", gpu_hours=8.0, gpu="H100-SXM", tdp_w=700, pue=1.25)
    assert kwh == pytest.approx(10.2 * 0.75 * 1.25, rel=1e-3)
    with pytest.raises(ValueError, match="unknown convention"):
        reported_kwh(convention="guess", gpu_hours=1, gpu="H100-SXM", tdp_w=700, pue=1)


def test_modelled_node_lies_where_nodes_were_metered():
    """Compute-intensive training draws 76 % of a DGX H100's rating (arXiv 2506.14551), at most 82 % (2412.08602)."""
    node = catalog.node("hgx-h100")
    busy = step_load_frac(
        {"compute_matmul": 0.65, "compute_attention": 0.1, "compute_memory_bound": 0.1, "bubble": 0.15}
    )
    draw = mean_draw(node=node, gpu=catalog.gpu("H100-SXM"), load_frac=busy, switches_per_gpu=0.0, links_per_gpu=0.0)
    node_kw = (draw.gpu_w + draw.host_w) * 8 / 1e3
    assert node_kw / 10.2 == pytest.approx(fact("F201").known, abs=0.04)
    assert host_load_frac() == pytest.approx(2.8 / 4.6)


@given(st.floats(0, 1), st.floats(0, 1))
def test_load_stays_between_waiting_and_full(work, frac):
    load = run_load_frac(step_frac=step_load_frac({"compute_matmul": work, "bubble": 1.0001 - work}), working_frac=frac)
    assert fact("F195").known - 1e-9 <= load <= fact("F196").known + 1e-9


def test_waiting_draws_less_than_work():
    assert (
        step_load_frac({"launch_gap": 1.0}) < step_load_frac({"optimizer": 1.0}) < step_load_frac({"compute_matmul": 1})
    )


def test_racks():
    """Four DGX H100 need 41 kW: a 10 kW place takes none alone, 20 kW one, 35 kW three, 45 kW four."""
    for rack_kw, racks in ((10, 64), (20.5, 16), (35, 11), (45, 8), (500, 8)):
        found = hall(nodes=32, node_w=10_200, other_w=10_000, rack_w=rack_kw * 1e3, pue=1.25)
        assert found.racks == racks
        assert found.facility_w == pytest.approx((32 * 10_200 + 10_000) * 1.25)
    assert hall(nodes=4, node_w=132e3, other_w=0, rack_w=140e3, pue=1.1).racks == 4
