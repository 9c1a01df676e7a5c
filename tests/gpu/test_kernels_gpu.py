"""The same gates on a real GPU, at the sizes that are timed."""

import pytest

torch = pytest.importorskip("torch", reason="calibrate needs torch")
pytest.importorskip("triton", reason="calibrate needs triton")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device on this machine", allow_module_level=True)

from calibrate.kernels import adamw, cross_entropy, pack, product, rmsnorm, rotary, swiglu  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_at_timed_sizes(dtype):
    found = [
        rmsnorm.gate(rows=4096, width=4096, dtype=dtype),
        swiglu.gate(rows=4096, width=14336, dtype=dtype),
        *cross_entropy.gate(rows=1024, vocab=128256, dtype=dtype),
        rotary.gate(sequence=4096, heads=32, head_dim=128, dtype=dtype),
        *adamw.gate(elements=10_000_000, dtype=dtype),
        *pack.gate(elements=10_000_000, dtype=dtype),
        *(
            product.gate(tile=t, m=1000, n=1024, k=1024, groups=g, dtype=torch.bfloat16)
            for t in product.TILES
            for g in (1, 5)
        ),
    ]
    assert all(g.passed for g in found), found
