"""Copy files in parts, each verified by reading it back.

The checksum of the bytes from the source is compared with the checksum of the copy. On a disk, the copy is read from
the disk, not from the page cache.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from headrace.data.staging.journal import CopyRecord, StageJournal, partial_name
from headrace.data.staging.source_files import SourceFile
from headrace.data.storage.file_writing import OutputFolder, write_all, writing
from headrace.data.storage.open_file import OpenFile, printable_path
from headrace.errors import ChangedError, WriteError
from headrace.system import Stop

PART_BYTES = 64 << 20
"""Size of the parts in which several threads copy large files, and resume them after a kill. A file that a journal
recorded with another part size is copied again."""
UNIT_BYTES, UNIT_FILES = 16 << 20, 64
"""Limits of a unit of work for small files, which share the cost of durability."""
_PIECE_BYTES = 1 << 20


@dataclass
class StageReport:
    """Counts of a staging run: updated by its threads, read by the thread that displays them."""

    to: str
    total_files: int = 0
    total_bytes: int = 0
    """Bytes of all files to stage."""
    copied: int = 0
    """Files that were written and read back."""
    copied_bytes: int = 0
    """Bytes written, incomplete files included."""
    kept: int = 0
    """Files that were complete before. High after a run that was killed."""
    kept_bytes: int = 0
    verified: int | None = None
    """Number of the `kept` files that were read and match; None: verification was not requested."""
    verified_bytes: int = 0
    repaired: list[str] = field(default_factory=list)
    """Copies that had changed since they were staged, and were copied again."""
    gone: int = 0
    """Copies that were removed because their sources are gone."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of source entries that are not copied, by reason."""
    wall_s: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        document = asdict(self)
        for name in ("files", "bytes"):
            document[name] = document.pop(f"total_{name}")
        del document["verified_bytes"]
        return document


class FilePart(NamedTuple):
    file: SourceFile
    number: int
    at: int
    length: int


def parts_of(file: SourceFile, part_bytes: int) -> Iterator[FilePart]:
    """Split a file into parts; an empty file has one part."""
    for number, at in enumerate(range(0, max(1, file.size), part_bytes)):
        yield FilePart(file, number, at, min(part_bytes, file.size - at))


def units(parts: Iterable[FilePart]) -> Iterator[list[FilePart]]:
    """Yield units of work for a thread: a part of a large file, or some small files."""
    unit: list[FilePart] = []
    size = 0
    for part in parts:
        if unit and (size + part.length > UNIT_BYTES or len(unit) == UNIT_FILES):
            yield unit
            unit, size = [], 0
        unit.append(part)
        size += part.length
    if unit:
        yield unit


class FileCopier:
    """Copier of file parts. Thread-safe. Methods raise ReadError, ChangedError, WriteError, or Stopped."""

    def __init__(self, journal: StageJournal, report: StageReport, stop: Stop, *, part_bytes: int) -> None:
        self._journal, self._report, self._stop, self._part_bytes = journal, report, stop, part_bytes
        self._sums: dict[bytes, dict[int, int]] = {}
        """Checksums of the finished parts of incomplete files, by path."""
        self._lock = threading.Lock()

    def copy(self, unit: Sequence[FilePart]) -> None:
        """Copy these parts, and rename the files that they complete."""
        entries: list[dict[str, Any]] = []
        complete = []
        private = self._journal.folder
        for part in unit:
            file = part.file
            entry = {"size": file.size, "mtime_ns": file.mtime_ns}
            with _opened(private, partial_name(file), os.O_RDWR | os.O_CREAT) as partial:
                sum_ = self._copy_part(part, partial)
                sums = self._note(part, sum_)
                if sums is None:
                    entries.append({"part": os.fsdecode(file.path), **entry, "number": part.number, "crc32": sum_})
                    continue
                # Complete except for the rename. The bytes are durable; if the time is lost, the file is copied again.
                os.ftruncate(partial, file.size)
                os.fchmod(partial, file.mode)
                os.utime(partial, ns=(file.mtime_ns, file.mtime_ns))
                entries.append({"file": os.fsdecode(file.path), **entry, "crc32": sums})
                complete.append(file)
        self._journal.add(entries)
        for file in complete:
            folder, name = self._journal.folders.parent(file.path)
            with writing(folder.place(name)):
                os.rename(partial_name(file), name, src_dir_fd=private.descriptor, dst_dir_fd=folder.descriptor)
        with self._lock:
            self._report.copied += len(complete)

    def is_intact(self, file: SourceFile, record: CopyRecord) -> bool:
        """Return True, and count the copy, if it still has the bytes that were staged."""
        with _opened(*self._journal.folders.parent(file.path), os.O_RDONLY) as descriptor:
            if [self._sum(part, descriptor) for part in parts_of(file, self._part_bytes)] != list(record.sums):
                return False
        with self._lock:
            self._report.verified = (self._report.verified or 0) + 1
            self._report.verified_bytes += file.size
        return True

    def _copy_part(self, part: FilePart, partial: int) -> int:
        """Return the part's checksum. Bytes from a killed run are read back, and copied again if they differ."""
        known = self._known_sum(part)
        if known is None or self._sum(part, partial) != known:
            known = self._write(part, partial)
            if not self._journal.in_memory:
                os.fdatasync(partial)
            if self._sum(part, partial) != known:
                raise WriteError(
                    f"{printable_path(self._journal.folder.place(partial_name(part.file)))}: expected the bytes of "
                    f"{printable_path(part.file.source)} to come back, got others. Check the disk, or the memory"
                )
        with self._lock:
            self._report.copied_bytes += part.length
        return known

    def _known_sum(self, part: FilePart) -> int | None:
        file, whole = part.file, self._journal.files.get(part.file.path)
        if whole is not None and whole.version == file.version:  # killed before the rename
            return whole.sums[part.number] if part.number < len(whole.sums) else None
        found = self._journal.parts.get((file.path, part.number))
        return found.sums[0] if found is not None and found.version == file.version else None

    def _write(self, part: FilePart, partial: int) -> int:
        """Copy a part, and return the checksum of the source's bytes."""
        source, sum_ = OpenFile(part.file.source), 0
        for at, data in self._pieces(part, source.read_into):
            sum_ = zlib.crc32(data, sum_)
            write_all(partial, data, at)
        status = source.status()
        if (status.st_size, status.st_mtime_ns) != part.file.version:
            raise _changed(part.file)
        return sum_

    def _sum(self, part: FilePart, descriptor: int) -> int | None:
        """Return the checksum of the bytes on disk; None if the file ends early."""
        if not self._journal.in_memory:
            os.posix_fadvise(descriptor, part.at, part.length, os.POSIX_FADV_DONTNEED)
        sum_ = 0
        with suppress(ChangedError):
            for _, data in self._pieces(part, lambda buffer, at: os.preadv(descriptor, [buffer], at)):
                sum_ = zlib.crc32(data, sum_)
            return sum_
        return None

    def _pieces(self, part: FilePart, read: Callable[[memoryview, int], int]) -> Iterator[tuple[int, memoryview]]:
        """Read a part in pieces. Raises ChangedError if the file ends early, or Stopped."""
        buffer = memoryview(bytearray(min(_PIECE_BYTES, max(1, part.length))))
        at, end = part.at, part.at + part.length
        while at < end:
            self._stop.check()
            got = read(buffer[: end - at], at)
            if got == 0:
                raise _changed(part.file)
            yield at, buffer[:got]
            at += got

    def _note(self, part: FilePart, sum_: int) -> tuple[int, ...] | None:
        """Return the checksums of the file's parts, in order, if this was the last part."""
        count = max(1, -(-part.file.size // self._part_bytes))
        with self._lock:
            sums = self._sums.setdefault(part.file.path, {})
            sums[part.number] = sum_
            if len(sums) < count:
                return None
            del self._sums[part.file.path]
        return tuple(sums[number] for number in range(count))


@contextmanager
def _opened(folder: OutputFolder, name: bytes, flags: int) -> Iterator[int]:
    with writing(folder.place(name)):
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder.descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _changed(file: SourceFile) -> ChangedError:
    return ChangedError(
        f"{printable_path(file.source)}: expected a file that nobody writes, got one that changed while it was staged. "
        f"Stage again once it is complete"
    )
