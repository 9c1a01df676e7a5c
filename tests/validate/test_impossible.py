"""Figures that hardware cannot reach are flagged with the likely reason; honest rows are not."""

from typing import Any

import pytest

from planner.validate.runs import packaged_rows, step_of_row, validate_row
from planner.validate.setup import setup_of_row

ROW = next(r for r in packaged_rows() if r["source"] == "Korthikanti 2022" and r["metric"] == "step_time_s")


def _flags(**cells: Any) -> list[str]:
    return list(validate_row(index=0, row={**ROW, **{k: str(v) for k, v in cells.items()}})["flags"])


def test_honest_rows_carry_no_flag_of_impossibility() -> None:
    assert [f for f in _flags() if ":" in f] == []


def test_a_step_faster_than_the_peak_is_above_peak() -> None:
    answer = step_of_row(row=ROW)
    at_peak_s = answer.step_s * answer.model_flops_per_s_per_gpu / answer.peak_flops
    assert any(f.startswith("above_peak: 1.1") for f in _flags(measured=at_peak_s / 1.11))
    assert any(f.startswith("above_attainable: 0.9") for f in _flags(measured=at_peak_s / 0.92))


def test_the_sparse_peak_is_recognised() -> None:
    dense = step_of_row(row=ROW).peak_flops / 1e12
    cells = {"metric": "mfu_pct", "flops_def": "full", "measured": 25}
    assert any(f.startswith("sparse_peak") for f in _flags(mfu_peak_tflops=2 * dense, **cells))
    assert not any(f.startswith("sparse_peak") for f in _flags(mfu_peak_tflops=dense, **cells))


def test_recomputed_flops_called_model_flops() -> None:
    cells = {"metric": "mfu_pct", "flops_def": "full", "recompute": "full", "mfu_peak_tflops": ""}
    honest = validate_row(index=0, row={**ROW, **cells, "measured": "40"})["zero_shot"]["predicted"]
    assert any(f.startswith("hfu_as_mfu: 1.33") for f in _flags(**cells, measured=honest * 4 / 3))
    assert not any(f.startswith("hfu_as_mfu") for f in _flags(**cells, measured=honest))


@pytest.mark.parametrize(("factor", "flagged"), [(1.0, False), (1.1, False), (1.4, True), (0.7, True)])
def test_a_mistaken_model_size(factor: float, flagged: bool) -> None:
    from planner.workload.params import total_params

    size = total_params(setup_of_row(ROW).model) / 1e9
    assert any(f.startswith("model_size") for f in _flags(params_b=size * factor)) is flagged


def test_strong_scaling_is_compared_with_its_own_base() -> None:
    rows = {r["id"]: r for r in packaged_rows() if r["metric"] == "scaling_efficiency_pct"}
    tensor_only = [validate_row(index=0, row=r) for i, r in rows.items() if i.startswith("megatron-lm-2019")]
    values = [a["zero_shot"]["predicted"] for a in tensor_only]
    assert values == sorted(values, reverse=True)
    assert values[0] < 97
    assert values[-1] < 80
