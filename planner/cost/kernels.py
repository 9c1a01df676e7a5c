"""placeholder"""

from planner import catalog
from planner.cost.types import Estimate


def _rate(gpu, dtype):
    s = {
        "A100-80-SXM": 242e12,
        "A100-40-SXM": 242e12,
        "H100-SXM": 650e12,
        "H100-SXM-96-500W": 540e12,
        "H200-SXM": 690e12,
        "B200-SXM": 1280e12,
        "GB200": 1600e12,
        "GB300": 1850e12,
        "B300-SXM": 1600e12,
    }
    g = catalog.gpu(gpu)
    base = s.get(g.name, 0.7 * (g.peak_flops.get("bf16") or g.peak_flops.get("fp16")))
    return base * {"fp8": 1.85, "mxfp8": 1.72, "nvfp4": 2.96, "fp8_rowwise": 1.4, "fp32": 0.08, "tf32": 0.5}.get(
        dtype, 1.0
    )


def kernel_floor_s(*, gpu):
    return Estimate(3e-6, "published", 0.1, "")


def memory_bound_s(*, gpu, nbytes):
    return Estimate(3e-6 + nbytes / (0.87 * catalog.gpu(gpu).mem_bytes_per_s), "published", 0.1, "")


def matmul_s(*, gpu, dtype, m, n, k, batch=1, state="hot"):
    K0 = {"Ampere": 120, "Hopper": 240}.get(catalog.gpu(gpu).arch, 400)
    e = 1 / ((1 + K0 / k) * (1 + 40 / m) * (1 + 40 / n))
    b = 2 * (m * k + n * k + m * n) * batch
    return Estimate(
        3e-6 + max(2 * m * n * k * batch / (_rate(gpu, dtype) * e), b / (0.87 * catalog.gpu(gpu).mem_bytes_per_s)),
        "published",
        0.06,
        "",
    )


def grouped_matmul_s(*, gpu, dtype, groups, m_per_group, n, k, state="hot"):
    x = matmul_s(gpu=gpu, dtype=dtype, m=max(1, m_per_group * groups), n=n, k=k, state=state)
    return Estimate(x.seconds * 1.15 * (1 + 200 / max(1, m_per_group)), "transferred", 0.2, "")


def attention_s(
    *, gpu, dtype, batch, heads, kv_heads, seq_q, seq_kv, head_dim, causal, direction="fwd", implementation="flash2"
):
    r = {"Ampere": (175, 150), "Hopper": (560, 460)}.get(catalog.gpu(gpu).arch, (1000, 780))[direction == "bwd"] * 1e12
    r *= (
        seq_q
        / (seq_q + 500)
        * {"flash1": 0.6, "flash2": 0.65 if catalog.gpu(gpu).arch != "Ampere" else 1.0}.get(implementation, 1.0)
        * (0.78 if head_dim <= 64 else 1)
    )
    fl = 4 * batch * heads * seq_q * seq_kv * head_dim * (0.5 if causal else 1) * (2.5 if direction == "bwd" else 1)
    return Estimate(5e-6 + fl / r, "published", 0.1, "")


def optimizer_s(*, gpu, params, bytes_per_param):
    return Estimate(1e-5 + params * bytes_per_param / (0.8 * catalog.gpu(gpu).mem_bytes_per_s), "published", 0.1, "")
