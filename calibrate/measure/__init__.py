"""Rooms are described in docs."""
