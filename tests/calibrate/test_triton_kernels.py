"""Triton kernels against their PyTorch references, interpreted on the CPU."""

import os
import sys

import pytest

torch = pytest.importorskip("torch", reason="calibrate needs torch")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("triton was imported before TRITON_INTERPRET=1 could be set", allow_module_level=True)
    os.environ["TRITON_INTERPRET"] = "1"  # read by triton when it is imported
pytest.importorskip("triton", reason="calibrate needs triton")

from calibrate.kernels import cross_entropy, rmsnorm, swiglu  # noqa: E402
from calibrate.kernels.gate import check, relative_error  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 64, 1000])
def test_rmsnorm_passes_its_gate(dtype, width):
    found = rmsnorm.gate(rows=5, width=width, dtype=dtype, device=DEVICE)
    assert found.passed, found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 1024, 1500])
def test_swiglu_passes_its_gate(dtype, width):
    found = swiglu.gate(rows=5, width=width, dtype=dtype, device=DEVICE)
    assert found.passed, found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [7, 4096, 5003, 9001])
def test_cross_entropy_passes_its_gate(dtype, vocab):
    for found in cross_entropy.gate(rows=3, vocab=vocab, dtype=dtype, device=DEVICE):
        assert found.passed, found


def test_cross_entropy_survives_large_logits():
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]], device=DEVICE)
    targets = torch.tensor([0, 1], device=DEVICE)
    loss, slope = cross_entropy.reference(logits, targets)
    got = cross_entropy.cross_entropy_(logits, targets)
    torch.testing.assert_close(got, loss)
    torch.testing.assert_close(logits, slope)


def test_a_wrong_result_does_not_pass():
    x = torch.randn(8, 64)
    assert check(name="same", got=x, reference=x).passed
    assert not check(name="off", got=x * 1.001, reference=x).passed
    assert not check(name="nan", got=x * float("nan"), reference=x).passed
    assert relative_error(got=x[:1], reference=x) == float("inf")
