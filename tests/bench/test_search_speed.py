"""Speed of the search; bounds are generous (a loaded two-core machine), the design's bars stand beside them."""

import time
import tracemalloc

from planner.decide.search import sweep_plans
from planner.scenario.load import parse_scenario

SPACE = """
name: GPT-3 175B on 4,096 H100
model: gpt3-175b
cluster: {node: hgx-h100, nodes: 512}
training: {tokens: 300e9, sequence_length: 2048, global_batch_sequences: 6144}
"""


def test_the_whole_space_of_175b_on_4096_gpus() -> None:
    scenario = parse_scenario(SPACE)
    begin = time.process_time()
    sweep = sweep_plans(scenario=scenario)
    seconds = time.process_time() - begin
    plans = sweep.plans_scored + sweep.plans_out_of_memory
    print(f"{plans:,} plans in {seconds:.2f} s of one core: {plans / seconds:,.0f} a second; axes {sweep.axes}")
    assert plans > 6_000_000
    assert seconds <= 15
    assert plans / seconds >= 500_000  # the bar is 1,000,000 on an idle machine


def test_a_search_keeps_no_table_of_plans() -> None:
    scenario = parse_scenario(SPACE)
    tracemalloc.start()
    sweep_plans(scenario=scenario, precision="bf16", limit=60)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6  # the bar is 2 GB for the whole space
