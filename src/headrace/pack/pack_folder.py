"""Folders of packs, local or in a store, in which a file has its name only once it is complete."""

from __future__ import annotations

import fcntl
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from headrace.data import (
    INDEX,
    FilePath,
    ObjectPath,
    Stores,
    UnindexedFile,
    UnwritableError,
    build_indices,
    finish_partial_file,
    index_written,
    list_objects,
    merge_indices,
    open_stream,
    partial_file,
    put_object,
    read_path,
    writing,
)
from headrace.errors import NotFoundError, UsageError, WriteError
from headrace.stores import HUB_SCHEME, is_remote, parse_address

_READ_BYTES = 16 << 20
"""Bytes of a request when an object is read from its start to its end."""


@dataclass(frozen=True)
class PackFolder:
    """Folder of a pack: a local one, or a prefix in a store. Picklable, without credentials."""

    place: str
    """Absolute path, or address without a slash at its end."""
    stores: Stores | None
    """Stores of the address; None: a local folder."""

    @classmethod
    def of(cls, where: str | os.PathLike[str], store_options: Mapping[str, Any] | None = None) -> PackFolder:
        """Return the folder at a path or an address. `store_options`: as in `open`. Raises UsageError."""
        text = os.fspath(where)
        if not is_remote(text):
            return cls(os.path.abspath(text), None)
        return cls(str(parse_address(text)).rstrip("/"), Stores(store_options))

    def __str__(self) -> str:
        return self.place

    def path(self, name: str) -> FilePath:
        """Return the path of a file, or its object, of which no content is known."""
        place = f"{self.place}/{name}"
        return place if self.stores is None else self.stores.path(place)

    def expect_writable(self) -> None:
        """Raise UsageError for a place that is read only."""
        if self.stores is not None:
            address = parse_address(self.place).store
            if address.is_web or address.scheme == HUB_SCHEME:
                raise UsageError(f"expected a folder or a bucket to write a pack to, got {self}")

    def names(self) -> frozenset[str]:
        """Return the names of the files. Raises ReadError."""
        if self.stores is None:
            return frozenset(os.listdir(self.place)) if os.path.isdir(self.place) else frozenset()
        some = self.stores.path(f"{self.place}/{INDEX}")
        prefix = some.key.removesuffix(INDEX)
        listed = list_objects(some.store, prefix.rstrip("/"))
        return frozenset(each.key.removeprefix(prefix) for each in listed)

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises NotFoundError, ReadError."""
        path = self.path(name)
        if isinstance(path, str) and not os.path.exists(path):
            raise NotFoundError(f"{path}: expected a file of a pack, got nothing")
        return read_path(path)

    def open(self, name: str) -> BinaryIO:
        """Open a file to read it from its start. Raises OSError; for an object, reading raises as `read` does."""
        return io.BufferedReader(open_stream(self.path(name)), _READ_BYTES)

    def write(self, name: str, write: Callable[[BinaryIO], None], *, replaces: bool = False) -> None:
        """Let `write` write a file. A local file stays if there is one, unless `replaces`; an object is replaced.

        Raises WriteError, and ReadError if a store refuses it.
        """
        path = self.path(name)
        if isinstance(path, ObjectPath):
            _write_object(path, write)
            return
        try:
            with partial_file(str(path)) as partial:
                if replaces or not os.path.exists(str(path)):
                    finish_partial_file(partial, str(path), write)
                    _sync_folder(self.place)
        except UnwritableError as error:
            raise WriteError(f"{path}: {error}") from error

    def index(self, names: Sequence[str], *, threads: int | None = None) -> None:
        """Build the missing indices of archives; in a store, merge them into `INDEX`. Raises HeadraceError."""
        paths = [self.path(name) for name in names]
        outcomes = build_indices(paths, cache=None, threads=threads)
        if self.stores is None or not paths:
            return
        failed = next((each for each in outcomes if isinstance(each, UnindexedFile)), None)
        if failed is not None:
            raise failed.error
        merge_indices(paths, outcomes, f"{self.place}/{INDEX}", self.stores)

    @contextmanager
    def locked(self, number: int, parts: int) -> Iterator[None]:
        """Hold the lock of one part, which the kernel frees when the process ends. Raises WriteError if it is taken.

        In a store, nothing is locked: two runs of one part put the same bytes.
        """
        if self.stores is not None:
            yield
            return
        name = f"{self.place}/.lock-{number}-of-{parts}"
        with writing(os.fsencode(name)):
            os.makedirs(self.place, exist_ok=True)
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise WriteError(
                    f"{self}: another run is writing part {number} of {parts}; wait for it, or use --shard I/N"
                ) from error
            yield
        finally:
            os.close(descriptor)


def _write_object(path: ObjectPath, write: Callable[[BinaryIO], None]) -> None:
    """Put what `write` writes. The index of a tar is cached from the scratch file: nothing here scans the object."""
    put_object(path, write, lambda copy: index_written(path, copy) if path.name.endswith(".tar") else None)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
