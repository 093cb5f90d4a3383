"""Copies parts of files, reads back what was written, and names a file once all of it is there.

The sum is taken of the bytes as they come from the source, and compared with that of what the copy gives back: on a
disk what the disk gives, and not the page cache.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.data.staging.journal import Held, partial_name
from headrace.data.staging.source_files import Wanted
from headrace.data.storage.file_writing import Folders
from headrace.data.storage.open_file import OpenFile, path_text
from headrace.data.write_errors import unwritable
from headrace.errors import ChangedError, HeadraceError, WriteError
from headrace.stage.plan import Part, parts_of
from headrace.stage.records import PartRecord, Record
from headrace.stage.report import Report
from headrace.system.threads import Stop

_PIECE_BYTES = 1 << 20


class Copier:
    """Any number of threads may copy. Raises ReadError, ChangedError, WriteError, or Stopped."""

    def __init__(self, held: Held, report: Report, stop: Stop, *, part_bytes: int) -> None:
        self._held = held
        self._report = report
        self._stop = stop
        self._part_bytes = part_bytes
        self._sums: dict[bytes, dict[int, int]] = {}
        """Of the parts that are there, by the path of a file that is not complete."""
        self._lock = threading.Lock()

    def copy(self, unit: Sequence[Part]) -> None:
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

    def holds(self, wanted: Wanted, record: Record) -> bool:
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
    def _partial(self, wanted: Wanted) -> Iterator[int]:
        folder, name = self._held.journal.folder, partial_name(wanted)
        with _writing(folder.place(name)):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600, dir_fd=folder.descriptor)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def _copy_part(self, part: Part, partial: int) -> int:
        """Its sum. What a killed run has left is read back, and copied anew where it is not as it was."""
        known = self._known_sum(part)
        if known is None or self._read_back(part, partial) != known:
            known = self._write(part, partial)
            if not self._held.in_memory:
                os.fdatasync(partial)
            if self._read_back(part, partial) != known:
                folder = self._held.journal.folder
                raise WriteError(
                    f"{path_text(folder.place(partial_name(part.wanted)))}: expected the bytes of "
                    f"{path_text(part.wanted.source)} to come back, got others. Check the disk, or the memory"
                )
        self._report.count_bytes(part.length)
        return known

    def _known_sum(self, part: Part) -> int | None:
        wanted, known = part.wanted, self._held.journal.known
        record = known.files.get(wanted.path)
        if record is not None and (record.size, record.mtime_ns) == (wanted.size, wanted.mtime_ns):
            return record.sums[part.number] if part.number < len(record.sums) else None  # killed before it was named
        found = known.parts.get(wanted.path, {}).get(part.number)
        if found is None or (found.size, found.mtime_ns) != (wanted.size, wanted.mtime_ns):
            return None
        return found.sum

    def _write(self, part: Part, partial: int) -> int:
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

    def _read_back(self, part: Part, descriptor: int) -> int | None:
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

    def _count(self, part: Part, sum_: int) -> tuple[int, ...] | None:
        """The sums of the file's parts, in their order, if this was the last."""
        count = max(1, -(-part.wanted.size // self._part_bytes))
        with self._lock:
            sums = self._sums.setdefault(part.wanted.path, {})
            sums[part.number] = sum_
            if len(sums) < count:
                return None
            del self._sums[part.wanted.path]
        return tuple(sums[number] for number in range(count))

    def _finish(self, wanted: Wanted, partial: int) -> None:
        """All but its name. Its bytes are on the disk; if its time is not, it is copied again."""
        os.ftruncate(partial, wanted.size)
        os.fchmod(partial, wanted.mode)
        os.utime(partial, ns=(wanted.mtime_ns, wanted.mtime_ns))

    def _name(self, wanted: Wanted) -> None:
        folder, name = self._held.folders.parent(wanted.path)
        with _writing(folder.place(name)):
            ours = self._held.journal.folder.descriptor
            os.rename(partial_name(wanted), name, src_dir_fd=ours, dst_dir_fd=folder.descriptor)


def remove_copy(folders: Folders, path: bytes) -> None:
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
        raise unwritable(path, error) from error


def _write_all(descriptor: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written


def _part_record(part: Part, sum_: int) -> PartRecord:
    return PartRecord(part.wanted.path, part.wanted.size, part.wanted.mtime_ns, part.number, sum_)


def _record(wanted: Wanted, sums: tuple[int, ...]) -> Record:
    return Record(wanted.path, wanted.size, wanted.mtime_ns, sums)


def _expect_unchanged(wanted: Wanted, source: OpenFile) -> None:
    status = source.status()
    if (status.st_size, status.st_mtime_ns) != (wanted.size, wanted.mtime_ns):
        raise _changed(wanted)


def _changed(wanted: Wanted) -> ChangedError:
    return ChangedError(
        f"{path_text(wanted.source)}: expected a file that nobody writes, got one that changed while it was staged. "
        f"Stage again once it is complete"
    )
