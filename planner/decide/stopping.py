"""Where to stop: successes arrive by chance, each is worth a random gain, and the next one costs what it costs.

Carried model: successes arrive as a Poisson process; the logarithm of each gain is normal; while a baseline is immature
the gains also shrink as c/k with the number k of improvements already made, which makes the time `T_k = T_n (k/n)^-c`.
The forecast is the geometric mean of the two predictors, and their distance counts as uncertainty.
Stopping follows the one-step look-ahead rule, optimal where gains only fall (Chow, Robbins and Siegmund 1971, ch. 3).
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalog.tables import rows

WINDOW = 10  # gains and gaps that describe the present
IMMATURE_K, IMMATURE_GAIN_FRAC, IMMATURE_RUN = 20, 0.04, 5
DRAWS, SEED = 4000, 0
DAYS_PER_WEEK = 7.0
LOWER = 0.1  # quantile of the arrival rate on which to stop


class HistoryError(ValueError):
    """An improvement history that cannot be fitted."""


@dataclass(frozen=True, slots=True)
class History:
    """Best time after each improvement, oldest first; `days` since the first where every row is dated."""

    times_s: tuple[float, ...]
    days: tuple[float, ...] | None
    classes: tuple[str, ...]
    source: str

    def first(self, n: int) -> "History":
        """The history as it stood after `n` entries."""
        days = self.days[:n] if self.days is not None else None
        return History(self.times_s[:n], days, self.classes[:n], self.source)


@dataclass(frozen=True, slots=True)
class GainLaw:
    """What a history says about the next improvements.

    Attributes:
        n: improvements seen, the starting point included.
        c: exponent of the record process.
        mu_log: mean of the logarithm of a recent gain (itself a logarithm of time ratio).
        sigma_log: its standard deviation.
        per_week: recent successes a week, None for undated histories.
        per_week_low: lower confidence bound of `per_week` (Poisson, gamma quantile).
        immature: gains still follow c/k alone.
    """

    n: int
    last_s: float
    c: float
    mu_log: float
    sigma_log: float
    per_week: float | None
    per_week_low: float | None
    immature: bool

    @property
    def mean_gain(self) -> float:
        """Expected logarithmic gain of one more success of the present kind."""
        return math.exp(self.mu_log + self.sigma_log**2 / 2)

    def next_gain(self, ahead: int = 1) -> float:
        """Expected logarithmic gain of the `ahead`-th next success: mean of both predictors, c/k while immature."""
        decaying = self.c * math.log((self.n + ahead) / (self.n + ahead - 1))
        return decaying if self.immature else 0.5 * (decaying + self.mean_gain)


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next `n` improvements: time after them, gain over now, and weeks until they have come."""

    n: int
    time_s: tuple[float, float, float]
    gain_frac: tuple[float, float, float]
    weeks: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True)
class Cutoff:
    """Whether the next improvement pays, in money.

    Attributes:
        next_gain_usd: expected saving of the next success on the spend that it still applies to.
        next_cost_usd: expected cost until it comes.
        spend_break_even_usd: spend below which it does not pay.
        successes_worth_waiting_for: how many more before the expected gain pays no longer (None: no interior optimum).
        usd_per_tenth_second: cost of making the step or run 0.1 s faster.
    """

    stop: bool
    next_gain_usd: float
    next_cost_usd: float
    spend_break_even_usd: float
    successes_worth_waiting_for: int | None
    usd_per_tenth_second: float


def _days(values: Sequence[str]) -> tuple[float, ...] | None:
    try:
        days = [date.fromisoformat(v) for v in values]
    except ValueError:
        return None
    return tuple(float((d - days[0]).days) for d in days)


def read_history(path: Path | None = None, *, track: str = "small_3.28") -> History:
    """The packaged speedrun history, or a CSV with a column `time_s` and, where known, `date` and `class_major`.

    Rows with `is_retiming` 1 measure the last entry again: earlier times are scaled to them.

    Raises:
        HistoryError: the file cannot be read, or holds fewer than three usable rows.
    """
    if path is None:
        table: Sequence[dict[str, str]] = [r for r in rows("speedrun_records.csv") if r["track"] == track]
        source = "packaged speedrun history (KellerJordan/modded-nanogpt)"
    else:
        try:
            table = list(csv.DictReader(path.read_text("utf-8").splitlines()))
        except (OSError, UnicodeDecodeError) as error:
            raise HistoryError(f"cannot read {path}: {error}") from error
        source = str(path)
    kept: list[tuple[float, str, str]] = []
    for number, row in enumerate(table, start=2):
        if not (row.get("time_s") or "").strip():
            continue
        try:
            seconds = float(row["time_s"])
        except ValueError as error:
            raise HistoryError(f"{source}:{number}: time_s {row['time_s']!r} is not a number") from error
        if not (math.isfinite(seconds) and seconds > 0):
            raise HistoryError(f"{source}:{number}: time_s must be positive")
        if row.get("is_retiming") == "1" and kept:
            # The same code on another day: everything before moves with it, no gain and no loss.
            kept = [(t * seconds / kept[-1][0], day, cls) for t, day, cls in kept]
            continue
        kept.append((seconds, row.get("date") or "", row.get("class_major") or ""))
    if len(kept) < 3:
        raise HistoryError(f"{source} holds {len(kept)} times; at least 3 are needed (column time_s)")
    return History(tuple(k[0] for k in kept), _days([k[1] for k in kept]), tuple(k[2] for k in kept), source)


def log_gains(history: History) -> np.ndarray[Any, Any]:
    """Logarithm of the time before over the time after, one for each improvement. Shape (n - 1,)."""
    gains: np.ndarray[Any, Any] = -np.diff(np.log(np.asarray(history.times_s)))
    return gains


def _record_exponent(times_s: Sequence[float]) -> float:
    """`c` of `T_k = T_n (k/n)^-c`, least absolute deviation over all entries, anchored at the last one."""
    from scipy.optimize import minimize_scalar

    n = len(times_s)
    x = np.log(np.arange(1, n + 1) / n)
    y = np.log(np.asarray(times_s) / times_s[-1])
    found = minimize_scalar(lambda c: float(np.abs(y + c * x).sum()), bounds=(0.0, 3.0), method="bounded")
    return float(found.x)


def _arrivals(days: Sequence[float] | None) -> tuple[float | None, float | None]:
    from scipy.stats import gamma

    if days is None or len(days) < 3:
        return None, None
    recent = days[-(WINDOW + 1) :]
    weeks = max(recent[-1] - recent[0], 1.0) / DAYS_PER_WEEK
    seen = len(recent) - 1
    return seen / weeks, float(gamma.ppf(LOWER, seen)) / weeks


def fit_law(history: History) -> GainLaw:
    """Fit exponent, log-normal gain and arrival rate to a history.

    Gains of zero or less say nothing about the size of a success; they lower the mean by their share instead.

    Raises:
        HistoryError: no improvement among the recent entries.
    """
    from scipy.stats import lognorm

    gains = log_gains(history)
    recent = gains[-WINDOW:]
    wins = recent[recent > 0]
    if not len(wins):
        raise HistoryError(f"{history.source}: none of the last {len(recent)} entries is an improvement")
    if len(wins) > 1:
        sigma, _, scale = lognorm.fit(wins, floc=0)
    else:
        sigma, scale = 0.72, float(wins[0])  # usual spread of speedrun gains where one gain cannot tell
    mu = math.log(scale) + math.log(len(wins) / len(recent))
    n = len(history.times_s)
    latest = gains[-IMMATURE_RUN:]
    per_week, low = _arrivals(history.days)
    return GainLaw(
        n=n,
        last_s=history.times_s[-1],
        c=_record_exponent(history.times_s),
        mu_log=mu,
        sigma_log=float(sigma),
        per_week=per_week,
        per_week_low=low,
        immature=n < IMMATURE_K or bool(len(latest) == IMMATURE_RUN and np.all(latest > IMMATURE_GAIN_FRAC)),
    )


def predicted_time_s(*, law: GainLaw, ahead: int) -> float:
    """Expected time after `ahead` more successes."""
    return law.last_s * math.exp(-sum(law.next_gain(i) for i in range(1, ahead + 1)))


def outlook(*, law: GainLaw, ahead: int, draws: int = DRAWS, seed: int = SEED) -> Outlook:
    """Time, gain and weeks of the next `ahead` successes, P10, P50 and P90 by simulation.

    Each draw takes one of the two predictors at random (they are weighed alike), gains around it, and arrivals whose
    rate is itself uncertain (gamma over the recent gaps).
    """
    rng = np.random.default_rng(seed)
    k = law.n + np.arange(ahead)
    decaying = law.c * np.log((k + 1) / k)
    stationary = np.full(ahead, law.mean_gain)
    pick = np.ones(draws, dtype=bool) if law.immature else rng.random(draws) < 0.5
    mean = np.where(pick[:, None], decaying, stationary)
    # A mean of ten gains is itself uncertain by their spread over the root of ten.
    mean = mean * np.exp(law.sigma_log / math.sqrt(WINDOW) * rng.standard_normal((draws, 1)))
    gains = mean * np.exp(law.sigma_log * rng.standard_normal((draws, ahead)) - law.sigma_log**2 / 2)
    total = gains.sum(axis=1)
    low, mid, high = (float(q) for q in np.quantile(total, (0.1, 0.5, 0.9)))
    weeks = None
    if law.per_week is not None:
        rate = rng.gamma(WINDOW, law.per_week / WINDOW, draws)
        waits = rng.gamma(ahead, 1.0, draws) / rate
        a, b, c = (float(q) for q in np.quantile(waits, (0.1, 0.5, 0.9)))
        weeks = (a, b, c)
    return Outlook(
        n=ahead,
        time_s=(law.last_s * math.exp(-high), law.last_s * math.exp(-mid), law.last_s * math.exp(-low)),
        gain_frac=(-math.expm1(-low), -math.expm1(-mid), -math.expm1(-high)),
        weeks=weeks,
    )


def cutoff(
    *, law: GainLaw, spend_usd: float, usd_per_week: float, per_week: float | None = None, lower: bool = True
) -> Cutoff:
    """The stopping rule in money: go on while `V g r > C`.

    Args:
        law: fitted gains.
        spend_usd: V, remaining spend that a speed-up still applies to.
        usd_per_week: C, cost of a week of the work, test hours included.
        per_week: successes a week of your own team; the history's by default.
        lower: judge on the lower confidence bound of the history's rate, not on its mean.

    Raises:
        HistoryError: no rate is known.
    """
    rate = per_week or (law.per_week_low if lower else law.per_week)
    if not rate:
        raise HistoryError("the history has no dates: give successes a week")
    cost = usd_per_week / rate

    def gain(ahead: int) -> float:
        return spend_usd * -math.expm1(-law.next_gain(ahead))

    now = -math.expm1(-law.next_gain(1))
    limit = 10_000
    # One-step look-ahead: gains fall with k, so the first that does not pay ends the work.
    worth = next((i - 1 for i in range(1, limit) if gain(i) <= cost), None)
    return Cutoff(
        stop=gain(1) <= cost,
        next_gain_usd=gain(1),
        next_cost_usd=cost,
        spend_break_even_usd=cost / now if now > 0 else math.inf,
        successes_worth_waiting_for=worth,
        usd_per_tenth_second=cost * 0.1 / (law.last_s * now) if now > 0 else math.inf,
    )


@dataclass(frozen=True, slots=True)
class OriginError:
    """Absolute errors in percent of one rolling origin, beside those of standing still."""

    origin: int
    error_pct: float
    persistence_pct: float
    inside: bool


def rolling_origin(*, history: History, start: int = 25, ahead: int = 10) -> list[OriginError]:
    """Fit on the first k entries, forecast entry k + ahead, for every k from `start` on."""
    out = []
    for k in range(start, len(history.times_s) - ahead + 1):
        law = fit_law(history.first(k))
        actual = history.times_s[k + ahead - 1]
        seen = outlook(law=law, ahead=ahead, draws=1000)
        out.append(
            OriginError(
                origin=k,
                error_pct=100 * abs(predicted_time_s(law=law, ahead=ahead) / actual - 1),
                persistence_pct=100 * abs(law.last_s / actual - 1),
                inside=seen.time_s[0] <= actual <= seen.time_s[2],
            )
        )
    return out


def switch_after(
    *, incremental: Sequence[tuple[float, float]], structural_gain: float, structural_usd: float
) -> int | None:
    """After how many incremental steps structural work buys more per money; None = not within the given steps.

    Args:
        incremental: (expected logarithmic gain, cost in USD) of the incremental steps in the order of work.
        structural_gain: expected logarithmic gain of one structural attempt, chance of success included.
        structural_usd: its cost, pilot runs included.
    """
    if structural_usd <= 0:
        return 0 if structural_gain > 0 else None
    for index, (gain, usd) in enumerate(incremental):
        if gain / max(usd, 1.0) < structural_gain / structural_usd:
            return index
    return None
