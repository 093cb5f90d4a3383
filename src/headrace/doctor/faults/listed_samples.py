"""Samples of a dataset as the files they are made from: all of them, as the names that the dataset holds give them."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Sample = tuple[str, ...]
"""Paths of a sample's files. A member of a tar or table has its path before its name."""
Naming = tuple[str, str]
"""Text before and after a name in a path."""
_WHOLE: Naming = ("", "")
_ABOVE = re.compile(r"^(?:\.\./|/)+")


@dataclass(frozen=True)
class SampleListing:
    """Texts of a DataLoader's dataset, and files of a few of its samples, as `probe.listed_files` writes them."""

    dataset: str
    number: int | None
    """Number of the loader among observed ones; None if the run did not use it."""
    length: int | None
    chosen: list[int] | None
    columns: list[list[str]]
    opened: list[tuple[int, list[str]]]
    """Index and files of a few samples."""
    tars: list[str]
    """Tars of which the dataset takes each sample."""
    ends: list[str]
    """Extensions of the decoded members."""
    stored: Mapping[str, Any]
    """Places of the samples' values in tables, as `probe.stored_bytes` finds them; empty for other datasets."""
    working: str


def read_listings(path: Path) -> list[SampleListing]:
    """Return the listings of all loaders: the training's first."""
    return [_listing(one) for one in json.loads(path.read_bytes())]


def _listing(one: Mapping[str, Any]) -> SampleListing:
    opened = [(index, [os.path.join(*filter(None, place)) for place in places]) for index, places in one["opened"]]
    tars = one["tars"] or sorted({path for _, places in one["opened"] for path, member in places if member})
    fields = {name: one[name] for name in ("number", "length", "chosen", "columns", "ends", "stored", "working")}
    return SampleListing(one["class"], opened=opened, tars=tars, **fields)


class Members:
    """Members of tars, by tar and name, read once."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[str, int, int]] = {}
        """Tar or table, first byte and size of each member, by its path."""
        self._read: dict[str, list[str]] = {}

    def put(self, files: Sequence[str], place: Sequence[Any] | None) -> str:
        """Return a path for a value that is stored in a file; an empty one for a missing value."""
        if place is None:
            return ""
        number, name, begin, size = place
        path = os.path.join(files[number], f"{name}@{begin}")
        self.places[path] = files[number], begin, size
        return path

    def of(self, tar: str) -> list[str]:
        """Return the paths of a tar's members; none if it cannot be read."""
        if tar not in self._read:
            try:
                with tarfile.open(tar) as archive:
                    found = {os.path.join(tar, one.name): one for one in archive if one.isreg()}
            except (OSError, tarfile.TarError):
                found = {}
            self.places |= {path: (tar, one.offset_data, one.size) for path, one in found.items()}
            self._read[tar] = list(found)
        return self._read[tar]


def samples_of(listing: SampleListing, members: Members) -> list[Sample]:
    """Return the files of all samples that a loader takes; none if they are not known."""
    if listing.stored:
        files, columns = listing.stored["files"], listing.stored["columns"]
        rows = [tuple(members.put(files, one) for one in places) for places in zip(*columns, strict=True)]
        return rows if listing.chosen is None else [rows[index] for index in listing.chosen]
    known = {path for tar in listing.tars for path in members.of(tar)}
    kinds = [names for column in listing.columns for names in _named(listing, column, known)]
    kinds = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
    length = max(map(len, kinds), default=0)
    if not kinds:
        return _by_key(known, listing.ends) if listing.tars and not listing.columns else []
    found = list(zip(*(kind for kind in kinds if len(kind) == length), strict=True))
    return found if listing.chosen is None else [found[index] for index in listing.chosen]


def _named(listing: SampleListing, column: Sequence[str], known: Collection[str]) -> Iterator[list[str]]:
    """Yield the files that a column names: a list for each kind, such as images and masks."""
    paths = [os.path.normpath(os.path.join(listing.working, text)) for text in column]
    for begin, end in _namings(listing, column, paths):
        yield paths if (begin, end) == _WHOLE else [begin + plain_name(text) + end for text in column]
    if not any(files for _, files in listing.opened) and len(set(column)) > 1 and all(map(os.path.isfile, paths)):
        yield paths


def _namings(listing: SampleListing, column: Sequence[str], paths: Sequence[str]) -> list[Naming]:
    """Return what precedes and follows a column's texts in the files of all samples that were made."""
    rows = {text: place for place, text in enumerate(map(plain_name, column))}
    found: dict[Naming, None] | None = None
    named = set[str]()
    for index, files in (each for each in listing.opened if each[1]):
        own = [(rows[name], file) for file in files for _, name, _ in names_in(file) if name in rows]
        if listing.length is not None:
            own = [(index, file) for file in files if index < len(column)]
        here: dict[Naming, None] = {}
        for row, file in own:
            begin, is_named, end = file.rpartition(plain_name(column[row]))
            if file == paths[row] or is_named:
                here[_WHOLE if file == paths[row] else (begin, end)] = None
                named.add(column[row])
        found = here if found is None else {one: None for one in found if one in here}
    return list(found or ()) if len(named) > 1 else []


def names_in(path: str) -> Iterator[tuple[str, str, str]]:
    """Yield each end of a path, with and without its suffix, as a name between what precedes and follows it."""
    parts = path.split("/")
    for place in range(1, len(parts)):
        tail = "/".join(parts[place:])
        stem, suffix = os.path.splitext(tail)
        begin = path[: len(path) - len(tail)]
        yield begin, tail, ""
        if suffix:
            yield begin, stem, suffix


def plain_name(text: str) -> str:
    """Return a text of a column as `names_in` yields it."""
    return _ABOVE.sub("", os.path.normpath(text)) if text else "/"


def _by_key(known: Collection[str], ends: Collection[str]) -> list[Sample]:
    """Return the samples of tars: members with the same path up to the first dot of the name."""
    found: dict[str, list[str]] = {}
    for path in sorted(known):
        folder, name = os.path.split(path)
        key, _, end = name.partition(".")
        if not ends or end in ends:
            found.setdefault(os.path.join(folder, key), []).append(path)
    return [tuple(files) for files in found.values()]
