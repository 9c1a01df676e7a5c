"""Collectives: degree one is free, more bandwidth never hurts, parts agree, the fit is reproducible."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.collective import collective_s
from planner.cost.types import Group, Network

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
    pooled = replace(H100, nic_count=4)  # fewer NICs than GPUs: any member may use all of them
    alone = collective_s(op="all_gather", payload_bytes=4e9, group=Group(16, 1, nic_sharers=1), network=pooled)
    shared = collective_s(op="all_gather", payload_bytes=4e9, group=Group(16, 1, nic_sharers=8), network=pooled)
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


@given(
    link=st.sampled_from(["nvlink1", "nvlink2", "nvlink3", "nvlink4", "nvlink5", "xgmi", "unheard-of"]),
    op=st.sampled_from(OPS),
    size=st.sampled_from([2, 3, 4, 5, 8, 16, 72]),
    nbytes=st.floats(1e3, 4e9),
    rates=st.tuples(st.floats(120e9, 900e9), st.floats(1.0, 4.0)),
)
def test_faster_links_never_hurt_and_every_link_answers(link, op, size, nbytes, rates):
    rate, factor = rates
    slow = Network(link, rate, 72, 8, "ib", 400e9, 8)
    fast = replace(slow, scaleup_bytes_per_s=rate * factor)
    for group in (Group(size, size), Group(size * 2, size)):
        base = collective_s(op=op, payload_bytes=nbytes, group=group, network=slow)
        assert 0 < base.seconds < 1e3
        assert collective_s(op=op, payload_bytes=nbytes, group=group, network=fast).seconds <= base.seconds * (1 + 1e-9)


@given(nbytes=st.floats(1e3, 4e9), rates=st.tuples(st.floats(8e9, 64e9), st.floats(8e9, 64e9)))
def test_faster_pcie_never_hurts_large_messages(nbytes, rates):
    slow, fast = (
        collective_s(
            op="all_gather",
            payload_bytes=nbytes + 1e7,
            group=Group(4, 4),
            network=Network("pcie", rate, 8, 8, "none", 0.0, 0),
        ).seconds
        for rate in sorted(rates)
    )
    assert fast <= slow * (1 + 1e-9)


def test_labels_say_where_a_figure_comes_from():
    def label(link, rate, op="all_reduce", size=8):
        network = Network(link, rate, 8, 8, "none", 0.0, 0)
        return collective_s(op=op, payload_bytes=1e8, group=Group(size, size), network=network).label

    assert label("nvlink4", 450e9) == "published"
    assert label("nvlink4", 200e9) == "transferred"
    assert label("nvlink2", 150e9, "all_to_all") == "transferred"
    assert label("nvlink1", 80e9) == "transferred"
    assert label("unheard-of", 200e9) == "datasheet"
    assert label("nvlink4", 450e9, "all_to_all") == "fitted"


def test_in_switch_reduction_and_the_mesh():
    ring, switch = (
        collective_s(
            op="all_reduce",
            payload_bytes=4e9,
            group=Group(8, 8),
            network=Network(link, 900e9, 8, 8, "none", 0.0, 0),
        ).seconds
        for link in ("nvlink5-ring", "nvlink5")
    )
    assert 1.1 < ring / switch < 1.35
    pair, all_of_them = (
        1e9 * 2 * (n - 1) / n / collective_s(
            op="all_reduce",
            payload_bytes=1e9,
            group=Group(n, n),
            network=Network("xgmi", 448e9, 8, 8, "none", 0.0, 0),
        ).seconds
        for n in (2, 8)
    )  # fmt: skip
    assert all_of_them > 4 * pair


def test_ranks_across_nodes_need_a_network():
    with pytest.raises(ValueError, match="no rate"):
        collective_s(op="all_reduce", payload_bytes=1e6, group=Group(16, 8), network=replace(H100, node_bytes_per_s=0))
    with pytest.raises(ValueError, match="unknown collective"):
        collective_s(op="gather", payload_bytes=1e6, group=Group(8, 8), network=H100)


def test_a_rail_aligned_group_reaches_only_its_own_nics():
    """Four of eight GPUs with a NIC each use half the NICs, though nobody shares them."""
    half = collective_s(op="all_gather", payload_bytes=4e9, group=Group(8, 4), network=H100).seconds
    one_switch = replace(H100, nic_count=4)
    whole = collective_s(op="all_gather", payload_bytes=4e9, group=Group(8, 4), network=one_switch).seconds
    assert half > 1.5 * whole
