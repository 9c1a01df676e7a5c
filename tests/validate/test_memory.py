import statistics
from dataclasses import replace

import pytest

from planner.validate.memory import notes_of, packaged_rows, setting_of_row, validate_memory
from planner.workload.megatron_memory import last_rank_memory

ROWS = packaged_rows()


def _plain(metric: str) -> list[float]:
    rows = [r for r in ROWS if r["metric"] == metric and notes_of(r)["trust"] == "A"]
    return [abs(a["zero_shot"]["error_pct"]) for a in validate_memory(rows)]


def test_peak_and_steady_bytes_of_trusted_rows_are_within_the_bar() -> None:
    peak, steady = _plain("memory_gb"), _plain("memory_steady_gb")
    assert len(peak) > 120
    assert statistics.fmean(peak) <= 2.0
    assert max(peak) <= 10.0
    assert statistics.fmean(steady) <= 2.0


def test_parameters_of_the_last_rank_are_those_of_its_state() -> None:
    for row in ROWS:
        notes = notes_of(row)
        if notes["trust"] == "A" and row["metric"] == "memory_gb":
            model, layout, setting = setting_of_row(row)
            memory = last_rank_memory(model=model, layout=layout, setting=setting)
            assert memory.params == pytest.approx(float(notes["rank_params_b"]) * 1e9, rel=2e-3)
            assert memory.states_bytes == pytest.approx(float(notes["rank_state_gb"]) * 1e9, rel=2e-3)


def test_bands_hold_most_of_the_rows_and_no_run_is_refused() -> None:
    answers = [a for a in validate_memory() if a["zero_shot"] and a["metric"] != "step_time_s"]
    inside = [a["zero_shot"]["p10"] <= a["measured"] <= a["zero_shot"]["p90"] for a in answers]
    assert 0.75 <= statistics.fmean(inside) <= 0.95
    assert all(a["fits"] for a in answers)


def test_every_row_appears_once_and_skips_are_named() -> None:
    answers = validate_memory()
    assert [a["row"] for a in answers] == list(range(len(ROWS)))
    assert {a["skipped"].split(":")[0] for a in answers if a["skipped"]} <= {"not_a_decoder"}
    (blank,) = validate_memory([ROWS[0] | {"hidden": ""}])
    assert blank["skipped"].startswith("shape_missing: hidden")
    (odd,) = validate_memory([ROWS[0] | {"metric": "warp"}])
    assert odd["skipped"].startswith("setting_missing")


def test_sharding_and_sequence_parallelism_never_add_bytes() -> None:
    row = next(r for r in ROWS if r["model"] == "gpt3-7b" and r["metric"] == "memory_gb")
    model, layout, setting = setting_of_row(row)
    base = last_rank_memory(model=model, layout=replace(layout, zero_stage=0), setting=setting)
    shared = last_rank_memory(model=model, layout=replace(layout, zero_stage=1, dp=8), setting=setting)
    assert shared.steady_bytes < base.steady_bytes
    split = last_rank_memory(model=model, layout=replace(layout, tp=2), setting=setting)
    scattered = last_rank_memory(model=model, layout=replace(layout, tp=2, sequence_parallel=True), setting=setting)
    assert scattered.peak_bytes < split.peak_bytes < base.peak_bytes
