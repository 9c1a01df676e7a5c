"""A site: a few named constants by which one cluster and its software differ from the default forecast."""

import json
import math
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_BYTES = 100_000


class SiteError(ValueError):
    """A site file that cannot be used, and why."""


class Site(BaseModel):
    """Factors on forecast seconds, 1 = as forecast, each with one standard deviation of its logarithm."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    name: str
    """Where the runs come from."""
    runs: int = Field(ge=1)
    """Runs it was fitted to."""
    compute_factor: float = Field(gt=0.2, lt=5.0)
    """On kernels, bubbles and the optimizer: sustained clock, kernel versions."""
    compute_sigma: float = Field(ge=0.0)
    network_factor: float = Field(gt=0.05, lt=20.0)
    """On exposed communication: fabric efficiency."""
    network_sigma: float = Field(ge=0.0)
    host_factor: float = Field(gt=0.05, lt=20.0)
    """On launch gaps: host speed."""
    host_sigma: float = Field(ge=0.0)
    residual_sigma: float = Field(ge=0.0)
    """Scatter of the runs around the fit."""
    configs: tuple[str, ...] = ()
    """Configuration hashes of those runs, so that a fit to a run is never taken for a forecast of it."""


def site_sigma(*, site: Site, default_sigma: float) -> float:
    """Standard deviation of the logarithm of a forecast with fitted constants.

    Runs of the same cluster narrow the band to their own scatter and what is left unknown of the constants.
    """
    return min(default_sigma, max(0.03, math.hypot(site.residual_sigma, site.compute_sigma)))


def load_site(path: str | Path) -> Site:
    """A site from its file.

    Raises:
        SiteError: missing, too large, not JSON, or with a wrong field.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise SiteError(f"{file} is larger than {MAX_BYTES} bytes")
        return Site.model_validate(json.loads(file.read_text("utf-8")))
    except OSError as error:
        raise SiteError(f"cannot read {file}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SiteError(f"{file} is not JSON: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise SiteError(f"{file}: {'.'.join(str(x) for x in first['loc'])}: {first['msg']}") from error
