"""Plan and copy of files in parts, each read back and checked by its sum."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace.data.staging.journal import CopyRecord, LockedFolder, PartRecord, partial_name
from headrace.data.staging.source_files import SourceFile
from headrace.data.storage.file_writing import OutputFolders, write_error
from headrace.data.storage.open_file import OpenFile, printable_path
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import ChangedError, HeadraceError, WriteError
from headrace.system.threads import Stop

# -- from stage/plan.py: What is copied and what is removed, from what is wanted, known and there. Pure: nothing here
# looks at a disk.


PART_BYTES = 64 << 20
"""Large files are copied in parts, by several threads, and after a kill part by part. A file that a journal of other
parts knows is copied anew."""
UNIT_BYTES, UNIT_FILES = 16 << 20, 64
"""Small files share a unit of work, so that they share what makes them durable."""

There = Mapping[bytes, tuple[int, int]]
"""Size and time (ns) of each regular file in the folder of copies, by path."""


@dataclass(frozen=True)
class FilePart:
    wanted: SourceFile
    number: int
    at: int
    length: int


@dataclass
class StagePlan:
    copy: list[SourceFile] = field(default_factory=list)
    kept: list[SourceFile] = field(default_factory=list)
    """Complete already, as far as size and time tell."""
    changed: list[bytes] = field(default_factory=list)
    """Of those to copy: copies that are not as they were left."""
    gone: list[bytes] = field(default_factory=list)
    """Copies whose sources are gone."""


def make_plan(wanted: Sequence[SourceFile], known: Mapping[bytes, CopyRecord], there: There) -> StagePlan:
    plan = StagePlan()
    for one in wanted:
        record, found = known.get(one.path), there.get(one.path)
        left = None if record is None else (record.size, record.mtime_ns)
        if found is not None and found == left == (one.size, one.mtime_ns):
            plan.kept.append(one)
            continue
        plan.copy.append(one)
        if record is not None and found is not None and found != left:
            plan.changed.append(one.path)
    names = {one.path for one in wanted}
    plan.gone = [path for path in known if path not in names]
    return plan


def strangers(there: Iterable[bytes], known: Mapping[bytes, CopyRecord]) -> list[bytes]:
    """What lies in the folder of copies and is neither a copy nor an index that was built beside one."""
    return [path for path in there if path not in known and not is_index_of(path, known)]


def is_index_of(path: bytes, known: Container[bytes]) -> bool:
    """Whether `path` is called as the index of one of those files is, `NAME.headrace` or `NAME.VARIANT.headrace`."""
    for suffix in map(str.encode, INDEX_SUFFIXES):
        if path.endswith(suffix):
            stem = path[: -len(suffix)]
            return stem in known or stem.rpartition(b".")[0] in known
    return False


def parts_of(wanted: SourceFile, part_bytes: int) -> Iterator[FilePart]:
    """An empty file has one, too."""
    for number, at in enumerate(range(0, max(1, wanted.size), part_bytes)):
        yield FilePart(wanted, number, at, min(part_bytes, wanted.size - at))


def units(parts: Iterable[FilePart]) -> Iterator[list[FilePart]]:
    """What a thread takes at a time: a part of a large file, or some small files."""
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


# -- from stage/report.py: What was staged or removed: counted by the threads that do it, read by the one that shows
# it.


@dataclass
class StageReport:
    to: str
    total_files: int = 0
    total_bytes: int = 0
    """Of all files that are to be there."""
    copied: int = 0
    """Files that were written and read back."""
    copied_bytes: int = 0
    """Also of files that are not complete yet."""
    kept: int = 0
    """Files that were there, complete. High after a run that was killed."""
    kept_bytes: int = 0
    verified: int | None = None
    """Of those kept, how many were read and have the bytes that were staged; None: nobody asked for it."""
    verified_bytes: int = 0
    repaired: list[str] = field(default_factory=list)
    """Copies that were not as they were left, and were made anew."""
    gone: int = 0
    """Copies that were removed because their sources are gone."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """What of the sources is not copied, by reason."""
    wall_s: float | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def count_bytes(self, count: int) -> None:
        with self._lock:
            self.copied_bytes += count

    def count_file(self) -> None:
        with self._lock:
            self.copied += 1

    def count_verified(self, size: int) -> None:
        with self._lock:
            self.verified = (self.verified or 0) + 1
            self.verified_bytes += size

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "to": self.to,
            "files": self.total_files,
            "bytes": self.total_bytes,
            "copied": self.copied,
            "copied_bytes": self.copied_bytes,
            "kept": self.kept,
            "kept_bytes": self.kept_bytes,
            "verified": self.verified,
            "repaired": self.repaired,
            "gone": self.gone,
            "skipped": dict(self.skipped),
            "wall_s": self.wall_s,
        }


@dataclass
class UnstageReport:
    to: str
    removed: int = 0
    removed_bytes: int = 0
    left: list[str] = field(default_factory=list)
    """Copies that are not as they were staged, and stay."""

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"to": self.to, "removed": self.removed, "removed_bytes": self.removed_bytes, "left": self.left}


# -- from stage/copying.py: Copies parts of files, reads back what was written, and names a file once all of it is
# there.
#
# The sum is taken of the bytes as they come from the source, and compared with that of what the copy gives back: on a
# disk what the disk gives, and not the page cache.


_PIECE_BYTES = 1 << 20


class FileCopier:
    """Any number of threads may copy. Raises ReadError, ChangedError, WriteError, or Stopped."""

    def __init__(self, held: LockedFolder, report: StageReport, stop: Stop, *, part_bytes: int) -> None:
        self._held = held
        self._report = report
        self._stop = stop
        self._part_bytes = part_bytes
        self._sums: dict[bytes, dict[int, int]] = {}
        """Of the parts that are there, by the path of a file that is not complete."""
        self._lock = threading.Lock()

    def copy(self, unit: Sequence[FilePart]) -> None:
        """Copies these parts, and names the files that they complete."""
        parts, complete = [], []
        for part in unit:
            with self._partial(part.wanted) as partial:
                sum_ = self._copy_part(part, partial)
                sums = self._count(part, sum_)
                if sums is None:
                    parts.append(_part_record(part, sum_))
                else:
                    self._finish(part.wanted, partial)
                    complete.append((part.wanted, _record(part.wanted, sums)))
        self._held.journal.add([*parts, *(record for _, record in complete)])
        for wanted, _ in complete:
            self._name(wanted)
            self._report.count_file()

    def holds(self, wanted: SourceFile, record: CopyRecord) -> bool:
        """Whether the copy gives back the bytes that were staged."""
        folder, name = self._held.folders.parent(wanted.path)
        with _writing(folder.place(name)):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.descriptor)
            try:
                parts = list(parts_of(wanted, self._part_bytes))
                return len(parts) == len(record.sums) and all(
                    self._read_back(part, descriptor) == sum_ for part, sum_ in zip(parts, record.sums, strict=True)
                )
            finally:
                os.close(descriptor)

    @contextmanager
    def _partial(self, wanted: SourceFile) -> Iterator[int]:
        folder, name = self._held.journal.folder, partial_name(wanted)
        with _writing(folder.place(name)):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600, dir_fd=folder.descriptor)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def _copy_part(self, part: FilePart, partial: int) -> int:
        """Its sum. What a killed run has left is read back, and copied anew where it is not as it was."""
        known = self._known_sum(part)
        if known is None or self._read_back(part, partial) != known:
            known = self._write(part, partial)
            if not self._held.in_memory:
                os.fdatasync(partial)
            if self._read_back(part, partial) != known:
                folder = self._held.journal.folder
                raise WriteError(
                    f"{printable_path(folder.place(partial_name(part.wanted)))}: expected the bytes of "
                    f"{printable_path(part.wanted.source)} to come back, got others. Check the disk, or the memory"
                )
        self._report.count_bytes(part.length)
        return known

    def _known_sum(self, part: FilePart) -> int | None:
        wanted, known = part.wanted, self._held.journal.known
        record = known.files.get(wanted.path)
        if record is not None and (record.size, record.mtime_ns) == (wanted.size, wanted.mtime_ns):
            return record.sums[part.number] if part.number < len(record.sums) else None  # killed before it was named
        found = known.parts.get(wanted.path, {}).get(part.number)
        if found is None or (found.size, found.mtime_ns) != (wanted.size, wanted.mtime_ns):
            return None
        return found.sum

    def _write(self, part: FilePart, partial: int) -> int:
        source = OpenFile(part.wanted.source)
        _expect_unchanged(part.wanted, source)
        buffer = memoryview(bytearray(min(_PIECE_BYTES, max(1, part.length))))
        sum_, at, end = 0, part.at, part.at + part.length
        while at < end:
            self._stop.check()
            got = source.read_into(buffer[: end - at], at)
            if got == 0:
                raise _changed(part.wanted)
            sum_ = zlib.crc32(buffer[:got], sum_)
            _write_all(partial, buffer[:got], at)
            at += got
        _expect_unchanged(part.wanted, source)
        return sum_

    def _read_back(self, part: FilePart, descriptor: int) -> int | None:
        """None where it ends early."""
        if not self._held.in_memory:
            os.posix_fadvise(descriptor, part.at, part.length, os.POSIX_FADV_DONTNEED)
        buffer = memoryview(bytearray(min(_PIECE_BYTES, max(1, part.length))))
        sum_, at, end = 0, part.at, part.at + part.length
        while at < end:
            self._stop.check()
            got = os.preadv(descriptor, [buffer[: end - at]], at)
            if got == 0:
                return None
            sum_ = zlib.crc32(buffer[:got], sum_)
            at += got
        return sum_

    def _count(self, part: FilePart, sum_: int) -> tuple[int, ...] | None:
        """The sums of the file's parts, in their order, if this was the last."""
        count = max(1, -(-part.wanted.size // self._part_bytes))
        with self._lock:
            sums = self._sums.setdefault(part.wanted.path, {})
            sums[part.number] = sum_
            if len(sums) < count:
                return None
            del self._sums[part.wanted.path]
        return tuple(sums[number] for number in range(count))

    def _finish(self, wanted: SourceFile, partial: int) -> None:
        """All but its name. Its bytes are on the disk; if its time is not, it is copied again."""
        os.ftruncate(partial, wanted.size)
        os.fchmod(partial, wanted.mode)
        os.utime(partial, ns=(wanted.mtime_ns, wanted.mtime_ns))

    def _name(self, wanted: SourceFile) -> None:
        folder, name = self._held.folders.parent(wanted.path)
        with _writing(folder.place(name)):
            ours = self._held.journal.folder.descriptor
            os.rename(partial_name(wanted), name, src_dir_fd=ours, dst_dir_fd=folder.descriptor)


def remove_copy(folders: OutputFolders, path: bytes) -> None:
    """If it is there. Raises WriteError."""
    above, _, name = path.rpartition(b"/")
    folder = folders.find(above)
    if folder is None:
        return
    with _writing(folder.place(name)):
        try:
            os.unlink(name, dir_fd=folder.descriptor)
        except FileNotFoundError:
            return


@contextmanager
def _writing(path: bytes) -> Iterator[None]:
    try:
        yield
    except HeadraceError:
        raise
    except OSError as error:
        raise write_error(path, error) from error


def _write_all(descriptor: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written


def _part_record(part: FilePart, sum_: int) -> PartRecord:
    return PartRecord(part.wanted.path, part.wanted.size, part.wanted.mtime_ns, part.number, sum_)


def _record(wanted: SourceFile, sums: tuple[int, ...]) -> CopyRecord:
    return CopyRecord(wanted.path, wanted.size, wanted.mtime_ns, sums)


def _expect_unchanged(wanted: SourceFile, source: OpenFile) -> None:
    status = source.status()
    if (status.st_size, status.st_mtime_ns) != (wanted.size, wanted.mtime_ns):
        raise _changed(wanted)


def _changed(wanted: SourceFile) -> ChangedError:
    return ChangedError(
        f"{printable_path(wanted.source)}: expected a file that nobody writes, got one that changed while it was "
        f"staged. "
        f"Stage again once it is complete"
    )
