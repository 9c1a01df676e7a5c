"""The decision table is whole, and each flip is where the two strategies really meet."""

import pytest

from planner.decide.compare import CRITERIA, compare
from planner.scenario import parse_scenario

BASE = """model: llama3-70b
cluster: {node: hgx-h100, nodes: 32}
training: {tokens: TOKENS, sequence_length: 8192, global_batch_sequences: 1024}
strategies:
  stack: {preset: stack}
  engineered:
    preset: stack
    tp: 8
    pp: 4
    vpp: 5
    zero_stage: 1
    sequence_parallel: true
    recompute: selective
    framework: {name: megatron, release: 2024}
    engineering_weeks: WEEKS
pricing: {usd_per_gpu_hour: PRICE, storage_usd_per_gb_month: 0}
"""


def found(*, tokens=2e12, weeks=6.0, price=2.0, extra=""):
    text = BASE.replace("TOKENS", f"{tokens:.12g}").replace("WEEKS", f"{weeks:.12g}").replace("PRICE", f"{price:.12g}")
    return compare(scenario=parse_scenario(text + extra), engine="fast").document


def flip(document, words):
    return next(f["value"] for f in document["flips_at"] if words in f["input"])


def totals(document):
    return [d["cost_usd_total"]["p50"] for d in document["strategies"].values()]


@pytest.fixture(scope="module")
def base():
    return found()


def test_table_shows_what_a_decision_needs(base):
    table = {row["criterion"]: row["values"] for row in base["decision_table"]}
    assert set(table) == {c[0] for c in CRITERIA}
    wanted = {"scaling", "utilization", "recovery", "days", "goodput", "energy", "labour", "cost", "long_term"}
    wanted |= {f"cost_{b}" for b in ("compute", "network", "storage", "power", "facility", "support")}
    for criterion in wanted:
        assert set(table[criterion]) == {"stack", "engineered"}
        assert all(v is not None for v in table[criterion].values()), criterion
    assert base["flips_at"]


def test_price_at_which_the_verdict_flips(base):
    meet = totals(found(price=flip(base, "price of a GPU-hour")))
    assert meet[0] == pytest.approx(meet[1], rel=1e-6)


def test_tokens_at_which_the_verdict_flips(base):
    meet = totals(found(tokens=2e12 * flip(base, "tokens trained")))
    assert meet[0] == pytest.approx(meet[1], rel=0.01)  # whole steps


def test_engineering_at_which_the_verdict_flips(base):
    meet = totals(found(weeks=flip(base, "engineering of engineered") / 5000))
    assert meet[0] == pytest.approx(meet[1], rel=1e-6)


def test_runs_at_which_the_programme_flips():
    dear = found(weeks=120)
    runs = flip(dear, "runs in the programme")
    meet = found(weeks=120, extra=f"programme: {{runs_per_year: {runs:.12g}}}\n")["strategies"]
    assert meet["stack"]["programme_usd"] == pytest.approx(meet["engineered"]["programme_usd"], rel=1e-6)


def test_programme_may_choose_otherwise():
    once = found(weeks=120)
    assert once["verdict"]["choice"] == "stack"
    often = found(weeks=120, extra="programme: {runs_per_year: 20, years: 2}\n")["verdict"]
    assert often["choice"] == "stack"
    assert often["cheapest_programme"] == "engineered"
    assert any("over the programme" in r for r in often["reasons"])


def test_owned_cluster_fills_every_bucket():
    text = BASE.replace("TOKENS", "2e12").replace("WEEKS", "6").replace("usd_per_gpu_hour: PRICE", "tenure: own")
    document = compare(scenario=parse_scenario(text), engine="fast").document
    for d in document["strategies"].values():
        assert all(d["cost_usd"][b] > 0 for b in ("compute", "network", "storage", "power", "facility", "people"))
    assert not any("price of a GPU-hour" in f["input"] for f in document["flips_at"])
