"""What the optimisations that a strategy names did to a forecast, or why they could not act."""

from dataclasses import dataclass

from planner.catalog.optimisations import Optimisation, optimisation
from planner.workload.transforms import CHANGES, Stack

LEAST_GAIN_FRAC = 1e-3
NOT_SIMULATED = "not simulated"
SIMULATED = frozenset({"layout", "software", "model", "machine"})
# Conditions of the catalogue in words: what the stack would have to be.
CONDITION_WORDS = {
    "compiled": "a graph compiler",
    "dense": "a dense model",
    "moe": "a mixture of experts",
    "static": "static shapes",
    "padding": "padded sequences",
    "attention:unfused": "unfused attention (here it is fused already)",
    "attention:fused": "fused attention that is not the newest kernel yet",
    "pointwise:eager": "eager pointwise kernels (here they are fused already)",
    "pointwise:eager/fused": "pointwise kernels",
    "loss:eager": "an eager loss (here it is fused already)",
    "optimizer:unfused": "an optimizer of many kernels: optimizer adamw_foreach or adamw_loop",
    "optimizer:full": "full-width optimizer states",
    "vocab:odd": "a vocabulary that is no multiple of 128",
    "routing:eager": "eager routing of experts (here it is fused already)",
    "older": "software older than the newest of its framework",
    "overlap:none": "a gradient exchange that is not overlapped yet",
    "prefetch:none": "sharded parameters that are not prefetched yet",
    "sequence:whole": "norms and residuals that are not split yet",
    "tp_overlap:none": "tensor-parallel collectives that are not overlapped yet",
    "window:none": "attention over the whole sequence",
    "precision:amp": "autocast (precision: amp)",
    "precision:fp32": "precision fp32",
    "precision:fp32/tf32": "precision fp32 or tf32",
    "precision:bf16": "precision bf16 or fp16",
    "recompute:none": "no recompute",
    "recompute:none/selective": "less than full recompute",
    "vpp:1": "a pipeline that is not interleaved",
    "zero:3": "fully sharded data parallelism (zero_stage 3)",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """One named optimisation on top of those before it.

    Attributes:
        before_s: seconds for the work of one step before it, tokens and steps-to-target factors included.
        after_s: the same after it; equal where it acts on the run alone or not at all.
        applied: whether its conditions hold.
        by: how its effect was found.
        note: what a person should know; blank when there is nothing.
    """

    key: str
    applied: bool
    before_s: float
    after_s: float
    by: str
    note: str = ""

    @property
    def gain_frac(self) -> float:
        """Share of the time before that it saves, negative where it costs."""
        return 1 - self.after_s / self.before_s

    @property
    def entry(self) -> Optimisation:
        """Its row of the catalogue."""
        return optimisation(self.key)


@dataclass(frozen=True, slots=True)
class Optimised:
    """A stack after its optimisations, and what each did, in the order in which they were applied."""

    stack: Stack
    effects: tuple[Effect, ...]

    @property
    def applied(self) -> tuple[str, ...]:
        """Keys that act."""
        return tuple(e.key for e in self.effects if e.applied)

    @property
    def work_factor(self) -> float:
        """Steps for the same result over those of the plain strategy: tokens times steps to target."""
        return self.stack.tokens_factor * self.stack.steps_factor


def by_words(key: str) -> str:
    """How the effect of an optimisation is found.

    Raises:
        CatalogError: an unknown key.
    """
    entry = optimisation(key)
    if entry.modelled_by == "run":
        return "run clock"
    if entry.modelled_by == "pilot":
        return f"usual factor of the catalogue on steps to target ({entry.factor_typical:g}), half of it kept"
    if entry.modelled_by == "share" and key in CHANGES:
        return "a rule on a simulated share of the step"
    if entry.modelled_by in SIMULATED and (key in CHANGES or key == "layout_search"):
        return "simulated"
    usual = f"{entry.factor_typical:g}, {entry.factor_best:g} to {entry.factor_worst:g}"
    return f"usual factor of the catalogue ({usual}; {entry.basis}), {NOT_SIMULATED}"


def words_of(condition: str) -> str:
    """A condition of `transforms.unmet` in words."""
    kind, _, rest = condition.partition(":")
    if kind == "conflict":
        return f"it excludes {rest}, which is applied"
    if kind == "already":
        return "it is applied already"
    if kind == "arch":
        return f"it needs a GPU of generation {rest} or later"
    if condition in CONDITION_WORDS:
        return f"it needs {CONDITION_WORDS[condition]}"
    return f"it needs {condition.replace('>', ' above ').replace('<', ' below ')}"


def note_of(*, entry: Optimisation, gain_frac: float) -> str:
    """What a person should know of an optimisation that acts."""
    if entry.modelled_by == "run":
        return ""
    if abs(gain_frac) < LEAST_GAIN_FRAC:
        return "changes nothing in this scenario"
    words = [f"its usual factor, {NOT_SIMULATED}"] if by_words(entry.key).endswith(NOT_SIMULATED) else []
    if gain_frac < 0:
        saves = "; it saves memory" if ("memory", "-") in entry.mechanism else ""
        words.append(f"makes the step {-100 * gain_frac:.1f} % slower here{saves}")
    if entry.modelled_by == "pilot":
        words.append("only a pilot run tells what it is worth")
    elif entry.quality_may_change:
        words.append("what is learnt may change: prove it in a pilot run")
    return "; ".join(words)
