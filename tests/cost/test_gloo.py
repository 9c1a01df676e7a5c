"""Gloo's algorithms over TCP: limits that can be computed by hand, and orders that always hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.collective import OPS
from planner.cost.gloo import MESSAGE_S, gloo_s, ring_phase_s


def walk(*, segments, segment_s, message_s):
    """The ring phase segment by segment, as gloo's loop does it."""
    asked, arrived, free = [], [], 0.0
    for i in range(segments):
        asked.append(max(asked[-1] if asked else 0.0, arrived[i - 2] if i >= 2 else 0.0))
        begin = max(asked[i] + message_s, free)
        free = begin + segment_s
        arrived.append(free + message_s)
    return arrived[-1]


@given(segments=st.integers(1, 60), segment_s=st.floats(1e-6, 1.0), message_s=st.floats(1e-6, 1.0))
def test_the_closed_form_is_the_loop(segments, segment_s, message_s):
    expected = walk(segments=segments, segment_s=segment_s, message_s=message_s)
    assert ring_phase_s(segments=segments, segment_s=segment_s, message_s=message_s) == pytest.approx(expected)


def test_large_messages_run_at_the_link_and_small_ones_at_the_latency():
    large = gloo_s(op="all_reduce", payload_bytes=1e9, size=4, bytes_per_s=1e8, latency_s=1e-4)
    assert large == pytest.approx(2 * 3 / 4 * 1e9 / 1e8, rel=0.01)
    small = gloo_s(op="all_reduce", payload_bytes=64, size=4, bytes_per_s=1e8, latency_s=1e-2)
    assert small == pytest.approx(2 * 3 * 2 * (1e-2 + MESSAGE_S), rel=0.01)


@given(
    op=st.sampled_from(OPS),
    nbytes=st.floats(1, 4e9),
    size=st.integers(2, 64),
    link=st.tuples(st.floats(1e6, 1e10), st.floats(0, 0.1)),
    better=st.floats(1, 10),
)
def test_a_better_link_never_slows(op, nbytes, size, link, better):
    rate, latency = link
    base = gloo_s(op=op, payload_bytes=nbytes, size=size, bytes_per_s=rate, latency_s=latency)
    assert gloo_s(op=op, payload_bytes=nbytes, size=size, bytes_per_s=rate * better, latency_s=latency) <= base * 1.0001
    assert gloo_s(op=op, payload_bytes=nbytes, size=size, bytes_per_s=rate, latency_s=latency / better) <= base * 1.0001
    assert gloo_s(op=op, payload_bytes=nbytes, size=1, bytes_per_s=rate, latency_s=latency) == 0.0


@given(nbytes=st.floats(1, 1e9), more=st.floats(1, 4), size=st.integers(2, 16), latency=st.floats(0, 0.05))
def test_more_bytes_never_take_less(nbytes, more, size, latency):
    few = gloo_s(op="all_reduce", payload_bytes=nbytes, size=size, bytes_per_s=1e8, latency_s=latency)
    many = gloo_s(op="all_reduce", payload_bytes=nbytes * more, size=size, bytes_per_s=1e8, latency_s=latency)
    assert many >= few * 0.9999
