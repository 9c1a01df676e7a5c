"""Claims: every shipped one is worked out, verdicts follow from numbers, and bad files are named."""

from pathlib import Path

import pytest

from planner.decide.claims import STORIES, ClaimError, judge, read_claim

FOLDER = Path(__file__).resolve().parents[2] / "scenarios" / "claims"
FILES = sorted(FOLDER.glob("*.yaml"))
QUICK = """id: quick
sentence: A quick one
origin: test
story: operator-or-glue
figure: history.speedup
as: value
holds: {between: [30, 40]}
cases:
  whole: {first: 1, last: 89}
  end: {first: 80, last: 86}
"""


@pytest.fixture(scope="module")
def answers():
    return {p.stem: judge(read_claim(p)) for p in FILES}


def test_all_are_answered(answers):
    assert len(answers) >= 30
    for name, a in answers.items():
        assert a["id"] == name
        assert a["story"] in STORIES
        numbers = a["numbers"]
        low, high = numbers["claimed"]["low"], numbers["claimed"]["high"]
        for label, value in numbers["cases"].items():
            inside = (low is None or value >= low) and (high is None or value <= high)
            assert inside == (label in a["conditions"]["holds_when"]), (name, label)
        assert numbers["range"][0] <= numbers["range"][1]


def test_verdicts_are_not_all_alike(answers):
    assert {a["verdict"] for a in answers.values()} == {"holds", "holds_when", "does_not_hold"}


def test_a_few_that_follow_from_arithmetic(answers):
    foreseen = answers["prediction-hours-to-days"]["numbers"]["cases"]
    assert foreseen["60 % of failures foreseen, 405B"] == pytest.approx(1 / (1 - 0.6), rel=0.05)
    history = answers["experiments-a-day"]["numbers"]["cases"]
    assert history["45 min to 84 s"] == pytest.approx(2700 / 84.36, rel=1e-3)
    assert answers["structural-order-of-magnitude"]["verdict"] == "does_not_hold"


def test_the_wire_decides_about_communication(answers):
    cases = answers["communication-above-40"]["numbers"]["cases"]
    slow = [v for k, v in cases.items() if "Ethernet" in k]
    fast = [v for k, v in cases.items() if "InfiniBand" in k]
    assert min(slow) > max(fast)


def _judge(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return judge(read_claim(path))


def test_verdict_of_a_claim_that_holds_in_one_case(tmp_path):
    answer = _judge(tmp_path, QUICK)
    assert answer["verdict"] == "holds_when"
    assert answer["conditions"]["holds_when"] == ["whole"]
    assert answer["numbers"]["cases"]["whole"] == pytest.approx(2700 / 73.8)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("sentence: A quick one\n", "", "sentence is missing"),
        ("origin:", "orgin:", "orgin"),
        ("history.speedup", "history.nonsense", "history.nonsense"),
        ("history.speedup", "step_s.p50", "no scenario"),
        ("between: [30, 40]", "between: [40, 30]", "excludes"),
        ("as: value", "as: guess", "guess"),
        ("operator-or-glue", "other", "story"),
        ("last: 86", "last: 200", "200"),
    ],
)
def test_bad_claims_are_named(tmp_path, old, new, match):
    assert old in QUICK
    with pytest.raises(ClaimError, match=match):
        _judge(tmp_path, QUICK.replace(old, new))
