"""Columns of one object a sample: by address, or by name below a prefix, and what is known of each object's content."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.columns import NamedFileColumn
from headrace.data.location import ColumnFiles, Location
from headrace.data.remote.addresses import is_remote
from headrace.data.remote.listing import Stores
from headrace.data.remote.remote_file import ObjectPath, pin_of, tag_of
from headrace.data.remote.stores import ObjectPin, ObjectStore
from headrace.data.storage.strings import Ints, Strings

_TAG_BYTES = 72
"""Longest ETag that is remembered: a SHA-256 in quotes has 66."""


class SeenObjects:
    """Sizes and versions of a column's objects by sample, as a listing or the first answer stated them.

    Arrays, since a pin an object would take a kilobyte a sample.
    """

    def __init__(self, count: int) -> None:
        """Know nothing yet of so many samples' objects. Pages of memory are taken as they are filled."""
        self._bytes_and_one = np.zeros(count, np.int64)
        self._tag = np.zeros(count, f"S{_TAG_BYTES}")
        self._is_listed = False

    @classmethod
    def listed(cls, bytes: Ints, tags: npt.NDArray[np.bytes_]) -> SeenObjects:
        """Take what a listing says of each sample's object."""
        made = cls(0)
        made._bytes_and_one, made._tag, made._is_listed = bytes + 1, tags, True
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Send what a listing said; another process asks for what this one has learnt."""
        if self._is_listed:
            return SeenObjects.listed, (self._bytes_and_one - 1, self._tag)
        return SeenObjects, (len(self._tag),)

    def pin(self, sample: int) -> ObjectPin | None:
        """Return the content that a sample's object had; None where it is not known."""
        size = int(self._bytes_and_one[sample]) - 1
        return None if size < 0 else pin_of(size, bytes(self._tag[sample]))

    def take(self, sample: int, pin: ObjectPin) -> None:
        """Remember the content of a sample's object."""
        tag = tag_of(pin)
        if 0 < len(tag) <= _TAG_BYTES:
            self._tag[sample] = tag
            self._bytes_and_one[sample] = pin.size + 1


class _Remembered(dict[str, ObjectPin]):
    """What is known of one object, which its column remembers."""

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
    """Objects that names stand for: addresses as they are, other names below a prefix, or files of this machine."""

    stores: Stores
    store: ObjectStore | None = None
    """Where names that are no addresses lie; None: on this machine."""
    prefix: str = ""
    inside: bool = False
    """Whether all names lie below the prefix, whatever they look like."""
    samples: Ints | None = None
    """Sample of each name of a batch; None: the names are the column's."""
    seen: SeenObjects | None = None
    listing: str | None = None
    """Path of the cached listing that names the objects."""

    def object(self, number: int, name: bytes) -> ObjectPath | None:
        """Return the object of that name, as it was seen first; None for a file of this machine. Raises UsageError."""
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


@dataclass(frozen=True, eq=False)
class ObjectColumn(NamedFileColumn):
    """Column of one object, or one file of this machine, a sample."""

    objects: NamedObjects

    @classmethod
    def of(cls, root: str, names: Strings, objects: NamedObjects, seen: SeenObjects | None = None) -> ObjectColumn:
        """Make the column of these names below `root`: a folder, or the address of the prefix."""
        objects = replace(objects, seen=SeenObjects(len(names)) if seen is None else seen)
        files = ColumnFiles(root, names, archives=False, inside=objects.inside, objects=objects)
        return cls(files, objects)

    def locate(self, ids: Ints) -> Location:
        named = replace(self.files, names=self.files.names.take(ids), objects=replace(self.objects, samples=ids))
        return Location(np.arange(len(ids)), None, None, None, files=named)


def holds_addresses(names: Strings) -> bool:
    """Tell whether any of the names is an address."""
    for piece in names.pieces():
        blob = piece.blob.tobytes()
        if b"://" in blob and any(is_remote(name) for name in piece):
            return True
    return False
