"""Forecast training runs before a GPU cluster is rented, bought or re-engineered."""

__version__ = "0.1.0"
SCHEMA_VERSION = 1
