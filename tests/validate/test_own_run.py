"""A logged run as a row: the runs table reads back the model, cluster and layout that were given."""

import csv
import io

import pytest

from planner import catalog
from planner.profile.training_log import LogError, parse_log, steady
from planner.validate.own_run import COLUMNS, Place, csv_of_rows, row_of_run
from planner.validate.runs import packaged_rows, validate_row
from planner.validate.setup import setup_of_row

NANOGPT = [f"iter {i}: loss 9.71, time {v}.00ms, mfu 38.21%" for i, v in enumerate((9000, 410, 400, 420, 405))]
MEGATRON = (
    "  world_size ..................................... {}\n iteration 1/ 9 | elapsed time per iteration (ms): 4000.0 |"
)
RATE = '{"step": 1, "tokens_per_sec": 640000.0}'
SAMPLES = "global_step=1, RunningAvgSamplesPerSec=61.3, CurrSamplesPerSec=64.0, MemAllocated=11.2GB"


def row(text, *, model="llama3-8b", node="hgx-h100", nodes=4, used=8, **stated):
    log = parse_log(text.splitlines())
    return row_of_run(
        log=log,
        steps=steady(log),
        model=catalog.model(model),
        place=Place(catalog.node(node), nodes, used),
        stated={"seq": "8192", "gbs": "128", "precision": "bf16"} | stated,
        name="run-1",
        source="own",
        year=2025,
    )


def test_columns_are_those_of_the_packaged_table():
    assert list(COLUMNS) == list(packaged_rows()[0])
    assert list(row("\n".join(NANOGPT))) == list(COLUMNS)


def test_the_table_reads_back_what_was_given():
    found = row("\n".join(NANOGPT), tp="2", mbs="1", recompute="full", zero_stage="1", sp="yes")
    assert (found["metric"], found["unit"], float(found["measured"])) == ("step_time_s", "s", 0.4075)
    setup = setup_of_row(found)
    model = catalog.model("llama3-8b")
    for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "activation", "tied_embeddings"):
        assert getattr(setup.model, field) == getattr(model, field)
    layout = setup.layout
    assert (layout.tp, layout.dp, layout.micro_batch, layout.global_batch) == (2, 16, 1, 128)
    assert (layout.recompute, layout.zero_stage, layout.sequence_parallel) == ("full", 1, True)
    node = catalog.node("hgx-h100")
    assert setup.machine.network.node_bytes_per_s == pytest.approx(node.scaleout_bytes_per_s)
    assert setup.machine.network.scaleout == node.fabric
    assert "median of 4 step lines from line 2; P10 0.4, P90 0.42 (seconds); 1 warm-up lines dropped" in found["notes"]
    assert validate_row(index=0, row=found)["skipped"] is None


def test_experts_are_read_back():
    found = row("\n".join(NANOGPT), model="deepseek-v3", nodes=32)
    model, read = catalog.model("deepseek-v3"), setup_of_row(found).model
    for field in ("moe_experts", "moe_topk", "moe_ffn", "moe_shared_ffn", "moe_dense_layers", "ffn", "mla"):
        assert getattr(read, field) == getattr(model, field)


def test_rates_become_the_metric_of_the_table():
    found = row(RATE)
    assert (found["metric"], float(found["measured"])) == ("tokens_per_s_per_gpu", 640_000 / 32)
    found = row(SAMPLES)
    assert (found["metric"], float(found["measured"])) == ("step_time_s", 2.0)
    assert found["framework"] == "DeepSpeed"


def test_one_node_has_no_network():
    found = row("\n".join(NANOGPT), nodes=1, used=4)
    assert (found["n_gpus"], found["gpus_per_node"], found["scaleout"]) == ("4", "4", "none")
    assert found["scaleout_gbps_per_node"] == ""
    assert not {"scaleout", "n_gpus"} & set(validate_row(index=0, row=found)["assumed"])


def test_a_log_of_another_cluster_is_refused_with_its_line():
    with pytest.raises(LogError, match="64 GPUs, the cluster given 4 x 8 = 32") as problem:
        row(MEGATRON.format(64))
    assert problem.value.line == 1
    assert row(MEGATRON.format(32))["n_gpus"] == "32"


def test_a_missing_setting_names_its_option():
    with pytest.raises(LogError, match="--sequence"):
        row("\n".join(NANOGPT), seq="")


def test_a_model_whose_name_misleads_the_table_is_said():
    from dataclasses import replace

    log = parse_log(NANOGPT)
    odd = replace(catalog.model("llama3-8b"), name="house-model")
    found = row_of_run(
        log=log,
        steps=steady(log),
        model=odd,
        place=Place(catalog.node("hgx-h100"), 1, 8),
        stated={"seq": "8192", "gbs": "128"},
        name="a",
        source="own",
        year=2025,
    )
    assert "read as activation gelu, is swiglu" in found["notes"]


def test_csv_keeps_further_columns_and_quotes():
    rows = [row("\n".join(NANOGPT)) | {"notes": 'a, "b"\nc'}, {"id": "x", "mine": "1"}]
    back = list(csv.DictReader(io.StringIO(csv_of_rows(rows))))
    assert back[0]["notes"] == 'a, "b"\nc'
    assert back[1]["mine"] == "1"
    assert list(back[0]) == [*COLUMNS, "mine"]


def test_a_table_with_loose_cells_is_not_written_over():
    (loose,) = csv.DictReader(io.StringIO("id,gpu\na,b,c\n"))
    with pytest.raises(ValueError, match="row 1"):
        csv_of_rows([loose])
