"""What somebody sends: read as content only, with caps, and kept as files that the rooms below can open.

Nothing here opens a path that an upload names. A file that is kept lies under the hash of its own bytes.
"""

import atexit
import csv
import hashlib
import io
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner import catalog
from planner.catalog.huggingface import model_from_config
from planner.catalog.types import ModelSpec
from planner.decide.mixed import equal_fleet
from planner.profile.fabric_file import fabric_document
from planner.profile.load import parse_profile, shipped
from planner.profile.nccl import read_nccl
from planner.scenario import Scenario, parse_scenario
from planner.scenario.cluster import Fabric
from planner.scenario.reader import plain as plain_tree
from planner.scenario.reader import read_yaml

MAX_SCENARIO_BYTES, MAX_MODEL_BYTES, MAX_LOG_BYTES, MAX_RUNS_BYTES = 1 << 20, 1 << 18, 2_000_000, 2_000_000
MAX_ROWS = 1000
MAX_DEPTH = 20
NEEDED = ("metric", "measured", "gpu")
FABRICS = {"ib", "roce", "efa", "opa", "ethernet", "tcpx", "none"}
KINDS = ("model", "fabric", "site")


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of a session.

    Attributes:
        kind: model, fabric or site.
        label: what the page calls it.
        name: file name in a folder of its own, harmless.
        data: its bytes.
    """

    kind: str
    label: str
    name: str
    data: bytes

    def path(self) -> str:
        """Where it lies for the rooms below; written when it is not there."""
        path = folder() / hashlib.sha256(self.data).hexdigest()[:16] / self.name
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(self.data)
            temporary.replace(path)
        return str(path)


@cache
def folder() -> Path:
    """The folder of this server's kept files; gone with the server."""
    made = Path(tempfile.mkdtemp(prefix="planner-files-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def without_paths(text: str) -> str:
    """Text in which a kept file has its name alone."""
    return re.sub(re.escape(str(folder())) + r"/[0-9a-f]{16}/", "", text)


def safe_name(text: str, *, otherwise: str) -> str:
    """Letters, digits, dots and dashes of a name, at most 40; never a hidden file, never a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:40] or otherwise


def unpacked(raw: bytes, *, most: int) -> bytes:
    """Bytes of an upload, gzip opened up to a size.

    Raises:
        ValueError: larger than `most` when opened, or broken.
    """
    if raw[:2] == b"\x1f\x8b":
        reader = zlib.decompressobj(wbits=31)
        try:
            data = reader.decompress(raw, most + 1)
        except zlib.error as error:
            raise ValueError(f"not a whole gzip file: {error}") from error
        if len(data) <= most and not reader.eof:
            raise ValueError("the gzip file is cut off")
    else:
        data = raw
    if len(data) > most:
        raise ValueError(f"larger than {most:,} bytes")
    return data


def scenario_of(raw: bytes) -> Scenario:
    """A scenario file: names and inline shapes only, no path of this machine.

    Raises:
        ScenarioError: with every problem found.
        ValueError: it names a file, or is too large.
    """
    text = unpacked(raw, most=MAX_SCENARIO_BYTES).decode("utf-8", errors="replace")
    tree = plain_tree(read_yaml(text=text, file="upload")[0])
    found = tree.get("cluster")
    cluster = found if isinstance(found, dict) else {}
    model, fabric, profile = tree.get("model"), cluster.get("fabric"), cluster.get("profile")
    if isinstance(model, str) and model not in catalog.models():
        raise ValueError(f"model {model[:80]!r}: an uploaded scenario names a model of the catalogue or its shape")
    if cluster.get("site") is not None:
        raise ValueError("cluster.site: an uploaded scenario names no file")
    if profile is not None and profile not in shipped():
        raise ValueError(f"cluster.profile: one of {', '.join(shipped())}")
    if isinstance(fabric, str) and fabric not in FABRICS:
        raise ValueError(f"cluster.fabric {fabric[:80]!r}: an uploaded scenario names a kind of fabric, no file")
    if isinstance(fabric, dict) and fabric.get("measured") not in (None, *shipped()):
        raise ValueError("cluster.fabric.measured: an uploaded scenario names no file")
    return equal_fleet(parse_scenario(text, file="upload"))[0]


def tree_of(raw: bytes, *, most: int, what: str) -> Mapping[str, Any]:
    """A JSON object with a cap on bytes and depth.

    Raises:
        ValueError: larger, deeper, not JSON or no object.
    """
    try:
        data = json.loads(unpacked(raw, most=most).decode("utf-8"))
    except (RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"not {what}: {type(error).__name__}") from error
    if not isinstance(data, dict):
        raise ValueError(f"not {what}: no object")
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [x for v in level for x in (v.values() if isinstance(v, dict) else v) if isinstance(x, dict | list)]
        if not level:
            return data
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def model_of(raw: bytes, *, file_name: str) -> tuple[Kept, ModelSpec]:
    """A Hugging Face `config.json`, and the shape it describes.

    Raises:
        ValueError: not one, or of an unknown family.
    """
    tree = tree_of(raw, most=MAX_MODEL_BYTES, what="a config.json")
    stem = Path(file_name).stem
    named = str(tree.get("_name_or_path") or "").rpartition("/")[2] or ("" if stem == "config" else stem)
    name = safe_name(named, otherwise=f"{safe_name(str(tree.get('model_type')), otherwise='model')}-upload")
    spec = model_from_config(tree, name=name)
    return Kept("model", name, f"{name}/config.json", json.dumps(tree).encode()), spec


def fabric_of(
    raw: bytes, *, file_name: str, op: str | None = None, ranks: int | None = None, nodes: int | None = None
) -> tuple[Kept, list[dict[str, Any]], list[str]]:
    """Output of nccl-tests as a measured fabric: the file, its samples, and what could not be used.

    Raises:
        ValueError: too large, or nothing measured in it.
    """
    text = unpacked(raw, most=MAX_LOG_BYTES).decode("utf-8", errors="replace")
    log = read_nccl(text, op=op, ranks=ranks, nodes=nodes)
    name = safe_name(Path(file_name).stem, otherwise="fabric")
    document = fabric_document(samples=log.samples, device=log.device, source=name, notes=log.notes)
    data = json.dumps(document, separators=(",", ":")).encode()
    parse_profile(data.decode(), source=name)
    return Kept("fabric", name, f"{name}.fabric.json", data), log.samples, log.notes


def runs_of(raw: bytes) -> tuple[bytes, int]:
    """A CSV of measured runs (plain or gzip), checked, and its number of rows.

    Raises:
        ValueError: too large, too many rows, or without the columns that `planner validate --runs` needs.
    """
    text = unpacked(raw, most=MAX_RUNS_BYTES).decode("utf-8-sig", errors="replace")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from error
    if not 1 <= len(rows) <= MAX_ROWS:
        raise ValueError(f"{len(rows)} rows; from 1 to {MAX_ROWS}")
    missing = [c for c in NEEDED if c not in rows[0]]
    if missing:
        raise ValueError(f"lacks the columns {', '.join(missing)}")
    return text.encode(), len(rows)


def site_of(data: bytes, *, label: str) -> Kept:
    """Fitted constants as a file."""
    return Kept("site", label, f"{safe_name(label, otherwise='own')}.site.json", data)


def with_files(scenario: Scenario, files: Mapping[str, Kept]) -> Scenario:
    """The scenario with a session's own model, fabric and site in the place of its own."""
    change: dict[str, Any] = {}
    cluster: dict[str, Any] = {}
    if "model" in files:
        change["model"] = files["model"].path()
    if "fabric" in files:
        fabric = scenario.cluster.fabric or Fabric()
        cluster["fabric"] = fabric.model_copy(update={"measured": files["fabric"].path()})
    if "site" in files:
        cluster["site"] = files["site"].path()
    if cluster:
        change["cluster"] = scenario.cluster.model_copy(update=cluster)
    return _changed(scenario, change)


def _changed(scenario: Scenario, change: Mapping[str, Any]) -> Scenario:
    """A copy read anew: a plain copy would keep the old model's shape."""
    return Scenario.model_validate_json(scenario.model_copy(update=change).model_dump_json()) if change else scenario


def bundle(scenario: Scenario, files: Mapping[str, Kept]) -> tuple[Scenario, dict[str, bytes]]:
    """The scenario with its files by name alone, and those files: what reads back in another folder."""
    change: dict[str, Any] = {}
    cluster: dict[str, Any] = {}
    used = {}
    if "model" in files:
        change["model"] = files["model"].name
        used[files["model"].name] = files["model"].data
    if "fabric" in files and scenario.cluster.fabric is not None:
        cluster["fabric"] = scenario.cluster.fabric.model_copy(update={"measured": files["fabric"].name})
        used[files["fabric"].name] = files["fabric"].data
    if "site" in files:
        cluster["site"] = files["site"].name
        used[files["site"].name] = files["site"].data
    if cluster:
        change["cluster"] = scenario.cluster.model_copy(update=cluster)
    # Not read anew: the names say where the files will lie, not where they lie now.
    return scenario.model_copy(update=change), used
