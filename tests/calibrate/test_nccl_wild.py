"""nccl-tests output as people post it: old and new columns, N/A, several tables, launcher words, cut files."""

import json

import pytest
from typer.testing import CliRunner

from calibrate.cli import main
from planner.profile.fabric_file import gpu_name
from planner.profile.load import load_profile
from planner.profile.nccl import NcclError, read_nccl


def ranks(n, per_node, device="NVIDIA H100 80GB HBM3", group=True):
    word = "Group  0 " if group else ""
    lines = [f"#  Rank {i:2d} {word}Pid 6899 on node{i // per_node} device {i % per_node} [0000:04:00] {device}"
             for i in range(n)]  # fmt: skip
    return "\n".join(["# Using devices", *lines]) + "\n"


NEW_HEAD = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"  # noqa: E501
OLD_HEAD = (
    "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
)
OLDEST_GATHER = "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error\n"


def one(log):
    assert len({(s["op"], s["shape"]["ranks"], s["shape"]["nodes"]) for s in log.samples}) == 1
    return log.samples[0]


def test_old_columns_without_root():
    row = "   134217728      33554432   float     sum    12345   10.87   16.31  1e-07  1.2e+06   0.11    0.17  1e-07\n"
    log = read_nccl("all_reduce_perf\n" + ranks(4, 4, "Tesla V100-SXM3-32GB", group=False) + OLD_HEAD + row)
    assert one(log)["shape"] == {"bytes": 134217728, "ranks": 4, "nodes": 1}
    assert [s["p50_s"] for s in log.samples] == [pytest.approx(12345e-6), pytest.approx(1.2)]
    assert log.device == "Tesla V100-SXM3-32GB"


def test_old_gather_has_no_reduction_column():
    row = "   134217728   4194304   float   800.5   167.66   146.70  0e+00  790.1  169.87  148.63  0e+00\n"
    log = read_nccl("all_gather_perf\n" + ranks(8, 8) + OLDEST_GATHER + row)
    assert [s["p50_s"] for s in log.samples] == [pytest.approx(800.5e-6), pytest.approx(790.1e-6)]


def test_not_available_values_and_blank_sides():
    rows = (
        " 1048576 262144 float none -1 57.99 18.08 15.82 0 57.56 18.22 15.94 N/A\n"
        " 2097152 524288 float none -1 77.99 26.89 23.53 0 N/A N/A N/A N/A\n"
        " 4194304 1048576 bfloat16 none -1 90.1 46.55 40.73 N/A 2026-01-01 10:00:00\n"
    )
    log = read_nccl("alltoall_perf\n" + ranks(8, 8) + NEW_HEAD + rows)
    assert [(s["shape"]["bytes"], s["layout"]) for s in log.samples] == [
        (1048576, "out_of_place"), (1048576, "in_place"), (2097152, "out_of_place"), (4194304, "out_of_place"),
    ]  # fmt: skip
    assert one(log)["op"] == "all_to_all"


def test_launcher_words_and_other_messages_stand_between():
    rows = (
        "[1,0]<stdout>:     1048576  262144  float  sum  -1  40.00  26.21  49.14  0  39.50  26.55  49.78  0\n"
        "node1:4097:4097 [0] NCCL INFO comm 0x7f57 rank 0 nranks 16 cudaDev 0 - Init COMPLETE\n"
        "nccl-worker-0 |     2097152  524288  float  sum  -1  60.00  34.95  65.54  0  59.50  35.25  66.09  0\n"
    )
    log = read_nccl("$ mpirun -np 16 all_reduce_perf_mpi -b 1M\n" + ranks(16, 8) + NEW_HEAD + rows)
    assert [s["shape"]["bytes"] for s in log.samples] == [1048576, 1048576, 2097152, 2097152]
    assert one(log)["shape"]["nodes"] == 2


def test_several_tables_each_with_its_own_test_and_ranks():
    row = " 1048576 262144 float sum -1 40.00 26.21 45.87 0 39.50 26.55 46.46 0\n"
    parts = []
    for test, count in (("all_reduce", 8), ("reduce_scatter", 16)):
        parts += [f"# Collective test starting: {test}_perf\n# nThread 1\n", ranks(count, 8), NEW_HEAD, row]
        parts.append(f"# Collective test concluded: {test}_perf\n")
    text = "".join(parts)
    log = read_nccl(text)
    assert [(s["op"], s["shape"]["ranks"], s["shape"]["nodes"]) for s in log.samples[::2]] == [
        ("all_reduce", 8, 1), ("reduce_scatter", 16, 2),
    ]  # fmt: skip


def test_a_bare_table_tells_its_ranks_by_its_bandwidths():
    row = "  8589934592  2147483648  float  sum  -1  45678.0  188.05  352.60  0  45612.0  188.33  353.11  0\n"
    assert one(read_nccl(NEW_HEAD + row))["shape"]["ranks"] == 16
    assert one(read_nccl(NEW_HEAD + row))["op"] == "all_reduce"


def test_cut_files_keep_what_is_whole_and_name_the_line():
    good = " 1048576 262144 float sum -1 40.00 26.21 45.87 0 39.50 26.55 46.46 0\n"
    text = "all_reduce_perf\n" + ranks(8, 8) + NEW_HEAD + good + " 2097152 524288 float sum -1 60.0"
    log = read_nccl(text)
    assert len(log.samples) == 2
    assert log.notes == [f"line {len(text.splitlines())}: the row of 2097152 bytes is cut off or holds no time"]
    cut = read_nccl(text[: text.rindex("524288") + 3])
    assert "cut off" in cut.notes[0]


@pytest.mark.parametrize(("text", "why"), [
    ("all_reduce_perf\n" + ranks(8, 8) + NEW_HEAD + " 1048576 262144 float sum -1 40", r"line \d+"),
    (NEW_HEAD.replace(" time ", " cputime "), r"line 1: times of the processor"),
    (ranks(2, 1) + NEW_HEAD + " 1048576 262144 float sum -1 40.00 26.21 26.21 0\n", r"line 1: .*--op"),
    ("broadcast_perf\n" + NEW_HEAD + " 1048576 262144 float none 0 40.00 26.21 26.21 0\n", r"--ranks"),
    ('{"results": [\n  {"size": 8,\n', r"line \d+: not the JSON"),
])  # fmt: skip
def test_errors_name_the_line(text, why):
    with pytest.raises(NcclError, match=why):
        read_nccl(text)


def test_json_of_newer_versions():
    devices = [{"rank": i, "group": 0, "hostname": f"n{i // 8}", "device_info": "NVIDIA H200"} for i in range(16)]
    rows = [
        {"size": 1048576, "type": "float", "out_of_place": {"time": 40.0}, "in_place": {"time": 39.0, "nwrong": None}},
        {"size": 2097152, "type": "float", "out_of_place": None, "in_place": {"time": None}},
    ]
    data = {"args": ["./all_reduce_perf", "-b", "8"], "config": {"devices": devices}, "results": rows}
    log = read_nccl(json.dumps(data))
    assert one(log)["shape"] == {"bytes": 1048576, "ranks": 16, "nodes": 2}
    assert log.device == "NVIDIA H200"
    assert log.notes == ["result 1: no time in place"]


def test_the_command_writes_a_fabric_file(tmp_path):
    row = " 1048576 262144 float sum -1 40.00 26.21 45.87 0 39.50 26.55 46.46 N/A\n"
    log, out = tmp_path / "x.log", tmp_path / "x.json"
    log.write_text("all_reduce_perf\n" + ranks(8, 8) + NEW_HEAD + row)
    done = CliRunner().invoke(main, ["import", "nccl-tests", str(log), "--out", str(out)])
    assert done.exit_code == 0
    profile = load_profile(str(out))
    assert profile.device.gpu == "H100-SXM"
    assert len(profile.samples) == 2


@pytest.mark.parametrize(("text", "name"), [
    ("NVIDIA H100 80GB HBM3", "H100-SXM"), ("NVIDIA H200", "H200-SXM"), ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
    ("No Such Card", None),
])  # fmt: skip
def test_devices_as_drivers_print_them(text, name):
    assert gpu_name(text) == name
