"""Training logs of each framework, as printed in the wild, cut short."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.profile.training_log import LogError, parse_log, steady

MEGATRON = (
    " [2025-03-04 10:11:{:02d}] iteration {:8d}/     500 | consumed samples: {:12d} | elapsed time per iteration (ms): "
    "{} | throughput per GPU (TFLOP/s/GPU): 402.1 | learning rate: 1.5E-04 | global batch size: {:5d} | lm loss: "
    "7.31E+00 | loss scale: 1.0 | grad norm: 1.02 | number of skipped iterations:   0 |"
)
NEMO = (
    "Training epoch 0, iteration {}/99 | lr: 1.4e-06 | global_batch_size: 128 | global_step: {} | "
    "reduced_train_loss: 11.03 | train_step_timing in s: {} | consumed_samples: 256"
)
NEMO_BAR = (
    "Epoch 0: :   3%|▎         | {}/1000 [03:45<2:01:22, v_num=, reduced_train_loss=9.1, global_step={}.0, "
    "train_step_timing in s={}]"
)
TITAN = (
    "\x1b[36m[rank0]:2025-01-02 03:04:05,678 - root - INFO - \x1b[31mstep: {:2d}  \x1b[32mloss:  7.9843  "
    "\x1b[33mmemory: 42.97GiB(45.24%)  \x1b[34mtps: {}  \x1b[36mtflops: 402.44  \x1b[35mmfu: 40.69%\x1b[39m"
)
NANOGPT = "iter {}: loss 9.7123, time {:.2f}ms, mfu 38.21%"
LLMC = (
    "step {:4d}/19560 | loss 7.58 (+1.2z)| norm 2.96 (-0.3z)| lr 6.40e-05 | {:.2f} ms | 61.2% bf16 MFU | "
    "1,519,345 tok/s"
)
MAXTEXT = (
    "completed step: {}, seconds: {}, TFLOP/s/device: 350.2, Tokens/s/device: 9012.3, total_weights: 65536, loss: 9.1"
)
DEEPSPEED = (
    "[2024-05-01 10:00:00,123] [INFO] [timer.py:258:stop] epoch=0/micro_step={0}/global_step={0}, "
    "RunningAvgSamplesPerSec=61.3, CurrSamplesPerSec={1}, MemAllocated=11.2GB, MaxMemAllocated=31.0GB"
)
FOUNDRY = (
    "[batch={0}/4800]:\n\t Train time/epoch: 0\n\t Train time/batch: {0}\n\t Train loss/train/total: 7.1\n"
    "\t Train throughput/batches_per_sec: 0.1402\n\t Train throughput/tokens_per_sec: 147011.2\n"
    "\t Train throughput/device/batches_per_sec: 0.0175\n\t Train throughput/device/tokens_per_sec: {1}"
)


def read(text):
    return parse_log(io.StringIO(text, newline="\n"))


def lines(form, values):
    return "\n".join(form.format(i, v) for i, v in enumerate(values, 1))


# The first value is warm-up, which a median over everything would not show; the second tells whether it was dropped.
SLOW_START = (9000.0, 410.0, 400.0, 420.0, 405.0)


@pytest.mark.parametrize(
    ("name", "text", "kind", "expected"),
    [
        ("NeMo", "\n".join(NEMO.format(i, i, v / 1e3) for i, v in enumerate(SLOW_START)), "seconds", 0.4075),
        ("NeMo", "\n".join(NEMO_BAR.format(i, i, v / 1e3) for i, v in enumerate(SLOW_START)), "seconds", 0.4075),
        ("torchtitan", lines(TITAN, ("912", "7,012", "7,020", "7,008", "7,016")), "tokens_per_s_per_gpu", 7014.0),
        ("nanoGPT", lines(NANOGPT, SLOW_START), "seconds", 0.4075),
        ("llm.c", lines(LLMC, SLOW_START), "seconds", 0.4075),
        ("MaxText", lines(MAXTEXT, [v / 1e3 for v in SLOW_START]), "seconds", 0.4075),
        ("DeepSpeed", lines(DEEPSPEED, (3.1, 61.0, 62.0, 63.0, 64.0)), "samples_per_s", 62.5),
        ("llm-foundry", lines(FOUNDRY, (10.0, 2297.0, 2301.0, 2299.0, 2303.0)), "tokens_per_s_per_gpu", 2300.0),
    ],
)
def test_every_framework(name, text, kind, expected):
    log = read("starting up\n\n" + text + "\nEvaluation done\n")
    found = steady(log)
    assert log.format == name
    assert found.kind == kind
    assert found.median == pytest.approx(expected)
    assert (found.kept, found.dropped, found.restarts) == (4, 1, 0)


def megatron(values, *, first=1, batch=256):
    return "\n".join(MEGATRON.format(i % 60, i, i * batch, v, batch) for i, v in enumerate(values, first))


def test_megatron_with_arguments_nans_and_a_line_cut_off():
    arguments = (
        "  global_batch_size ............................... 256\n"
        "  seq_length ...................................... 8192\n"
        "  tensor_model_parallel_size ...................... 8\n"
        "  virtual_pipeline_model_parallel_size ............ None\n"
        "  world_size ...................................... 64\n"
    )
    text = arguments + megatron(["60123.4", "4100.0", "N/A", "4120.0", "4110.0", "nan", "4130.0"]) + "\n"
    cut = megatron(["4111.0"], first=8)
    log = read(text + cut[: cut.index("elapsed time") + 10])
    assert {(k, v) for k, v, _ in log.settings} == {("gbs", 256), ("seq", 8192), ("tp", 8), ("n_gpus", 64)}
    assert ("n_gpus", 64, 5) in log.settings
    assert log.unusable == 2
    found = steady(log)
    assert found.median == pytest.approx(4.115)
    assert found.global_batch == 256
    assert found.line == 7


def test_megatron_deepspeed_prints_seconds():
    text = "\n".join(
        f" iteration {i}/ 1000 | consumed samples: 2048 | elapsed time per iteration (s): 104.{i} | lm loss: 7 |"
        for i in range(1, 7)
    )
    assert steady(read(text)).median == pytest.approx(104.45)


def test_after_a_restart_the_first_lines_are_warm_up_again():
    text = megatron([90000.0, 4000.0, 4000.0, 4000.0]) + "\nresuming\n" + megatron([80000.0] + [5000.0] * 3, first=3)
    found = steady(read(text))
    assert (found.restarts, found.dropped, found.kept) == (1, 2, 6)
    assert found.p90 < 6
    assert steady(read(text), warmup=3).median == pytest.approx(4.5)


def test_a_growing_batch_counts_at_its_last_size():
    text = megatron([1000.0] * 8, batch=64) + "\n" + megatron([4000.0] * 5, first=9, batch=256)
    found = steady(read(text))
    assert found.median == pytest.approx(4.0)
    assert found.global_batch == 256


def test_ranks_that_repeat_a_step_count_once():
    twice = "\n".join(f"{TITAN.format(i, 7000 + i)}\n{TITAN.format(i, 9000)}" for i in range(1, 6))
    assert steady(read(twice)).median == pytest.approx(7003.5)


def test_progress_bar_of_a_trainer_between_other_bars():
    shards = "Loading checkpoint shards: 100%|##########| 4/4 [00:40<00:00, 10.01s/it]\n"
    bar = "\r".join(
        f" {i}%|#         | {i}/1000 [0{i}:02<1:41:30,  {s}s/it]"
        for i, s in enumerate(("?", "30.1", "6.1", "6.2", "6.3", "6.2"))
    )
    fast = "\r".join(f" {i}%|#  | {i}/5000 [00:02<00:30, 171.5it/s]" for i in range(900, 930))
    log = read(
        shards + bar + "\n{'loss': 2.41, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}\n" + fast + "\n"
    )
    found = steady(log)
    assert log.format == "progress bar"
    assert found.median == pytest.approx(6.2)
    assert (found.kept, found.line) == (4, 2)


def test_summary_of_a_trainer_is_the_last_resort():
    text = (
        "{'train_runtime': 1234.5, 'train_samples_per_second': 12.3, 'train_steps_per_second': 0.25, 'train_loss': 2.1}"
    )
    log = read(text)
    assert log.format == "HF Trainer summary"
    assert steady(log).median == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("entry", "kind", "value"),
    [
        ({"step_time_s": 2.5}, "seconds", 2.5),
        ({"step_time_ms": 2500}, "seconds", 2.5),
        ({"throughput(tps)": 7012.5, "memory/max_active(GiB)": 3}, "tokens_per_s_per_gpu", 7012.5),
        ({"tokens_per_sec": 1.5e6}, "tokens_per_s", 1.5e6),
        ({"samples_per_second": 61.5}, "samples_per_s", 61.5),
    ],
)
def test_json_lines(entry, kind, value):
    text = "\n".join(json.dumps({"step": i, "loss": 2.0} | entry) for i in range(1, 8))
    log = read(text + '\n{"step": 8, "step_ti')
    assert log.format == "JSON lines"
    found = steady(log)
    assert (found.kind, found.kept) == (kind, 5)
    assert found.median == pytest.approx(value)


def test_a_log_without_a_figure_names_its_line():
    with pytest.raises(LogError, match="no step time in 2 lines"):
        read("hello\nworld\n")
    with pytest.raises(LogError, match="Megatron-LM") as problem:
        read("start\n" + megatron(["N/A", "nan"]))
    assert problem.value.line == 3
    with pytest.raises(LogError, match="leaves none") as problem:
        steady(read(megatron(["4000.0"] * 3)), warmup=3)
    assert problem.value.line == 3
    with pytest.raises(LogError):
        read("")


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=40))
def test_the_median_lies_within_the_values(values):
    found = steady(read(megatron([f"{v:.3f}" for v in values])))
    assert min(values) / 1e3 - 1e-6 <= found.median <= max(values) / 1e3 + 1e-6
    assert found.kept + found.dropped == len(values)
    assert found.kept >= 1


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text):
    try:
        found = steady(read(text))
    except LogError:
        return
    assert found.median > 0


def test_a_hostile_line_takes_no_time():
    import time

    start = time.perf_counter()
    for text in ("step: 1 loss:" * 20_000, "1/" * 500_000, "iteration 1/ 2 |" * 30_000, "a " * 500_000 + ".... 1"):
        with pytest.raises(LogError):
            read(text)
    assert time.perf_counter() - start < 5.0
