"""How a page shows bytes, time and money: chosen by the reader, applied in one place."""

from dataclasses import dataclass

from planner.catalog.facility import Rate, exchange_rate
from planner.report import units

MEMORY = ("GB", "GiB")
TIME = ("auto", "days", "hours")
CURRENCIES = ("USD", "EUR", "CNY")
SIGNS = {"USD": "$", "EUR": "€", "CNY": "¥"}
GIB_PER_GB = 1e9 / 2**30


DOLLAR = Rate("USD", 1.0, None, "definition")


@dataclass(frozen=True, slots=True)
class Shown:
    """A reader's choice of units.

    Attributes:
        memory: GB (1e9 bytes) or GiB (2^30 bytes).
        time: days, hours, or auto: hours below two days.
        rate: dollars per unit of the currency, with day and source.
    """

    memory: str = "GB"
    time: str = "auto"
    rate: Rate = DOLLAR

    @property
    def code(self) -> str:
        """The choice as text for an address; empty for the default."""
        return "" if self == Shown() else ".".join((self.memory, self.time, self.rate.currency))

    def bytes_value(self, value_gb: float) -> float:
        """A figure in GB in the unit chosen."""
        return value_gb * GIB_PER_GB if self.memory == "GiB" else value_gb

    def money_value(self, value_usd: float) -> float:
        """A figure in dollars in the currency chosen."""
        return value_usd / self.rate.usd_per_unit

    def time_value(self, value_days: float) -> float:
        """A figure in days in the unit of axes: hours where chosen, else days."""
        return 24 * value_days if self.time == "hours" else value_days

    def gigabytes(self, value_gb: float) -> str:
        """Bytes with one decimal."""
        return f"{self.bytes_value(value_gb):,.1f} {self.memory}"

    def money(self, value_usd: float) -> str:
        """Whole units of the currency, millions above one million."""
        text = units.dollars(self.money_value(value_usd))
        return text.replace("$", SIGNS[self.rate.currency])

    def days(self, value_days: float) -> str:
        """A duration."""
        if self.time == "hours":
            return f"{24 * value_days:,.1f} h"
        return f"{value_days:,.1f} d" if self.time == "days" else units.days(value_days)

    def unit_price(self, value_usd: float) -> str:
        """A price with two decimals."""
        return f"{self.money_value(value_usd):,.2f} {self.rate.currency}"


def shown(*, memory: str, time: str, currency: str) -> Shown:
    """A choice; what is unknown falls back to the default."""
    return Shown(
        memory=memory if memory in MEMORY else MEMORY[0],
        time=time if time in TIME else TIME[0],
        rate=exchange_rate(currency) if currency in CURRENCIES and currency != "USD" else DOLLAR,
    )


def of_code(code: str) -> Shown:
    """The choice of an address; the default where it is not one of ours."""
    parts = code.split(".") if len(code) < 40 else []
    return shown(memory=parts[0], time=parts[1], currency=parts[2]) if len(parts) == 3 else Shown()
