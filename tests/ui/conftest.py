"""Files that people send, as fixtures."""

import pytest

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "_name_or_path": "lab/../../My Model 1B",
}  # fmt: skip
LOG = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 4(factor)
# Rank  0 Group  0 Pid 1 on node0 device  0 [0x18] NVIDIA H100 80GB HBM3
# Rank  1 Group  0 Pid 2 on node0 device  1 [0x2a] NVIDIA H100 80GB HBM3
# Rank  2 Group  0 Pid 3 on node1 device  0 [0x18] NVIDIA H100 80GB HBM3
# Rank  3 Group  0 Pid 4 on node1 device  1 [0x2a] NVIDIA H100 80GB HBM3
# all_reduce_perf
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    900.0    1.17    1.75      0    900.0    1.17    1.75      0
    16777216       4194304     float     sum      -1   9000.0    1.86    2.80      0   9000.0    1.86    2.80      0
  1073741824     268435456     float     sum      -1 500000.0    2.15    3.22      0 500000.0    2.15    3.22      0
"""


@pytest.fixture
def config():
    """A Hugging Face config.json with a hostile name in it."""
    return dict(CONFIG)


@pytest.fixture
def log():
    """Output of nccl-tests on a slow network."""
    return LOG
