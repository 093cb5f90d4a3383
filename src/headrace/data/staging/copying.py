"""Plan and copy of files in parts, each read back and checked by its sum.

The sum is taken of the bytes as they come from the source, and compared with that of what the copy gives back: on a
disk what the disk gives, and not the page cache.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace.data.staging.journal import CopyRecord, LockedFolder, partial_name
from headrace.data.staging.source_files import SourceFile
from headrace.data.storage.file_writing import OutputFolders, writing
from headrace.data.storage.open_file import OpenFile, printable_path
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import ChangedError, WriteError
from headrace.system import Stop

PART_BYTES = 64 << 20
"""Large files are copied in parts, by several threads, and after a kill part by part. A file that a journal of other
parts knows is copied anew."""
UNIT_BYTES, UNIT_FILES = 16 << 20, 64
"""Small files share a unit of work, so that they share what makes them durable."""
_PIECE_BYTES = 1 << 20


@dataclass
class StageReport:
    """What was staged: counted by the threads that do it, read by the one that shows it."""

    to: str
    total_files: int = 0
    total_bytes: int = 0
    """Bytes of all files that are to be there."""
    copied: int = 0
    """Files that were written and read back."""
    copied_bytes: int = 0
    """Bytes written, also of files that are not complete yet."""
    kept: int = 0
    """Files that were there, complete. High after a run that was killed."""
    kept_bytes: int = 0
    verified: int | None = None
    """Of those kept, how many were read and have the bytes that were staged; None: nobody asked for it."""
    verified_bytes: int = 0
    repaired: list[str] = field(default_factory=list)
    """Copies that had changed since they were staged, and were made anew."""
    gone: int = 0
    """Copies that were removed because their sources are gone."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """What of the sources is not copied, by reason."""
    wall_s: float | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def count(self, *, files: int = 0, size: int = 0) -> None:
        with self._lock:
            self.copied += files
            self.copied_bytes += size

    def count_verified(self, size: int) -> None:
        with self._lock:
            self.verified = (self.verified or 0) + 1
            self.verified_bytes += size

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        names = ("copied", "copied_bytes", "kept", "kept_bytes", "verified", "repaired", "gone")
        return {
            "to": self.to,
            "files": self.total_files,
            "bytes": self.total_bytes,
            **{name: getattr(self, name) for name in names},
            "skipped": dict(self.skipped),
            "wall_s": self.wall_s,
        }


@dataclass(frozen=True)
class FilePart:
    file: SourceFile
    number: int
    at: int
    length: int


@dataclass
class StagePlan:
    copy: list[SourceFile] = field(default_factory=list)
    kept: list[SourceFile] = field(default_factory=list)
    """Complete already, as far as size and time tell."""
    changed: list[bytes] = field(default_factory=list)
    """Of those to copy: copies that have changed since they were staged."""
    gone: list[bytes] = field(default_factory=list)
    """Copies whose sources are gone."""


def make_plan(
    files: Sequence[SourceFile], known: Mapping[bytes, CopyRecord], there: Mapping[bytes, tuple[int, int]]
) -> StagePlan:
    """Decide what is copied and what is removed. `there`: size and time (ns) of each file in the folder of copies."""
    plan = StagePlan()
    for file in files:
        record, found = known.get(file.path), there.get(file.path)
        left = None if record is None else (record.size, record.mtime_ns)
        if found is not None and found == left == (file.size, file.mtime_ns):
            plan.kept.append(file)
            continue
        plan.copy.append(file)
        if record is not None and found is not None and found != left:
            plan.changed.append(file.path)
    names = {file.path for file in files}
    plan.gone = [path for path in known if path not in names]
    return plan


def is_index_of(path: bytes, known: Container[bytes]) -> bool:
    """Return whether `path` is `NAME.headrace` or `NAME.VARIANT.headrace`, the index of one of those files."""
    for suffix in map(str.encode, INDEX_SUFFIXES):
        if path.endswith(suffix):
            stem = path[: -len(suffix)]
            return stem in known or stem.rpartition(b".")[0] in known
    return False


def parts_of(file: SourceFile, part_bytes: int) -> Iterator[FilePart]:
    """Cut a file into parts; an empty one has one, too."""
    for number, at in enumerate(range(0, max(1, file.size), part_bytes)):
        yield FilePart(file, number, at, min(part_bytes, file.size - at))


def units(parts: Iterable[FilePart]) -> Iterator[list[FilePart]]:
    """Yield what a thread takes at a time: a part of a large file, or some small files."""
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
    """Any number of threads may copy. Raises ReadError, ChangedError, WriteError, or Stopped."""

    def __init__(self, folder: LockedFolder, report: StageReport, stop: Stop, *, part_bytes: int) -> None:
        self._locked = folder
        self._partial_folder = folder.journal.folder
        self._report = report
        self._stop = stop
        self._part_bytes = part_bytes
        self._sums: dict[bytes, dict[int, int]] = {}
        """Sums of the parts that are there, by the path of a file that is not complete."""
        self._lock = threading.Lock()

    def copy(self, unit: Sequence[FilePart]) -> None:
        """Copy these parts, and name the files that they complete."""
        parts, copies, complete = [], [], []
        for part in unit:
            file = part.file
            entry = {"size": file.size, "mtime_ns": file.mtime_ns}
            with self._partial(file) as partial:
                sum_ = self._copy_part(part, partial)
                sums = self._note(part, sum_)
                if sums is None:
                    parts.append({"part": os.fsdecode(file.path), **entry, "number": part.number, "crc32": sum_})
                else:
                    _finish(file, partial)
                    copies.append({"file": os.fsdecode(file.path), **entry, "crc32": sums})
                    complete.append(file)
        self._locked.journal.add([*parts, *copies])
        for file in complete:
            self._name(file)
        self._report.count(files=len(complete))

    def holds(self, file: SourceFile, record: CopyRecord) -> bool:
        """Return whether the copy gives back the bytes that were staged."""
        folder, name = self._locked.folders.parent(file.path)
        with writing(folder.place(name)):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.descriptor)
            try:
                parts = list(parts_of(file, self._part_bytes))
                return len(parts) == len(record.sums) and all(
                    self._read_back(part, descriptor) == sum_ for part, sum_ in zip(parts, record.sums, strict=True)
                )
            finally:
                os.close(descriptor)

    @contextmanager
    def _partial(self, file: SourceFile) -> Iterator[int]:
        folder, name = self._partial_folder, partial_name(file)
        with writing(folder.place(name)):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600, dir_fd=folder.descriptor)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def _copy_part(self, part: FilePart, partial: int) -> int:
        """Return its sum. What a killed run has left is read back, and copied anew where it is not as it was."""
        known = self._known_sum(part)
        if known is None or self._read_back(part, partial) != known:
            known = self._write(part, partial)
            if not self._locked.in_memory:
                os.fdatasync(partial)
            if self._read_back(part, partial) != known:
                raise WriteError(
                    f"{printable_path(self._partial_folder.place(partial_name(part.file)))}: expected the bytes of "
                    f"{printable_path(part.file.source)} to come back, got others. Check the disk, or the memory"
                )
        self._report.count(size=part.length)
        return known

    def _known_sum(self, part: FilePart) -> int | None:
        file, known = part.file, self._locked.journal.state
        record = known.files.get(file.path)
        if record is not None and (record.size, record.mtime_ns) == (file.size, file.mtime_ns):
            return record.sums[part.number] if part.number < len(record.sums) else None  # killed before it was named
        found = known.parts.get(file.path, {}).get(part.number)
        if found is None or (found.size, found.mtime_ns) != (file.size, file.mtime_ns):
            return None
        return found.sum

    def _write(self, part: FilePart, partial: int) -> int:
        source = OpenFile(part.file.source)
        _expect_unchanged(part.file, source)
        sum_ = 0
        for at, data in self._pieces(part, source.read_into):
            sum_ = zlib.crc32(data, sum_)
            _write_all(partial, data, at)
        _expect_unchanged(part.file, source)
        return sum_

    def _read_back(self, part: FilePart, descriptor: int) -> int | None:
        """Return the sum of what is there; None where it ends early."""
        if not self._locked.in_memory:
            os.posix_fadvise(descriptor, part.at, part.length, os.POSIX_FADV_DONTNEED)
        sum_ = 0
        try:
            for _, data in self._pieces(part, lambda buffer, at: os.preadv(descriptor, [buffer], at)):
                sum_ = zlib.crc32(data, sum_)
        except ChangedError:
            return None
        return sum_

    def _pieces(self, part: FilePart, read: Callable[[memoryview, int], int]) -> Iterator[tuple[int, memoryview]]:
        """Read a part in pieces. Raises ChangedError where it ends early, or Stopped."""
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
        """Return the sums of the file's parts, in their order, if this was the last."""
        count = max(1, -(-part.file.size // self._part_bytes))
        with self._lock:
            sums = self._sums.setdefault(part.file.path, {})
            sums[part.number] = sum_
            if len(sums) < count:
                return None
            del self._sums[part.file.path]
        return tuple(sums[number] for number in range(count))

    def _name(self, file: SourceFile) -> None:
        folder, name = self._locked.folders.parent(file.path)
        with writing(folder.place(name)):
            os.rename(
                partial_name(file), name, src_dir_fd=self._partial_folder.descriptor, dst_dir_fd=folder.descriptor
            )


def remove_copy(folders: OutputFolders, path: bytes) -> None:
    """Remove a copy if it is there. Raises WriteError."""
    above, _, name = path.rpartition(b"/")
    folder = folders.find(above)
    if folder is None:
        return
    with writing(folder.place(name)):
        try:
            os.unlink(name, dir_fd=folder.descriptor)
        except FileNotFoundError:
            return


def _write_all(descriptor: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written


def _finish(file: SourceFile, partial: int) -> None:
    """Give it all but its name. Its bytes are on the disk; if its time is not, it is copied again."""
    os.ftruncate(partial, file.size)
    os.fchmod(partial, file.mode)
    os.utime(partial, ns=(file.mtime_ns, file.mtime_ns))


def _expect_unchanged(file: SourceFile, source: OpenFile) -> None:
    status = source.status()
    if (status.st_size, status.st_mtime_ns) != (file.size, file.mtime_ns):
        raise _changed(file)


def _changed(file: SourceFile) -> ChangedError:
    return ChangedError(
        f"{printable_path(file.source)}: expected a file that nobody writes, got one that changed while it was staged. "
        f"Stage again once it is complete"
    )
