"""Collectives: degree one is free, more bandwidth never hurts, parts agree, the fit is reproducible."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.collective import collective_s
from planner.cost.types import Group, Network
from planner.validate.collectives import fit_collectives, packaged_rows, shipped_table

H100 = Network("nvlink4", 450e9, 8, 8, "ib", 400e9, 8, gpu="H100-SXM")
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")


@pytest.mark.parametrize("op", OPS)
def test_degree_one_costs_nothing(op):
    assert collective_s(op=op, payload_bytes=1e9, group=Group(1, 1), network=H100).seconds == 0


@given(
    op=st.sampled_from(OPS),
    size=st.sampled_from([2, 4, 8, 16, 64, 1024]),
    nbytes=st.floats(1e3, 4e9),
    factor=st.floats(1.0, 8.0),
)
def test_more_bandwidth_and_fewer_bytes_never_hurt(op, size, nbytes, factor):
    group = Group(size, min(8, size))
    base = collective_s(op=op, payload_bytes=nbytes, group=group, network=H100).seconds
    wide = replace(H100, node_bytes_per_s=H100.node_bytes_per_s * factor)
    assert collective_s(op=op, payload_bytes=nbytes, group=group, network=wide).seconds <= base * (1 + 1e-9)
    assert collective_s(op=op, payload_bytes=nbytes / factor, group=group, network=H100).seconds <= base * (1 + 1e-9)
    packed = replace(H100, oversubscription=factor)
    assert collective_s(op=op, payload_bytes=nbytes, group=group, network=packed).seconds >= base * (1 - 1e-9)


@given(nodes=st.sampled_from([2, 4, 16, 128]), nbytes=st.floats(1e5, 4e9))
def test_more_nodes_are_never_faster(nodes, nbytes):
    few = collective_s(op="all_gather", payload_bytes=nbytes, group=Group(8 * nodes, 8), network=H100)
    many = collective_s(op="all_gather", payload_bytes=nbytes, group=Group(16 * nodes, 8), network=H100)
    assert many.seconds >= few.seconds


def test_sharing_the_nics_divides_the_rate():
    alone = collective_s(op="all_gather", payload_bytes=4e9, group=Group(16, 1, nic_sharers=1), network=H100)
    shared = collective_s(op="all_gather", payload_bytes=4e9, group=Group(16, 1, nic_sharers=8), network=H100)
    assert shared.seconds / alone.seconds == pytest.approx(
        8, rel=0.15
    )  # latency and the square-root term are not shared


def test_all_reduce_is_reduce_scatter_and_all_gather_on_a_ring():
    a100 = Network("nvlink3", 300e9, 8, 8, "ib", 200e9, 8)
    group = Group(8, 8)
    parts = sum(
        collective_s(op=op, payload_bytes=1e9, group=group, network=a100).seconds
        for op in ("reduce_scatter", "all_gather")
    )
    assert collective_s(op="all_reduce", payload_bytes=1e9, group=group, network=a100).seconds == pytest.approx(
        parts, rel=0.15
    )


def test_tensor_parallel_across_nodes_uses_the_hierarchy():
    """16 ranks over two nodes of 8 with 8 NICs: far from a flat ring at one NIC's rate."""
    seconds = collective_s(op="all_reduce", payload_bytes=1e9, group=Group(16, 8), network=H100).seconds
    one_nic_ring = 2 * 15 / 16 * 1e9 / 50e9
    assert seconds < one_nic_ring / 4


def test_the_shipped_curves_are_what_the_fit_gives():
    ours, shipped = fit_collectives(packaged_rows()).splitlines(), shipped_table().splitlines()
    assert [x.split(",")[:3] for x in ours] == [x.split(",")[:3] for x in shipped]
    for a, b in zip(ours[1:], shipped[1:], strict=True):
        for x, y in zip(a.split(",")[3:6], b.split(",")[3:6], strict=True):
            assert float(x) == pytest.approx(float(y), rel=0.05)
