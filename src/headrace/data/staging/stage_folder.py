"""Folder of copies: its lock, its manifest, and copying into it in parts.

The private folder in it holds incomplete copies, and the manifest, an untrusted JSON object after its checksum:

    {"format": "headrace stage 5", "sources": {"name": "/path", …}, "made": true, "files": {"path": [[5, 7]], …}}

`files` has the versions that each copy may have: size and time (ns) of the source. It is written before the first copy,
and a copy gets its name once all its parts were read back: a file of a listed version is complete. An incomplete copy
ends in 8 bytes for each part: 2³² + CRC-32 of a finished one, else zero.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from headrace.data.staging.source_files import STAGE_FOLDER, SourceFile, Version, is_in_memory
from headrace.data.storage.file_writing import OutputFolders, UnwritableError, partial_file, write_all, writing
from headrace.data.storage.open_file import OpenFile, printable_path
from headrace.errors import ChangedError, WriteError
from headrace.system import Stop

PART_BYTES = 64 << 20
"""Size of the parts in which several threads copy large files, and resume them after a kill."""
_FORMAT = "headrace stage 5"
"""Version of the manifest; a new one is also due if the size of parts changes."""
_PIECE_BYTES = 1 << 20
_MARK = 1 << 32
_MANIFEST = b"manifest.json"
FilePart = tuple[SourceFile, int]
"""File, and number of the part."""


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


class _Manifest(msgspec.Struct):
    format: str
    sources: dict[str, str]
    made: bool
    files: dict[str, list[Version]]


class StageFolder:
    """Locked folder of copies. Methods raise WriteError."""

    def __init__(self, root: bytes, *, made: bool) -> None:
        """Read the manifest. `made`: True if the folder did not exist before it was locked."""
        self.folders = OutputFolders(root)
        self.private = self.folders.open(STAGE_FOLDER)
        self.made = made
        """True if staging created the folder of copies."""
        self.sources: dict[str, str] | None = None
        """Path of each source by name; None: nothing was staged."""
        self.files: dict[bytes, list[Version]] = {}
        """Versions that each copy may have, by path."""
        for folder in (self.folders.root, self.private) if is_in_memory(root) else ():
            owner = os.fstat(folder.descriptor).st_uid
            if owner not in (os.geteuid(), 0):  # /dev/shm is shared
                raise WriteError(
                    f"{printable_path(folder.path)}: expected a folder of user {os.geteuid()} in memory, got one of "
                    f"user {owner}, who could change the copies. Stage into a folder of your own"
                )
        if self.private.find(_MANIFEST) is not None:
            self._read()

    def _read(self) -> None:
        with self.private.opened(_MANIFEST, os.O_RDONLY) as descriptor, open(descriptor, "rb", closefd=False) as file:
            check, _, text = file.read().partition(b"\n")
        try:
            if check != b"%08x" % zlib.crc32(text):
                raise ValueError("it does not fit its checksum")
            found = msgspec.convert(json.loads(text), _Manifest)
            if found.format != _FORMAT:
                raise ValueError(f"it is of another version, {found.format!r}; this one writes {_FORMAT!r}")
            for name in (*found.sources, *found.files):
                if "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
                    raise ValueError(f"it names {name!r}, which no copy is called")
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise WriteError(
                f"{printable_path(self.private.place(_MANIFEST))}: expected the manifest of what is staged here, got "
                f"one that cannot be used: {error}. Delete the folder {printable_path(self.folders.root.path)} and "
                f"stage again"
            ) from error
        self.sources, self.made = found.sources, found.made
        self.files = {os.fsencode(name): versions for name, versions in found.files.items()}

    def write(self, sources: dict[str, str], files: dict[bytes, list[Version]]) -> None:
        """Replace the manifest, unless it is the same."""
        if (sources, files) == (self.sources, self.files):
            return
        self.sources, self.files = sources, files
        manifest = _Manifest(_FORMAT, sources, self.made, {os.fsdecode(path): each for path, each in files.items()})
        text, new = json.dumps(msgspec.to_builtins(manifest)).encode(), _MANIFEST + b".new"
        with self.private.opened(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(b"%08x\n%s" % (zlib.crc32(text), text))
            os.fsync(descriptor)
        self.private.move(new, self.private, _MANIFEST)

    def unchanged(self, there: Mapping[bytes, Version | None]) -> set[bytes]:
        """Return the complete copies among the files that are there, by size and modification time."""
        return {path for path, version in there.items() if version in self.files.get(path, ())}

    def clear(self, keep: Container[bytes] = ()) -> int:
        """Remove incomplete copies, except those named in `keep`; return the bytes that these take."""
        taken = 0
        for name in map(os.fsencode, os.listdir(self.private.descriptor)):
            if name in keep:
                found = self.private.find(name)
                taken += 0 if found is None else found.st_blocks * 512
            elif name != _MANIFEST:
                self.private.remove(name)
        return taken

    def remove(self) -> None:
        """Remove the manifest and its folder, after everything else."""
        self.sources = None
        self.clear()
        self.private.remove(_MANIFEST)
        with writing(self.private.path), suppress(FileNotFoundError):
            os.rmdir(STAGE_FOLDER, dir_fd=self.folders.root.descriptor)


@contextmanager
def locked_folder(root: bytes, *, wait: bool) -> Iterator[StageFolder]:
    """Create the folder `root` if missing, and lock it.

    Wait for another lock holder, or without `wait` raise an error. If nothing was staged by the end, remove it again
    unless it has other content. Raises WriteError.
    """
    made, folder = not os.path.isdir(root), None
    try:
        with partial_file(os.fsdecode(os.path.join(root, STAGE_FOLDER)), patience_s=None if wait else 0):
            folder = StageFolder(root, made=made)
            try:
                yield folder
            finally:
                if folder.sources is None:
                    folder.remove()
    except UnwritableError as error:
        why = error if error.__cause__ else "another process that stages into it. Run it again when that has ended"
        raise WriteError(f"{printable_path(root)}: expected to be alone in this folder, got {why}") from error
    finally:
        if folder is not None and folder.sources is None and folder.made:
            with suppress(OSError):  # not empty, or a mount
                os.rmdir(root)


class FileCopier:
    """Copier of file parts. Thread-safe. Methods raise ReadError, ChangedError, WriteError, or Stopped."""

    def __init__(self, folder: StageFolder, report: StageReport, stop: Stop) -> None:
        self._folders, self._private = folder.folders, folder.private
        self._report, self._stop = report, stop
        self._done: Counter[bytes] = Counter()
        """Number of finished parts of incomplete copies, by path."""
        self._lock = threading.Lock()

    def copy(self, part: FilePart) -> None:
        """Copy a part, unless a killed run has. The last one gives the copy its name."""
        file, number = part
        with self._private.opened(partial_name(file), os.O_RDWR | os.O_CREAT) as partial:
            mark_at = file.size + 8 * number
            mark = int.from_bytes(os.pread(partial, 8, mark_at), "little")
            if mark < _MARK or self._sum_on_disk(part, partial) != mark - _MARK:
                mark = _MARK + self._write(part, partial)
                os.pwrite(partial, mark.to_bytes(8, "little"), mark_at)
            with self._lock:
                self._report.copied_bytes += min(PART_BYTES, file.size - number * PART_BYTES)
                self._done[file.path] += 1
                is_complete = self._done[file.path] == part_count(file)
                self._report.copied += is_complete
            if is_complete:
                self._name(file, partial)

    def is_intact(self, file: SourceFile) -> bool:
        """Return True if a complete copy has the bytes of its source."""
        source = OpenFile(file.source)
        with open(self._folders.root.place(file.path), "rb", buffering=0) as copy:
            return all(self._sum_on_disk(part, copy.fileno()) == self._sum(part, source) for part in parts_of(file))

    def _name(self, file: SourceFile, partial: int) -> None:
        """Give a complete copy its name. Its bytes are durable; if its time is lost, it is copied again."""
        os.ftruncate(partial, file.size)
        os.fchmod(partial, file.mode)
        os.utime(partial, ns=(file.mtime_ns, file.mtime_ns))
        self._private.move(partial_name(file), *self._folders.parent(file.path))

    def _write(self, part: FilePart, partial: int) -> int:
        """Copy a part, read it back, and return its checksum."""
        file, source = part[0], OpenFile(part[0].source)
        sum_ = self._sum(part, source, lambda data, at: write_all(partial, data, at))
        status = source.status()
        if sum_ is None or (status.st_size, status.st_mtime_ns) != file.version:
            raise ChangedError(
                f"{source}: expected a file that nobody writes, got one that changed while it was staged. Stage again "
                f"once it is complete"
            )
        os.fdatasync(partial)
        if self._sum_on_disk(part, partial) != sum_:
            raise WriteError(
                f"{printable_path(self._folders.root.place(file.path))}: expected the bytes of {source} to come back, "
                f"got others. Check the disk, or the memory"
            )
        return sum_

    def _sum_on_disk(self, part: FilePart, copy: int) -> int | None:
        """Return the checksum of a part of a copy, from the disk rather than the page cache, as `_sum` does."""
        os.posix_fadvise(copy, part[1] * PART_BYTES, PART_BYTES, os.POSIX_FADV_DONTNEED)
        return self._sum(part, OpenFile(b"/proc/self/fd/%d" % copy))

    def _sum(
        self, part: FilePart, file: OpenFile, use: Callable[[memoryview, int], object] | None = None
    ) -> int | None:
        """Return the checksum of a part, and `use` each piece; None if the file ends early. Raises Stopped."""
        begin, sum_ = part[1] * PART_BYTES, 0
        end = min(part[0].size, begin + PART_BYTES)
        buffer = memoryview(bytearray(min(_PIECE_BYTES, end - begin)))
        for at in range(begin, end, _PIECE_BYTES):
            self._stop.check()
            data = buffer[: end - at]
            if file.read_into(data, at) < len(data):
                return None
            sum_ = zlib.crc32(data, sum_)
            if use is not None:
                use(data, at)
        return sum_


def part_count(file: SourceFile) -> int:
    """Return the number of parts of a file; an empty file has one."""
    return -(-file.size // PART_BYTES) or 1


def parts_of(file: SourceFile) -> list[FilePart]:
    """Return the parts of a file."""
    return [(file, number) for number in range(part_count(file))]


def partial_name(file: SourceFile) -> bytes:
    """Return the name of an incomplete copy; another version of the source has another name."""
    what = b"%s\0%d\0%d" % (file.path, *file.version)
    return hashlib.blake2b(what, digest_size=16).hexdigest().encode() + b".partial"
