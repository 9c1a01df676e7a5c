"""The run clock: failures, recovery, checkpoints."""
