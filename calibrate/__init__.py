"""Measures the local GPU and writes a profile that the planner reads."""
