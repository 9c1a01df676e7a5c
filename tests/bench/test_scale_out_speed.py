"""One core against two; bounds are generous (two shared cores), the figures are printed."""

import time
from pathlib import Path

from planner.decide.run import simulate_chunks
from planner.decide.search import sweep_plans
from planner.decide.spread import Job, Where, spread
from planner.decide.sweep import curves
from planner.scenario import Strategy, load_scenario
from planner.simulate.run.plan import RunPlan

SCENARIOS = Path(__file__).parents[2] / "scenarios"
# 54 days on 16,384 GPUs, as in test_run_speed.
PLAN = RunPlan(
    work_s=54 * 86400 * 0.9, nodes=2048, node_failures_per_s=6.5e-3 / 86400, node_sigma=0.8, detection_s=60,
    restart_s=600, automatic_frac=0.95, manual_s=7200, interval_s=900, stall_s=2, durable_s=60,
)  # fmt: skip


def seconds_of(work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def spun(cpu_s: float) -> dict[str, list[float]]:
    begin = time.process_time()
    while time.process_time() - begin < cpu_s:
        pass
    return {"x": [cpu_s]}


def cores_given() -> float:
    """Cores that two processes of pure arithmetic get just now, with nothing of the product in the way."""
    job = Job(function=spun, tasks={str(i): (0.1,) for i in range(10)}, kinds={"x": "float"}, identity={})
    return 1.0 / seconds_of(lambda: spread(job=job, where=Where(cores=2)))


def test_two_cores_against_one() -> None:
    scenario = load_scenario(SCENARIOS / "gpt3-175b-1024xa100.yaml")
    works = {
        "400 replications of 54 days on 16,384 GPUs": lambda where: simulate_chunks(
            plan=PLAN, replications=400, seed=1, where=where
        ),
        "every plan of 175B on 1,024 A100": lambda where: sweep_plans(scenario=scenario, where=where),
    }
    for name, work in works.items():
        given = [cores_given()]
        one, two = (seconds_of(lambda w=work, n=n: w(Where(cores=n))) for n in (1, 2))
        given.append(cores_given())
        print(
            f"{name}: {one:.2f} s on one core, {two:.2f} s on two, {one / two:.2f} times as fast; two processes of "
            f"pure arithmetic got {given[0]:.1f} cores before and {given[1]:.1f} after"
        )
        assert two < 2 * one  # other work on the second core costs all of the gain


def test_a_sweep_of_a_deep_pipeline() -> None:
    scenario = load_scenario(SCENARIOS / "megatron-1t-3072xa100.yaml")
    strategy = scenario.strategies["engineered"]
    assert isinstance(strategy, Strategy)
    gpus = [512 * 2**i for i in range(6)]
    begin = time.process_time()
    found = curves(scenario=scenario, strategy=strategy, gpus=gpus, kinds=("strong", "weak"))
    seconds = time.process_time() - begin
    print(f"12 sizes of 64 pipeline stages, up to 3,072 micro-batches: {seconds:.1f} s of one core")
    assert len(found["strong"]) == len(gpus)
    assert seconds < 12  # measured 2.6
