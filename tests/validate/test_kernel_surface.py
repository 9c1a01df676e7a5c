import statistics

import numpy as np
import pytest

from planner.validate.kernel_surface import KernelSurfaces
from planner.validate.kernels import packaged_rows, validate_kernels


def _row(m: int, n: int, k: int, seconds: float) -> dict[str, str]:
    size = {"m": str(m), "n": str(n), "k": str(k)}
    return {"source": "s", "gpu": "X", "op": "gemm", "dtype": "bf16", "time_us": str(seconds * 1e6), **size}


def _base(row: dict[str, str]) -> float:
    return 2.0 * float(row["m"]) * float(row["n"]) * float(row["k"]) / 1e15


def _truth(m: int, n: int, k: int) -> float:
    return 2.0 * m * n * k / 1e15 * (m / 4096) ** -0.2 * 1.3


SIZES = (512, 1024, 2048, 4096, 8192)
TABLE = [_row(m, n, k, _truth(m, n, k)) for m in SIZES for n in SIZES for k in SIZES]


def test_a_smooth_residual_is_read_between_the_shapes() -> None:
    surfaces = KernelSurfaces(rows=TABLE, base_s=_base)  # type: ignore[arg-type]
    for m, n, k in ((1536, 3072, 1024), (6000, 700, 2000), (2048, 2048, 2048)):
        read = surfaces.read(_row(m, n, k, 1.0))
        assert read is not None
        assert read.seconds == pytest.approx(_truth(m, n, k), rel=0.04)
        assert 0.04 < read.sigma < 0.1


def test_a_row_never_answers_for_itself_nor_its_odd_twin() -> None:
    wrong = [
        r | {"time_us": str(50 * float(r["time_us"]))} if r["m"] == r["n"] == r["k"] == "2048" else r for r in TABLE
    ]
    wrong.append(_row(2049, 2048, 2048, 9.0))
    surfaces = KernelSurfaces(rows=wrong, base_s=_base)  # type: ignore[arg-type]
    read = surfaces.read(_row(2048, 2048, 2048, 1.0))
    assert read is not None
    assert read.seconds == pytest.approx(_truth(2048, 2048, 2048), rel=0.05)


def test_what_was_never_measured_is_not_answered() -> None:
    surfaces = KernelSurfaces(rows=TABLE, base_s=_base)  # type: ignore[arg-type]
    assert surfaces.read(_row(512, 512, 512, 1.0) | {"gpu": "Y"}) is None


def test_products_of_measured_parts_are_within_the_bars_leaving_each_shape_out() -> None:
    rng = np.random.default_rng(7)
    rows = [
        r for r in packaged_rows() if r["op"] == "gemm" and r["dtype"] == "bf16" and "aiconfigurator" in r["source"]
    ]
    chosen = [rows[i] for i in rng.choice(len(rows), 1500, replace=False)]
    errors, small = [], []
    for row, answer in zip(chosen, validate_kernels(chosen), strict=True):
        size = [float(row[c]) for c in ("m", "n", "k")]
        error = abs(answer["zero_shot"]["error_pct"])
        if min(size) >= 512:
            errors.append(error)
        if 2 * size[0] * size[1] * size[2] < 3e9:
            small.append(error)
    assert statistics.fmean(errors) <= 8.0
    assert statistics.fmean(small) <= 20.0
    assert statistics.fmean(a["zero_shot"]["p10"] <= a["measured"] <= a["zero_shot"]["p90"]
                            for a in validate_kernels(chosen)) >= 0.75  # fmt: skip
