"""Streams that share a link, and kernels that run beside an exchange."""

from dataclasses import replace

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.network import BESIDE_FRAC, beside_frac
from planner.cost.types import Group, MeasuredWire, Network
from planner.forecast import machine_for, resolve
from planner.scenario.load import parse_scenario
from planner.simulate.assemble import forecast_step
from planner.simulate.durations import build
from planner.simulate.fast import step_fast
from planner.simulate.link import SharedLink
from planner.simulate.plan import FsdpBlock, StepPlan
from planner.simulate.relax import beside_exchange
from planner.simulate.step import step_events


def ends(jobs):
    """When jobs (start, seconds alone) on one link end."""
    env = simpy.Environment()
    link, done = SharedLink(env), {}

    def job(i, start, seconds):
        yield env.timeout(start)
        yield link.carry(seconds)
        done[i] = env.now

    for i, (start, seconds) in enumerate(jobs):
        env.process(job(i, start, seconds))
    env.run()
    return [done[i] for i in range(len(jobs))]


def test_two_jobs_run_at_half_rate_while_both_are_there():
    assert ends([(0, 1), (0, 1)]) == pytest.approx([2, 2])
    assert ends([(0, 2), (1, 1)]) == pytest.approx([3, 3])
    assert ends([(0, 3), (1, 0.5)]) == pytest.approx([3.5, 2])
    assert ends([(0, 1), (5, 1), (5, 0)]) == pytest.approx([1, 6, 5])


@given(jobs=st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5)), min_size=1, max_size=8))
def test_no_work_is_lost_and_nobody_is_faster_than_alone(jobs):
    found = ends(jobs)
    assert all(end >= start + alone - 1e-9 for end, (start, alone) in zip(found, jobs, strict=True))
    free = 0.0
    for start, alone in sorted(jobs):
        free = max(free, start) + alone
    assert max(found) == pytest.approx(free)


def pipeline(**more):
    return StepPlan(
        schedule="interleaved",
        stages=4,
        micro_batches=8,
        chunks=2,
        forward_s=((1.0, 1.0),) * 4,
        backward_s=((2.0, 2.0),) * 4,
        weight_s=((0.0, 0.0),) * 4,
        send_s=0.3,
        grad_bucket_s=(((0.5,) * 4,) * 2,) * 4,
        param_gather_s=((1.0, 1.0),) * 4,
        **more,
    )


def test_a_shared_link_costs_at_most_what_both_streams_hold_it():
    alone, shared = step_events(pipeline()), step_events(pipeline(shared_link=True))
    assert alone.step_s < shared.step_s <= alone.step_s + 2 * max(alone.dp_link_busy_s) + 1e-9
    for stage in range(4):
        assert sum(shared.parts_s(stage)) == pytest.approx(shared.step_s)


def test_without_boundary_messages_sharing_changes_nothing():
    quiet = replace(pipeline(), send_s=0.0)
    assert step_events(replace(quiet, shared_link=True)).step_s == pytest.approx(step_events(quiet).step_s)


TEXT = """model: llama3-70b
cluster: {{node: hgx-h100, nodes: 32, fabric: {{node_bytes_per_s: {rate} Gb/s}}}}
training: {{tokens: 1e12, sequence_length: 8192, global_batch_sequences: {batch}}}
strategies:
  a: {{tp: 8, pp: 4, vpp: 5, zero_stage: 1, sequence_parallel: true, recompute: full}}
"""


@pytest.mark.parametrize(("rate", "forced"), [(3200, False), (100, True)])
def test_the_fast_engine_gives_way_where_sharing_matters_and_says_so(rate, forced):
    scenario = parse_scenario(TEXT.format(rate=rate, batch=64))
    resolved = resolve(scenario=scenario, strategy=scenario.strategies["a"])
    machine = machine_for(scenario=scenario, resolved=resolved, gpus=256)
    answers = [
        forecast_step(model=scenario.model_spec, layout=resolved.layout, machine=machine, engine=engine)
        for engine in ("fast", "events")
    ]
    assert ("forced" in answers[0].engine) == forced
    assert answers[0].step_s == pytest.approx(answers[1].step_s, rel=0.03)
    plan = build(model=scenario.model_spec, layout=resolved.layout, machine=machine).plan
    assert plan.shared_link
    assert step_events(plan).step_s >= step_fast(plan).step_s * (1 - 1e-9)


def test_kernels_slow_down_by_what_runs_beside_them():
    block = FsdpBlock(forward_s=2.0, backward_s=4.0, gather_s=1.0, reduce_s=1.5)
    plan = StepPlan(
        schedule="1f1b", stages=1, micro_batches=2, chunks=1, forward_s=((0.0,),), backward_s=((0.0,),),
        weight_s=((0.0,),), fsdp=(((block, block),),),
    )  # fmt: skip
    slow = beside_exchange(plan=plan, slow_frac=0.1).fsdp[0][0][0]
    assert (slow.forward_s, slow.backward_s) == pytest.approx((2.1, 4.25))
    bucketed = beside_exchange(plan=pipeline(), slow_frac=0.1)
    assert bucketed.backward_s[0][0] == pytest.approx(2.0 + 0.1 * 2.0 / 8)
    assert bucketed.forward_s[0][0] == pytest.approx(1.0 + 0.1 * 1.0 / 8)
    apart = beside_exchange(plan=pipeline(dp_overlap=False, gather_overlap=False), slow_frac=0.1)
    assert apart.backward_s == pipeline().backward_s


def test_one_rank_slows_nothing_and_a_measured_share_goes_before_the_published_one():
    network = Network("nvlink4", 450e9, 8, 8, "ib", 400e9, 8)
    at = lambda group, net=network: beside_frac(group=group, network=net)  # noqa: E731
    assert at(Group(1, 1)) == 0.0
    assert at(Group(8, 8)) == at(Group(16, 8)) == BESIDE_FRAC
    inside = replace(network, measured=MeasuredWire("p", (), beside_inside_frac=0.3))
    assert (at(Group(8, 8), inside), at(Group(16, 8), inside)) == (0.3, BESIDE_FRAC)
    across = replace(network, measured=MeasuredWire("p", (), beside_across_frac=0.05))
    assert (at(Group(8, 8), across), at(Group(16, 8), across)) == (BESIDE_FRAC, 0.05)
