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

from calibrate.kernels import adamw, attention, cross_entropy, pack, product, rmsnorm, rotary, swiglu  # noqa: E402
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [2, 64, 96])
def test_rotary_passes_its_gate(dtype, head_dim):
    found = rotary.gate(sequence=5, heads=3, head_dim=head_dim, dtype=dtype, device=DEVICE)
    assert found.passed, found


def test_rotary_keeps_lengths_and_leaves_the_first_token():
    x = torch.randn(1, 4, 2, 8, device=DEVICE)
    cos, sin = rotary.angles(sequence=4, head_dim=8, device=DEVICE)
    y = rotary.rotary(x, cos, sin)
    torch.testing.assert_close(y[:, 0], x[:, 0])
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    assert not torch.allclose(y[:, 3], x[:, 3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("elements", [1, 1024, 5000])
def test_adamw_passes_its_gates(dtype, elements):
    for found in adamw.gate(elements=elements, dtype=dtype, device=DEVICE):
        assert found.passed, found


def test_adamw_agrees_with_pytorch():
    weight = torch.nn.Parameter(torch.randn(300, device=DEVICE))
    ours, first, second = weight.detach().clone(), torch.zeros(300, device=DEVICE), torch.zeros(300, device=DEVICE)
    update = torch.optim.AdamW([weight], lr=1e-2, betas=adamw.BETAS, eps=adamw.EPS, weight_decay=adamw.DECAY)
    for step in (1, 2, 3):
        weight.grad = torch.randn(300, device=DEVICE)
        adamw.adamw_(ours, weight.grad, first, second, rate=1e-2, step=step)
        update.step()
    torch.testing.assert_close(ours, weight.detach())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("elements", [1, 256, 5000])
def test_packing_passes_its_gates(dtype, elements):
    for found in pack.gate(elements=elements, dtype=dtype, device=DEVICE):
        assert found.passed, found


def test_packing_of_nothing_but_zeros_is_zeros():
    q, scales = pack.pack(torch.zeros(300, device=DEVICE))
    assert not q.any()
    assert not pack.unpack(q, scales).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tile", [product.TILES[0], product.TILES[3]], ids=lambda t: t.name)
@pytest.mark.parametrize("groups", [1, 4])
def test_products_pass_their_gate(dtype, tile, groups):
    found = product.gate(tile=tile, groups=groups, dtype=dtype, device=DEVICE)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tile", [attention.ATTENTION_TILES[0], attention.ATTENTION_TILES[1]], ids=lambda t: t.name)
@pytest.mark.parametrize(("heads", "kv_heads", "sequence"), [(4, 2, 150), (2, 2, 64), (3, 1, 1)])
def test_attention_passes_its_gate(dtype, tile, heads, kv_heads, sequence):
    sizes = {"heads": heads, "kv_heads": kv_heads, "sequence": sequence, "head_dim": 16}
    found = attention.gate(tile=tile, dtype=dtype, device=DEVICE, **sizes)
    assert found.passed, found


def test_attention_sees_nothing_later():
    q, k, v = (torch.randn(1, 2, 40, 16, device=DEVICE) for _ in range(3))
    first = attention.attention(q, k, v, tile=attention.ATTENTION_TILES[0])
    k[:, :, 20:], v[:, :, 20:] = 7.0, -7.0
    second = attention.attention(q, k, v, tile=attention.ATTENTION_TILES[0])
    assert torch.equal(first[:, :, :20], second[:, :, :20])
    assert not torch.equal(first[:, :, 20:], second[:, :, 20:])
