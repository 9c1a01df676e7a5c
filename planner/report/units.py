"""Numbers as people read them: one formatter a unit."""


def seconds(value_s: float) -> str:
    """Seconds with three significant digits, milliseconds below one."""
    return f"{value_s * 1e3:.3g} ms" if abs(value_s) < 1 else f"{value_s:.3g} s"


def percent(value_frac: float) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * value_frac:.1f} %"


def gigabytes(value_gb: float) -> str:
    """1e9 bytes with one decimal."""
    return f"{value_gb:,.1f} GB"


def dollars(value_usd: float) -> str:
    """Whole US dollars, millions above one million."""
    return f"${value_usd / 1e6:,.2f} M" if abs(value_usd) >= 1e6 else f"${value_usd:,.0f}"


def days(value_days: float) -> str:
    """Days with one decimal, hours below two days."""
    return f"{value_days * 24:,.1f} h" if value_days < 2 else f"{value_days:,.1f} d"


def whole(value: float) -> str:
    """A whole number with thousands separators."""
    return f"{value:,.0f}"
