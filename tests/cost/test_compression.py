"""Compressed exchanges: what crosses the wire, what the kernels add, and when it does not pay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import catalog
from planner.cost.collective import collective_s
from planner.cost.compression import exchange_s
from planner.cost.topology import network_of
from planner.cost.types import Group
from planner.workload.exchange import PLAIN, Exchange

KINDS = ("fp16", "int8", "int4", "onebit", "lowrank")
SLOW = catalog.node("a100-ethernet-100g")
FAST = catalog.node("hgx-h100")


def seconds(exchange, *, node=SLOW, op="all_reduce", nbytes=4e8, element=4.0, group=None):
    gpu = catalog.gpu(node.gpu)
    return exchange_s(
        exchange=exchange,
        op=op,
        nbytes=nbytes,
        element_bytes=element,
        group=group or Group(4, 1),
        network=network_of(node=node, gpu=gpu),
        gpu=gpu.name,
    ).seconds


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather"])
def test_plain_is_the_collective_itself(op):
    network = network_of(node=SLOW, gpu=catalog.gpu(SLOW.gpu))
    assert seconds(PLAIN, op=op) == collective_s(op=op, payload_bytes=4e8, group=Group(4, 1), network=network).seconds


def test_on_a_slow_wire_time_falls_with_the_bytes():
    """400 MB of fp32 over 100 Gb/s: the wire decides, so each kind comes near its share of the bytes."""
    plain = seconds(PLAIN)
    assert seconds(Exchange("fp16")) / plain == pytest.approx(1 / 2, abs=0.05)
    assert seconds(Exchange("int8")) / plain == pytest.approx(1.016 / 4, abs=0.08)
    assert seconds(Exchange("onebit", warmup_frac=0.0)) / plain == pytest.approx(1 / 32, abs=0.08)
    assert seconds(Exchange("lowrank", rank=4, side=4096)) / plain < 0.1


def test_on_a_fast_wire_the_kernels_cost_more_than_they_save():
    inside = Group(8, 8)
    assert seconds(Exchange("onebit", warmup_frac=0.0), node=FAST, group=inside, nbytes=1e6) > seconds(
        PLAIN, node=FAST, group=inside, nbytes=1e6
    )


def test_sixteen_bit_gradients_gain_nothing_from_fp16():
    assert seconds(Exchange("fp16"), element=2.0) == seconds(PLAIN, element=2.0)


def test_warm_up_steps_are_uncompressed():
    full, none = seconds(Exchange("onebit", warmup_frac=1.0)), seconds(Exchange("onebit", warmup_frac=0.0))
    assert full == pytest.approx(seconds(PLAIN))
    assert seconds(Exchange("onebit", warmup_frac=0.25)) == pytest.approx(0.25 * full + 0.75 * none)


def test_a_second_copy_keeps_half_of_the_gathers_inside_the_node():
    group = Group(32, 8)
    plain = seconds(PLAIN, op="all_gather", element=2.0, group=group)
    hierarchical = seconds(Exchange(secondary=True), op="all_gather", element=2.0, group=group)
    assert 0.5 * plain < hierarchical < 0.6 * plain
    inside = Group(8, 8)
    assert seconds(Exchange(secondary=True), op="all_gather", group=inside) == seconds(
        PLAIN, op="all_gather", group=inside
    )
    assert seconds(Exchange(weights="int8"), op="all_gather", element=2.0, group=group) < 0.6 * plain


@given(kind=st.sampled_from(KINDS), nbytes=st.floats(1e4, 1e9), more=st.floats(1, 8), size=st.sampled_from([2, 8, 32]))
def test_more_bytes_never_take_less_and_one_rank_costs_nothing(kind, nbytes, more, size):
    group = Group(size, min(8, size))
    few = seconds(Exchange(kind), nbytes=nbytes, group=group)
    assert seconds(Exchange(kind), nbytes=nbytes * more, group=group) >= few * 0.999
    assert seconds(Exchange(kind), nbytes=nbytes, group=Group(1, 1)) == 0.0
