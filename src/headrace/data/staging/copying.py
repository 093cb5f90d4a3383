"""Copy files in parts, each verified by reading it back.

The checksum of the bytes from the source is compared with the checksum of the copy. On a disk, the copy is read from
the disk, not from the page cache.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

from headrace.data.staging.journal import StageJournal, partial_name
from headrace.data.staging.source_files import FilePart, SourceFile, part_count, parts_of
from headrace.data.storage.file_writing import write_all, writing
from headrace.data.storage.open_file import OpenFile, printable_path
from headrace.errors import ChangedError, WriteError
from headrace.system import Stop

UNIT_BYTES, FILE_BYTES = 16 << 20, 256 << 10
"""Size of a unit of work for small files, which share the cost of durability, and what each adds to its own bytes."""
_PIECE_BYTES = 1 << 20


@dataclass
class StageReport:
    """Counts of a staging run: updated by its threads, read by the thread that displays them."""

    to: str
    files: int = 0
    bytes: int = 0
    """Bytes of all files to stage."""
    copied: int = 0
    """Files that were written and read back."""
    copied_bytes: int = 0
    """Bytes written, incomplete files included."""
    kept: int = 0
    """Files that were complete before. High after a run that was killed."""
    kept_bytes: int = 0
    verified: bool = False
    """True if the `kept` files were read and match."""
    repaired: list[str] = field(default_factory=list)
    """Copies that had changed since they were staged, and were copied again."""
    gone: int = 0
    """Copies that were removed because their sources are gone."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of source entries that are not copied, by reason."""
    wall_s: float | None = None


def units(parts: Sequence[FilePart]) -> Iterator[list[FilePart]]:
    """Yield units of work for a thread: a part of a large file, some small files, or both."""
    costs = accumulate(part.length + FILE_BYTES for part in parts)
    for _, unit in groupby(zip(parts, costs, strict=True), lambda each: each[1] // UNIT_BYTES):
        yield [part for part, _ in unit]


class FileCopier:
    """Copier of file parts. Thread-safe. Methods raise ReadError, ChangedError, WriteError, or Stopped."""

    def __init__(self, journal: StageJournal, report: StageReport, stop: Stop) -> None:
        self._journal, self._report, self._stop = journal, report, stop
        self._done: Counter[bytes] = Counter()
        """Number of finished parts of incomplete files, by path."""
        self._lock = threading.Lock()

    def copy(self, unit: Sequence[FilePart]) -> None:
        """Copy these parts, and name the files that they complete."""
        self._journal.add([self._copied(part) for part in unit])
        for part in unit:
            file = part.file
            with self._lock:
                self._done[file.path] += 1
                is_complete = self._done[file.path] == part_count(file.size)
            if is_complete:
                self._name(file)

    def is_intact(self, file: SourceFile) -> bool:
        """Return True, and count the copy, if it still has the bytes that were staged."""
        copy = self._journal.folders.root.place(file.path)
        if any(self._sum_on_disk(part, copy) != self._journal.sum_of(part) for part in parts_of(file)):
            return False
        with self._lock:
            self._report.kept += 1
            self._report.kept_bytes += file.size
        return True

    def _copied(self, part: FilePart) -> dict[str, Any]:
        """Copy a part, and return its line. Bytes from a killed run are read back, and copied again if they differ."""
        file, sum_ = part.file, self._journal.sum_of(part)
        with self._opened(file) as partial:
            place = self._journal.folder.place(partial_name(file))
            if sum_ is None or self._sum_on_disk(part, place) != sum_:
                sum_ = self._write(part, partial)
                if not self._journal.in_memory:
                    os.fdatasync(partial)
                if self._sum_on_disk(part, place) != sum_:
                    raise WriteError(
                        f"{printable_path(place)}: expected the bytes of {printable_path(file.source)} to come back, "
                        f"got others. Check the disk, or the memory"
                    )
        with self._lock:
            self._report.copied_bytes += part.length
        where = {"file": os.fsdecode(file.path), "size": file.size, "mtime_ns": file.mtime_ns}
        return {**where, "part": part.number, "crc32": sum_}

    def _name(self, file: SourceFile) -> None:
        """Give a complete file its final name. Its bytes are durable; if its time is lost, it is copied again."""
        folder, name = self._journal.folders.parent(file.path)
        with self._opened(file) as partial, writing(folder.place(name)):
            os.fchmod(partial, file.mode)
            os.utime(partial, ns=(file.mtime_ns, file.mtime_ns))
            private = self._journal.folder.descriptor
            os.rename(partial_name(file), name, src_dir_fd=private, dst_dir_fd=folder.descriptor)
        with self._lock:
            self._report.copied += 1

    @contextmanager
    def _opened(self, file: SourceFile) -> Iterator[int]:
        """Open the incomplete file of a copy."""
        private, name, flags = self._journal.folder, partial_name(file), os.O_RDWR | os.O_CREAT
        with writing(private.place(name)):
            descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=private.descriptor)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def _write(self, part: FilePart, partial: int) -> int:
        """Copy a part, and return the checksum of the source's bytes."""
        source = OpenFile(part.file.source)
        sum_ = self._sum(part, source, lambda data, at: write_all(partial, data, at))
        status = source.status()
        if sum_ is None or (status.st_size, status.st_mtime_ns) != part.file.version:
            raise ChangedError(
                f"{source}: expected a file that nobody writes, got one that changed while it was staged. Stage again "
                f"once it is complete"
            )
        return sum_

    def _sum_on_disk(self, part: FilePart, place: bytes) -> int | None:
        """Return the checksum of a part of a copy, not from the page cache; None if the copy ends early."""
        copy = OpenFile(place)
        if not self._journal.in_memory:
            copy.read_by(lambda file: os.posix_fadvise(file, part.at, part.length, os.POSIX_FADV_DONTNEED))
        return self._sum(part, copy)

    def _sum(
        self, part: FilePart, file: OpenFile, use: Callable[[memoryview, int], object] | None = None
    ) -> int | None:
        """Return the checksum of a part, and `use` each piece; None if the file ends early. Raises Stopped."""
        buffer, sum_ = memoryview(bytearray(min(_PIECE_BYTES, part.length))), 0
        for at in range(part.at, part.at + part.length, _PIECE_BYTES):
            self._stop.check()
            data = buffer[: part.at + part.length - at]
            if file.read_into(data, at) < len(data):
                return None
            sum_ = zlib.crc32(data, sum_)
            if use is not None:
                use(data, at)
        return sum_
