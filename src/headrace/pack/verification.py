"""`verify`, `describe` and `merge`: check each byte of a pack, summarise it, complete what several machines wrote."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import Any, BinaryIO

from headrace.data import PLAN, index_faults, shard_name, values_faults
from headrace.errors import DatasetError, HeadraceError, NotFoundError, ReadError
from headrace.pack.pack_folder import PackFolder
from headrace.pack.shard_files import dropped_samples, read_document, read_entries, read_entry

_CHECKED_AT_ONCE = 8


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


def describe(where: str | PathLike[str], *, store_options: Mapping[str, Any] | None = None) -> PackSummary:
    """Summarise the pack at a path or an address from its plan and its shards' entries. Raises HeadraceError."""
    folder = PackFolder.of(where, store_options)
    plan, tars = _plan(folder)
    names = folder.names()
    there = [tar for tar in tars if tar in names]
    labels = (each for each in plan["schema"] if each["name"] == "label")
    entries = read_entries(folder, there)
    return PackSummary(
        shards=len(there),
        expected=len(tars),
        samples=sum(len(entry["keys"]) for entry in entries),
        bytes=sum(entry["bytes"] for entry in entries),
        source_bytes=plan["source_bytes"],
        columns=tuple(each["name"] for each in plan["schema"]),
        classes=next((tuple(each["classes"]) for each in labels if each.get("classes") is not None), None),
        options=plan["options"],
        dropped=dropped_samples(entries),
    )


def verify(
    where: str | PathLike[str],
    *,
    tick: Callable[[int, int], None] | None = None,
    store_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return what is wrong with the pack at a path or an address: missing shards, and each file that changed.

    All bytes of all its files are read: the plan, values, shards with their entries, and indices. A member is named.

    `tick` is called with the shards checked and their total. Raises ReadError if a store cannot be read.
    """
    folder = PackFolder.of(where, store_options)
    plan, tars = _plan(folder)
    names = folder.names()
    wrong = values_faults([folder.path(tar) for tar in tars], plan["id"], names)

    def check(tar: str) -> list[str]:
        return _wrong_in(folder, tar) if tar in names else [f"{folder.path(tar)}: missing; run pack again"]

    with ThreadPoolExecutor(_CHECKED_AT_ONCE, "headrace-verify") as pool:
        for checked, found in enumerate(pool.map(check, tars), 1):
            wrong += found
            if tick is not None:
                tick(checked, len(tars))
    return wrong


def merge(where: str | PathLike[str], *, store_options: Mapping[str, Any] | None = None) -> int:
    """Check that the shards of all parts are there, build the indices that are missing, and return the shards' number.

    In a store, the indices become one file, `index.headrace`. Raises HeadraceError that names the missing shards.
    """
    folder = PackFolder.of(where, store_options)
    _, tars = _plan(folder)
    names = folder.names()
    missing = [tar for tar in tars if tar not in names]
    if missing:
        raise HeadraceError(f"{folder}: {len(missing)} of {len(tars)} shards are missing: {', '.join(missing[:5])}")
    folder.index(tars)
    return len(tars)


def _plan(folder: PackFolder) -> tuple[dict[str, Any], list[str]]:
    """Return the plan of a pack, and the names of its shards."""
    try:
        plan = read_document(folder, PLAN)
    except NotFoundError as error:
        raise NotFoundError(f"{folder}: expected a pack, with {PLAN}") from error
    return plan, [shard_name(shard) for shard in range(len(plan["cuts"]) - 1)]


def _wrong_in(folder: PackFolder, tar: str) -> list[str]:
    path = folder.path(tar)
    try:
        entry = read_entry(folder, tar)
        with folder.open(tar) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"]:  # type: ignore[arg-type]
                return index_faults(path)
            file.seek(0)
            named = [f"{path}: member {name!r} has other bytes" for name in _changed(file, entry["crc32"])]
    except DatasetError as error:
        return [str(error)]
    except ReadError:
        raise  # the network's fault, not the pack's
    except OSError as error:
        return [f"{path}: {error.strerror or error}"]
    return named or [f"{path}: headers or padding have other bytes"]


def _changed(file: BinaryIO, checks: list[int]) -> Iterator[str]:
    """Yield the members with other content, up to a header that cannot be read."""
    with suppress(tarfile.TarError), tarfile.open(fileobj=file, mode="r:", errorlevel=1) as archive:
        for member, check in zip(archive, checks, strict=False):
            content = archive.extractfile(member)
            if content is None or zlib.crc32(content.read()) != check:
                yield member.name
