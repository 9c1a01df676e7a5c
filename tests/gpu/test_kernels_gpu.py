"""The same gates on a real GPU, at the sizes that are timed."""

import pytest

torch = pytest.importorskip("torch", reason="calibrate needs torch")
pytest.importorskip("triton", reason="calibrate needs triton")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device on this machine", allow_module_level=True)

from calibrate.kernels import adamw, attention, cross_entropy, pack, product, rmsnorm, rotary, swiglu  # noqa: E402


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


@pytest.mark.parametrize("head_dim", [64, 128])
def test_attention_tiles_at_timed_sizes(head_dim):
    gates = []
    for tile in attention.ATTENTION_TILES:
        try:
            gates.append(attention.gate(tile=tile, sequence=1000, head_dim=head_dim, dtype=torch.bfloat16))
        except Exception as error:  # a tile that this GPU's shared memory cannot hold is no failure
            if "resource" not in str(error).lower():
                raise
    assert gates
    assert all(g.passed for g in gates), gates
