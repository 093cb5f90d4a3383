"""`verify`, `describe` and `merge`: check each byte of a pack, summarise it, complete what several machines wrote."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headrace.data import build_indices
from headrace.errors import HeadraceError, NotFoundError
from headrace.pack.shard_files import PLAN, read_document, read_entry, shard_name


@dataclass(frozen=True)
class PackSummary:
    """Content of a folder of shards."""

    shards: int
    """Shards that are complete."""
    expected: int
    """Shards that the plan has."""
    samples: int
    bytes: int
    source_bytes: int
    columns: tuple[str, ...]
    classes: tuple[str, ...] | None
    options: dict[str, Any]
    dropped: tuple[tuple[str, str], ...]
    """Key and reason of each sample left out."""


def describe(folder: Path) -> PackSummary:
    """Summarise a pack from its plan and its shards' entries. Raises HeadraceError."""
    plan = _plan(folder)
    expected = len(plan["cuts"]) - 1
    there = [tar for shard in range(expected) if (tar := folder / shard_name(shard)).exists()]
    entries = [read_entry(tar) for tar in there]
    return PackSummary(
        shards=len(there),
        expected=expected,
        samples=sum(len(entry["keys"]) for entry in entries),
        bytes=sum(entry["bytes"] for entry in entries),
        source_bytes=plan["source_bytes"],
        columns=tuple(plan["columns"]),
        classes=None if plan["classes"] is None else tuple(plan["classes"]),
        options=plan["options"],
        dropped=tuple((key, why) for entry in entries for key, why in entry["dropped"]),
    )


def verify(folder: Path, *, tick: Callable[[int, int], None] | None = None) -> list[str]:
    """Return what is wrong with a pack: missing shards, and each member whose bytes changed.

    `tick` is called with the shards checked and their total.
    """
    plan = _plan(folder)
    total, wrong = len(plan["cuts"]) - 1, []
    for shard in range(total):
        tar = folder / shard_name(shard)
        wrong += _wrong_in(tar) if tar.exists() else [f"{tar}: missing; run pack again"]
        if tick is not None:
            tick(shard + 1, total)
    return wrong


def merge(folder: Path) -> int:
    """Check that the shards of all parts are there, build the indices that are missing, and return the shards' number.

    Raises HeadraceError that names the missing shards.
    """
    tars = [folder / shard_name(shard) for shard in range(len(_plan(folder)["cuts"]) - 1)]
    missing = [tar.name for tar in tars if not tar.exists()]
    if missing:
        raise HeadraceError(f"{folder}: {len(missing)} of {len(tars)} shards are missing: {', '.join(missing[:5])}")
    build_indices([str(tar) for tar in tars], cache=None)
    return len(tars)


def _plan(folder: Path) -> dict[str, Any]:
    if not (folder / PLAN).exists():
        raise NotFoundError(f"{folder}: expected a pack, with {PLAN}")
    return read_document(folder / PLAN)


def _wrong_in(tar: Path) -> list[str]:
    try:
        entry = read_entry(tar)
        with open(tar, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"]:
                return []
            file.seek(0)
            named = [f"{tar}: member {name!r} has other bytes" for name in _changed(file, entry["crc32"])]
    except HeadraceError as error:
        return [str(error)]
    except OSError as error:
        return [f"{tar}: {error.strerror or error}"]
    return named or [f"{tar}: headers or padding have other bytes"]


def _changed(file: BinaryIO, checks: list[int]) -> Iterator[str]:
    """Yield the members with other content, up to a header that cannot be read."""
    with tarfile.open(fileobj=file, mode="r:", errorlevel=1) as archive:
        for member, check in zip(_readable(archive), checks, strict=False):
            content = archive.extractfile(member)
            if content is None or zlib.crc32(content.read()) != check:
                yield member.name


def _readable(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    try:
        yield from archive
    except tarfile.TarError:
        return
