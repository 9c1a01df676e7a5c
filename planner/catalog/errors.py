"""Unknown names, with the nearest ones that exist."""

import difflib
from collections.abc import Iterable


class CatalogError(ValueError):
    """A name that the catalogue does not hold.

    Attributes:
        nearest: existing names that resemble the wanted one, best first.
        reason: what is wrong, without the suggestions.
    """

    def __init__(self, *, kind: str, name: str, known: Iterable[str]) -> None:
        # Compared in lower case, shown as written in the catalogue.
        spelled = {k.lower(): k for k in known}
        found = difflib.get_close_matches(name.lower(), spelled, n=3, cutoff=0.4)
        self.nearest = tuple(spelled[k] for k in found)
        self.reason = f"unknown {kind} {name!r}"
        hint = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        super().__init__(self.reason + hint)
