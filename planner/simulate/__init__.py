"""The step and the run in time: order of work, durations, and two evaluators of the same plan."""
