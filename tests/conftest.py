"""Shared set-up: Triton kernels run interpreted on CPU, hypothesis is deterministic."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("ci")
