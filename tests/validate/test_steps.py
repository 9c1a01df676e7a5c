import statistics

import pytest

from planner.validate.steps import packaged_rows, validate_steps


def _scores(profile: str) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {"kernel": [], "launch": [], "memory": []}
    for a in validate_steps(profile=profile):
        if a["skipped"]:
            continue
        kind = "memory" if a["metric"] == "memory_gb" else "launch" if "launch_bound" in a["flags"] else "kernel"
        out[kind].append(abs(a["zero_shot"]["error_pct"]))
    return out


def test_kernel_bound_steps_and_memory_are_within_the_bars() -> None:
    scores = _scores("h200-sxm")
    assert len(scores["kernel"]) >= 60
    assert statistics.fmean(scores["kernel"]) <= 3.0
    assert max(scores["kernel"]) <= 10.0
    assert statistics.fmean(scores["memory"]) <= 1.0
    assert max(scores["memory"]) <= 8.0


def test_launch_bound_steps_differ_between_hosts_and_are_held_to_no_better() -> None:
    # The bar of 6 % is missed: the same layer cost 1.2 to 2.1 ms of host on machines of one kind (docs/calibration.md).
    assert statistics.fmean(_scores("h200-sxm")["launch"]) <= 20.0


def test_the_quick_profile_is_within_six_percent() -> None:
    assert statistics.fmean(_scores("h200-sxm-quick")["kernel"]) <= 6.0


def test_bands_hold_four_of_five() -> None:
    rows = [a for a in validate_steps() if not a["skipped"] and a["metric"] == "step_time_s"]
    inside = statistics.fmean(a["zero_shot"]["p10"] <= a["measured"] <= a["zero_shot"]["p90"] for a in rows)
    width = statistics.median(
        (a["zero_shot"]["p90"] - a["zero_shot"]["p10"]) / a["zero_shot"]["predicted"] for a in rows
    )
    assert 0.75 <= inside <= 0.88
    assert width <= 0.15


def test_speedups_of_paired_rows_have_the_right_sign() -> None:
    rows = packaged_rows()
    answers = {a["id"]: a for a in validate_steps(rows) if a["metric"] == "step_time_s"}
    fixed = ("kind", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "mbs", "seq", "accumulation")
    choices = ("mode", "precision", "optimizer", "recompute")
    wrong, off = [], []
    for i, a in enumerate(rows):
        for b in rows[i + 1 :]:
            differ = [c for c in choices if a[c] != b[c]]
            if any(a[c] != b[c] for c in fixed) or len(differ) != 1 or a["id"][0] != b["id"][0]:
                continue
            one, two = answers[a["id"]], answers[b["id"]]
            if "launch_bound" in one["flags"] or "launch_bound" in two["flags"]:
                continue
            measured = one["measured"] / two["measured"]
            predicted = one["zero_shot"]["predicted"] / two["zero_shot"]["predicted"]
            off.append(abs(predicted - measured))
            if abs(measured - 1) > 0.02 and (predicted - 1) * (measured - 1) < 0:
                wrong.append((a["id"], b["id"], measured, predicted))
    assert len(off) >= 20
    assert not wrong
    assert statistics.fmean(off) <= 0.05


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "A100-80-SXM"}, "gpu: "),
        ({"layers": ""}, "shape_missing: layers"),
        ({"hidden": "-3"}, "shape_missing: hidden"),
        ({"mode": "turbo"}, "setting_missing: mode"),
        ({"kind": ""}, "setting_missing: kind"),
    ],
)
def test_rows_that_cannot_be_forecast_say_why(change: dict[str, str], reason: str) -> None:
    answers = validate_steps([packaged_rows()[0] | change])
    assert [a["metric"] for a in answers] == ["step_time_s", "memory_gb"]
    assert all(a["skipped"].startswith(reason) for a in answers)


def test_blank_settings_get_defaults_that_are_named() -> None:
    time, _ = validate_steps([packaged_rows()[0] | {"mode": "", "optimizer": ""}])
    assert time["assumed"] == ["mode", "optimizer"]
    assert time["zero_shot"]["predicted"] == validate_steps([packaged_rows()[0]])[0]["zero_shot"]["predicted"]
