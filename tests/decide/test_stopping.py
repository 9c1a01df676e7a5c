"""Where to stop: the law, its record on a history that it has not seen, and the rule in money."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.decide.stopping import (
    History,
    HistoryError,
    cutoff,
    fit_law,
    outlook,
    predicted_time_s,
    read_history,
    rolling_origin,
    switch_after,
)


@pytest.fixture(scope="module")
def history():
    return read_history()


def test_rolling_origin_ten_ahead(history):
    errors = rolling_origin(history=history, start=25, ahead=10)
    ours = [e.error_pct for e in errors]
    still = [e.persistence_pct for e in errors]
    assert len(errors) == 55
    assert statistics.median(ours) <= 5.0
    assert np.percentile(ours, 90) <= 15.0
    assert statistics.median(ours) < statistics.median(still) / 2
    assert 0.7 <= statistics.fmean(e.inside for e in errors) <= 0.9


def test_retimed_records_are_no_losses(history):
    assert len(history.times_s) == 89
    assert list(history.times_s) == sorted(history.times_s, reverse=True)
    assert history.times_s[-1] == 73.8


def test_law_recovers_a_record_process():
    times = tuple(100.0 * k**-0.8 for k in range(1, 41))
    law = fit_law(History(times, None, ("",) * 40, "made"))
    assert law.c == pytest.approx(0.8, rel=1e-3)
    assert law.per_week is None


def test_immature_history_follows_the_record_law_alone():
    times = tuple(100.0 * k**-0.8 for k in range(1, 11))
    law = fit_law(History(times, None, ("",) * 10, "made"))
    assert law.immature
    assert predicted_time_s(law=law, ahead=5) == pytest.approx(100.0 * 15**-0.8, rel=1e-3)


def test_outlook_widens_and_repeats(history):
    law = fit_law(history)
    near, far = outlook(law=law, ahead=1), outlook(law=law, ahead=20)
    assert near == outlook(law=law, ahead=1)
    for o in (near, far):
        assert o.time_s[0] < o.time_s[1] < o.time_s[2] < law.last_s
        assert o.gain_frac[0] < o.gain_frac[1] < o.gain_frac[2]
        assert o.weeks is not None
        assert o.weeks[0] < o.weeks[2]
    assert far.gain_frac[1] > near.gain_frac[1]


@given(spend=st.floats(1e3, 1e9), cost=st.floats(1e2, 1e6))
def test_stop_exactly_below_the_break_even_spend(spend, cost):
    law = fit_law(read_history())
    rule = cutoff(law=law, spend_usd=spend, usd_per_week=cost)
    assert rule.stop == (spend <= rule.spend_break_even_usd * (1 + 1e-12))
    assert rule.next_gain_usd / spend == pytest.approx(rule.next_cost_usd / rule.spend_break_even_usd)


def test_cost_of_a_tenth_of_a_second(history):
    law = fit_law(history)
    rule = cutoff(law=law, spend_usd=1e6, usd_per_week=5000, per_week=1.0)
    seconds = law.last_s * -math.expm1(-law.next_gain())
    assert rule.usd_per_tenth_second == pytest.approx(5000 * 0.1 / seconds)


def test_falling_gains_end_at_the_closed_form():
    times = tuple(100.0 * k**-0.8 for k in range(1, 16))
    law = fit_law(History(times, tuple(7.0 * k for k in range(15)), ("",) * 15, "made"))
    rule = cutoff(law=law, spend_usd=1e6, usd_per_week=20_000, per_week=1.0)
    # V c / k > C up to k = c V / C = 40: about 25 more.
    assert rule.successes_worth_waiting_for == pytest.approx(25, abs=2)


def test_switch_comes_when_structural_work_buys_more():
    road = [(0.30, 1e4), (0.10, 1e4), (0.02, 1e4)]
    assert switch_after(incremental=road, structural_gain=0.05, structural_usd=1e4) == 2
    assert switch_after(incremental=road, structural_gain=0.01, structural_usd=1e4) is None
    assert switch_after(incremental=road, structural_gain=0.50, structural_usd=1e4) == 0


@pytest.mark.parametrize(
    "text", ["time_s\n1\n2\n", "time_s\n3\nx\n2\n1\n", "time_s\n3\n-1\n2\n", "time_s,date\n1,2024-01-01\n2,\n3,\n"]
)
def test_unusable_histories_are_refused(tmp_path, text):
    path = tmp_path / "h.csv"
    path.write_text(text)
    with pytest.raises(HistoryError):
        fit_law(read_history(path))


def test_own_history_without_dates(tmp_path):
    path = tmp_path / "h.csv"
    path.write_text("time_s\n" + "\n".join(str(60 * 0.97**k) for k in range(30)))
    law = fit_law(read_history(path))
    assert law.mean_gain == pytest.approx(-math.log(0.97), rel=1e-6)
    assert outlook(law=law, ahead=3).weeks is None
    with pytest.raises(HistoryError):
        cutoff(law=law, spend_usd=1e6, usd_per_week=1e4)
