"""Rental prices and their age."""

from datetime import date

STALE_DAYS = 90


def price_warnings(*, day: str | None, today: date, what: str) -> tuple[str, ...]:
    """A warning where a price has no date or is older than 90 days."""
    if not day:
        return (f"{what} carries no date",)
    parts = [int(x) for x in day.split("-") if x.isdigit()]
    if not parts:
        return (f"{what} carries no readable date ({day})",)
    year, month, at = [*parts, 6, 15][:3] if len(parts) == 1 else [*parts, 15][:3]
    age = (today - date(year, month, at)).days
    return (f"{what} is {age} days old ({day})",) if age > STALE_DAYS else ()
