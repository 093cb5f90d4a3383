"""Columns of one object per sample, by address or by name in a prefix, and the known content of each object."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.columns import NamedFileColumn
from headrace.data.location import ColumnFiles, Location
from headrace.data.remote.listing import Stores
from headrace.data.remote.remote_file import ObjectPath, pin_of, tag_of
from headrace.data.storage.strings import Ints, Strings
from headrace.stores import ObjectPin, ObjectStore, is_remote

_TAG_BYTES = 72
"""Longest ETag to remember: a quoted SHA-256 has 66 bytes."""


class SeenObjects:
    """Sizes and versions of a column's objects by sample, from a listing or the first response.

    Stored in arrays, since a pin per object would take a kilobyte per sample.
    """

    def __init__(self, count: int) -> None:
        """Start with nothing known about the objects of `count` samples. Memory is allocated lazily."""
        self._bytes_and_one = np.zeros(count, np.int64)
        self._tag = np.zeros(count, f"S{_TAG_BYTES}")
        self.is_listed = False
        """True if a listing of a whole prefix stated them all."""

    @classmethod
    def listed(cls, bytes: Ints, tags: npt.NDArray[np.bytes_]) -> SeenObjects:
        """Take the listed size and tag of each sample's object."""
        made = cls(0)
        made._bytes_and_one, made._tag, made.is_listed = bytes + 1, tags, True
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the listed sizes and tags; another process requests unlisted ones itself."""
        if self.is_listed:
            return SeenObjects.listed, (self._bytes_and_one - 1, self._tag)
        return SeenObjects, (len(self._tag),)

    def pin(self, sample: int) -> ObjectPin | None:
        """Return the pinned content of a sample's object; None if unknown."""
        size = int(self._bytes_and_one[sample]) - 1
        return None if size < 0 else pin_of(size, bytes(self._tag[sample]))

    def take(self, sample: int, pin: ObjectPin) -> None:
        """Remember the content of a sample's object."""
        tag = tag_of(pin)
        if 0 < len(tag) <= _TAG_BYTES:
            self._tag[sample] = tag
            self._bytes_and_one[sample] = pin.size + 1


class _Remembered(dict[str, ObjectPin]):
    """Known content of one object, remembered by its column."""

    def __init__(self, seen: SeenObjects, sample: int) -> None:
        pin = seen.pin(sample)
        super().__init__({} if pin is None else {"pin": pin})
        self._seen, self._sample = seen, sample

    def setdefault(self, name: str, pin: ObjectPin) -> ObjectPin:
        self._seen.take(self._sample, pin)
        return super().setdefault(name, pin)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


@dataclass(frozen=True, eq=False)
class NamedObjects:
    """Objects by name: addresses, other names in a prefix, or local files."""

    stores: Stores
    store: ObjectStore | None = None
    """Store of names that are not addresses; None: they are local files."""
    prefix: str = ""
    inside: bool = False
    """True if all names are in the prefix, even those that resemble addresses or absolute paths."""
    samples: Ints | None = None
    """Sample of each name of a batch; None: the names are the column's."""
    seen: SeenObjects | None = None
    listing: str | None = None
    """Path of the cached listing with the objects."""

    def object(self, number: int, name: bytes) -> ObjectPath | None:
        """Return the object of a name, pinned to the content first seen; None for a local file. Raises UsageError."""
        text = os.fsdecode(name)
        if not self.inside and is_remote(text):
            path = self.stores.path(text, among_others=True)
        elif self.store is None or (not self.inside and os.path.isabs(text)):
            return None
        else:
            path = ObjectPath(self.store, posixpath.normpath(posixpath.join(self.prefix, text)))
        if self.seen is None:
            return path
        sample = number if self.samples is None else int(self.samples[number])
        return ObjectPath(path.store, path.key, _Remembered(self.seen, sample), self.listing)


@dataclass(frozen=True, eq=False, repr=False)
class ObjectColumn(NamedFileColumn):
    """Column of one object, or one local file, per sample."""

    objects: NamedObjects

    @classmethod
    def of(cls, root: str, names: Strings, objects: NamedObjects, seen: SeenObjects | None = None) -> ObjectColumn:
        """Return the column of these names in `root`: a folder, or the address of the prefix."""
        objects = replace(objects, seen=SeenObjects(len(names)) if seen is None else seen)
        files = ColumnFiles(root, names, archives=False, inside=objects.inside, objects=objects)
        return cls(files, objects)

    @property
    def folder(self) -> str | None:
        seen = self.objects.seen
        return self.files.root if seen is not None and seen.is_listed else None

    def locate(self, ids: Ints) -> Location:
        named = replace(self.files, names=self.files.names.take(ids), objects=replace(self.objects, samples=ids))
        return Location(np.arange(len(ids)), None, None, None, files=named)


def holds_addresses(names: Strings) -> bool:
    """Return True if any name is an address."""
    for piece in names.pieces():
        blob = piece.blob.tobytes()
        if b"://" in blob and any(is_remote(name) for name in piece):
            return True
    return False
