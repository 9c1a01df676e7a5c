"""Unknown names, with the nearest ones that exist."""

import difflib
from collections.abc import Iterable


class CatalogError(ValueError):
    """A name that the catalogue does not hold."""

    def __init__(self, *, kind: str, name: str, known: Iterable[str]) -> None:
        self.nearest = tuple(difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=3, cutoff=0.4))
        hint = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        super().__init__(f"unknown {kind} {name!r}{hint}")
