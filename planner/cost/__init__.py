"""Seconds: what an operator, a launch, a collective or a transfer costs, with its label and spread."""
