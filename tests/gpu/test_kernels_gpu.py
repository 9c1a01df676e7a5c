"""The same gates on a real GPU, at the sizes that are timed."""

import pytest

torch = pytest.importorskip("torch", reason="calibrate needs torch")
pytest.importorskip("triton", reason="calibrate needs triton")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device on this machine", allow_module_level=True)

from calibrate.kernels import cross_entropy, rmsnorm, swiglu  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_at_timed_sizes(dtype):
    found = [
        rmsnorm.gate(rows=4096, width=4096, dtype=dtype),
        swiglu.gate(rows=4096, width=14336, dtype=dtype),
        *cross_entropy.gate(rows=1024, vocab=128256, dtype=dtype),
    ]
    assert all(g.passed for g in found), found
