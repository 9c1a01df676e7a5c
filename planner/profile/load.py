"""Reading a profile by shipped name or path."""

import json
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from planner.profile.schema import SCHEMA_VERSION, Profile

MAX_BYTES = 2_000_000


class ProfileError(ValueError):
    """A profile that cannot be used, and why."""


def shipped() -> tuple[str, ...]:
    """Names of the profiles that travel with the package."""
    folder = files("planner.profile").joinpath("shipped")
    return tuple(sorted(p.name.removesuffix(".json") for p in folder.iterdir() if p.name.endswith(".json")))


def load_profile(name_or_path: str) -> Profile:
    """A profile by shipped name or by path.

    Raises:
        ProfileError: unknown, larger than 2 MB, not JSON, of a newer schema, or with a wrong field.
    """
    if name_or_path in shipped():
        text = files("planner.profile").joinpath(f"shipped/{name_or_path}.json").read_text("utf-8")
        return parse_profile(text, source=name_or_path)
    path = Path(name_or_path)
    if not path.is_file():
        raise ProfileError(f"no profile {name_or_path!r}; shipped: {', '.join(shipped())}; or give a path")
    if path.stat().st_size > MAX_BYTES:
        raise ProfileError(f"{path} is larger than {MAX_BYTES} bytes")
    return parse_profile(path.read_text("utf-8", errors="replace"), source=str(path))


def parse_profile(text: str, *, source: str) -> Profile:
    """Check a profile given as text.

    Raises:
        ProfileError: as `load_profile`.
    """
    if len(text) > MAX_BYTES:
        raise ProfileError(f"{source} is larger than {MAX_BYTES} bytes")
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ProfileError(f"{source} is not JSON: {error}") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ProfileError(
            f"{source} has schema_version {version}; this program reads up to {SCHEMA_VERSION}: update it"
        )
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(x) for x in first["loc"])
        raise ProfileError(f"{source}: {where}: {first['msg']} ({len(error.errors())} problems in all)") from error
