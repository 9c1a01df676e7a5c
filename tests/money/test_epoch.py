"""Epoch AI's published estimates, reproduced by their method from its inputs."""

from datetime import date, timedelta

import pytest

from planner.catalog.facility import facts
from planner.money.epoch import epoch_cost

# Their figures are in dollars of December 2024 by the producer price index PCU518210518210 (BLS by way of FRED).
PRICE_INDEX = {
    "2019-07": 110.600,
    "2019-09": 111.600,
    "2020-05": 113.400,
    "2022-05": 117.176,
    "2022-07": 116.778,
    "2023-03": 117.766,
    "2023-07": 118.355,
    "2024-07": 119.863,
    "2025-02": 122.218,
    "2024-12": 119.349,
}
DGX = {
    "A100": (24_875.0, date(2020, 5, 21)),
    "H100": (44_489.88, date(2022, 9, 29)),
    "V100": (18_625.0, date(2017, 7, 1)),
}
# (case, part, part's release, published, hours, chip-hours, chips, PUE, acquisition, amortised with energy)
CASES = [
    ("BLOOM-176B", "A100-80-SXM", date(2020, 11, 16), date(2022, 7, 11), 2808, 1.078e6, 384, 1.25, 12052220, 995819),
    ("OPT-175B", "A100-80-SXM", date(2020, 11, 16), date(2022, 5, 2), 793.5, 8.125e5, 1024, 1.1, 32030089, 733635),
    ("GPT-4", "A100-40-SXM", date(2020, 5, 14), date(2023, 3, 15), 2280, 5.7e7, 25000, 1.25, 778066899, 40695706),
    ("Grok-3", "H100-SXM", date(2022, 9, 20), date(2025, 2, 17), 2400, 2.4e8, 100000, 1.25, 5481967429, 300872432),
    (
        "Llama 3.1-405B",
        "H100-SXM",
        date(2022, 9, 20),
        date(2024, 7, 23),
        2142,
        3.509e7,
        16384,
        1.1,
        896044949,
        51040524,
    ),
    ("xTrimoPGLM", "A100-40-SXM", date(2020, 5, 14), date(2023, 7, 6), 3912, 3.004e6, 768, 1.25, 23783264, 1823415),
    ("Megatron-LM", "V100-SXM2-32GB", date(2018, 3, 27), date(2019, 9, 17), 327, 1.674e5, 512, 1.25, 12590292, 113503),
    ("RoBERTa", "V100-SXM2-32GB", date(2018, 3, 27), date(2019, 7, 1), 120, 1.229e5, 1024, 1.1, 25408257, 88691),
    ("GPT-3", "V100-SXM2-32GB", date(2018, 3, 27), date(2020, 5, 28), 355.2, 3.552e6, 10000, 1.25, 242000906, 2198105),
]
# Their own exceptions to "training starts its length and 60 days before publication".
STARTS = {"GPT-4": date(2022, 8, 15) - timedelta(hours=2280), "GPT-3": date(2019, 10, 1)}
TDP_W = {"A100": 400, "H100": 700, "V100": 300}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_published_estimates(case):
    name, gpu, release, published, hours, chip_hours, chips, pue, acquisition, amortised = case
    family = gpu[:4]
    price, seen = DGX[family]
    electricity = {f.year: f.value for f in facts().values() if f.item == "industrial average"}
    found = epoch_cost(
        server_usd_per_chip=price,
        chips=chips,
        chip_hours=chip_hours,
        available=max(seen, release + timedelta(days=90)),
        start=STARTS.get(name, published - timedelta(days=hours / 24 + 60)),
        gpu=gpu,
        tdp_w=TDP_W[family],
        pue=pue,
        usd_per_kwh=electricity[published.year],
    )
    dollars = PRICE_INDEX["2024-12"] / PRICE_INDEX[f"{published:%Y-%m}"]
    # The index of the newest months was revised after their table was made.
    revised = 0.025 if published.year == 2025 else 0.0
    assert found.acquisition_usd * dollars == pytest.approx(acquisition, rel=0.0005 + revised)
    assert found.amortised_usd * dollars == pytest.approx(amortised, rel=0.01 + revised)
    assert 0.02 < found.energy_usd / found.amortised_usd < 0.2
