"""Choices: many forecasts in, one answer with its reasons out."""
