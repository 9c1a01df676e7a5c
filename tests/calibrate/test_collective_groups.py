"""Which groups and sizes a calibration of collectives covers."""

from hypothesis import given
from hypothesis import strategies as st

from calibrate.measure.collective_groups import missing, rank_groups, sizes


def test_eight_ranks_on_two_nodes():
    groups = rank_groups([0] * 4 + [1] * 4)
    found = [(g.name, len(g.ranks), g.nodes) for g in groups]
    assert found == [("in_node", 2, 1), ("in_node", 4, 1), ("across_nodes", 8, 2), ("one_a_node", 2, 2)]
    assert groups[3].ranks == (0, 4)
    assert missing(groups) == ()


def test_what_cannot_be_measured_is_said():
    assert rank_groups([0]) == ()
    assert "one process" in missing(())[0]
    assert missing(rank_groups([0, 0])) == (
        "one node: nothing between nodes (network cards, switches) can be measured here",
    )
    assert "inside a node" in missing(rank_groups([0, 1]))[0]


@given(nodes=st.lists(st.integers(1, 16), min_size=1, max_size=6))
def test_groups_hold_what_their_name_says(nodes):
    node_of = [n for n, count in enumerate(nodes) for _ in range(count)]
    groups = rank_groups(node_of)
    assert len({g.ranks for g in groups}) == len(groups)
    for g in groups:
        assert len(set(g.ranks)) == len(g.ranks) >= 2
        assert len({node_of[r] for r in g.ranks}) == g.nodes
        assert (g.nodes == 1) == (g.name == "in_node")


@given(free=st.floats(0, 1e12))
def test_sizes_fit_in_memory(free):
    found = sizes(free_bytes=free)
    assert all(3 * s <= free for s in found)
    assert not found or (found[0] == 1024 and found[-1] <= 2**32)


def test_sizes_reach_from_1_kb_to_4_gb():
    assert sizes(free_bytes=1e12)[0] == 2**10
    assert sizes(free_bytes=1e12)[-1] == 2**32
