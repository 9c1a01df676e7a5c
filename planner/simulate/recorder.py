"""An explicit recorder of what ran when; evaluators write to it only when they are given one."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """Something that occupied a track for a while.

    Attributes:
        track: "group/stream", such as "stage 3/compute".
        name: what ran.
        start_s: start, seconds from the start of the step.
        end_s: end.
        args: further facts, shown by the viewer.
    """

    track: str
    name: str
    start_s: float
    end_s: float
    args: tuple[tuple[str, str | float], ...] = ()


@dataclass(slots=True)
class Recorder:
    """Collects spans in the order they ended."""

    spans: list[Span] = field(default_factory=list)

    def add(
        self, *, track: str, name: str, start_s: float, end_s: float, args: tuple[tuple[str, str | float], ...] = ()
    ) -> None:
        """Record a span."""
        self.spans.append(Span(track=track, name=name, start_s=start_s, end_s=end_s, args=args))
