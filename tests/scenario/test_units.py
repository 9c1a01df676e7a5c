"""Text with a unit becomes SI; anything else is refused."""

import pytest

from planner.scenario.units import bytes_per_s, count, days, seconds


@pytest.mark.parametrize(
    ("convert", "text", "value"),
    [
        (seconds, "30d", 2_592_000),
        (seconds, "3 h", 10_800),
        (seconds, "45 min", 2_700),
        (seconds, "1.5e3", 1_500),
        (seconds, 12, 12),
        (days, "36h", 1.5),
        (days, "30d", 30),
        (days, "30", 30),
        (count, "2T", 2e12),
        (count, "1.5e12", 1.5e12),
        (count, "300B", 300e9),
        (count, "1_000", 1000),
        (bytes_per_s, "400 Gb/s", 50e9),
        (bytes_per_s, "400 Gbps", 50e9),
        (bytes_per_s, "50 GB/s", 50e9),
        (bytes_per_s, "2 TB/s", 2e12),
        (bytes_per_s, 5e10, 5e10),
    ],
)
def test_si(convert, text, value):
    assert convert(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("convert", "text"),
    [
        (seconds, "3 parsecs"),
        (seconds, ""),
        (seconds, "h3"),
        (seconds, "400 Gb/s"),
        (days, "soon"),
        (days, "5 GB/s"),
        (count, "2T tokens"),
        (count, "nan"),
        (bytes_per_s, "3h"),
        (bytes_per_s, "400 G"),
        (bytes_per_s, "4 4 Gb/s"),
    ],
)
def test_refused(convert, text):
    with pytest.raises(ValueError, match=r"unit|not a"):
        convert(text)
