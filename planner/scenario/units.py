"""Text with a unit becomes an SI number: `400 Gb/s`, `30d`, `2T`, `1.5 TB`."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

DURATIONS = {
    "s": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
    "w": 604800.0,
}
COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
RATES = {"gb/s": 1e9, "mb/s": 1e6, "tb/s": 1e12, "gbit/s": 1e9 / 8, "gbps": 1e9 / 8, "gib/s": 2.0**30}
_TEXT = re.compile(r"^\s*([-+]?[0-9][0-9_]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*$")


def _split(value: Any, kind: str) -> tuple[float, str] | None:
    if not isinstance(value, str):
        return None
    match = _TEXT.match(value)
    if match is None:
        raise ValueError(f"{value!r} is not a {kind}")
    return float(match.group(1).replace("_", "")), match.group(2)


def seconds(value: Any) -> Any:
    """`30d`, `3 h`, `45 min` or plain seconds."""
    parts = _split(value, "duration")
    if parts is None:
        return value
    if parts[1] and parts[1].lower() not in DURATIONS:
        raise ValueError(f"unknown unit {parts[1]!r} for a duration; use one of s, min, h, d, w")
    return parts[0] * DURATIONS.get(parts[1].lower(), 1.0)


def days(value: Any) -> Any:
    """Days: `30d`, `2w`, or plain days."""
    if isinstance(value, str) and _split(value, "duration")[1]:  # type: ignore[index]
        return seconds(value) / 86400.0
    return float(value) if isinstance(value, str) else value


def count(value: Any) -> Any:
    """`2T`, `15e12`, `300B` or a plain number."""
    parts = _split(value, "count")
    if parts is None:
        return value
    if parts[1].lower() not in COUNTS:
        raise ValueError(f"unknown unit {parts[1]!r} for a count; use one of K, M, B, T")
    return parts[0] * COUNTS[parts[1].lower()]


def bytes_per_s(value: Any) -> Any:
    """`400 Gb/s` is bits, `50 GB/s` is bytes; plain numbers are bytes per second."""
    parts = _split(value, "rate")
    if parts is None:
        return value
    text = parts[1]
    # One letter's case decides: b is bits, B is bytes.
    if re.fullmatch(r"[GMT]b/s", text):
        return parts[0] * {"G": 1e9, "M": 1e6, "T": 1e12}[text[0]] / 8
    if text and text.lower() not in RATES:
        raise ValueError(f"unknown unit {text!r} for a rate; use Gb/s (bits) or GB/s (bytes)")
    return parts[0] * RATES.get(text.lower(), 1.0)


Seconds = Annotated[float, BeforeValidator(seconds)]
Days = Annotated[float, BeforeValidator(days)]
Count = Annotated[float, BeforeValidator(count)]
BytesPerSecond = Annotated[float, BeforeValidator(bytes_per_s)]
