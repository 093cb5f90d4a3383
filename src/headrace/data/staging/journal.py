"""Journal of the parts of copies, next to the incomplete files in a private subfolder of the folder of copies.

A part counts once its line is in the journal, after it was read back. A copy gets its name after the lines of all its
parts, so a file with a name but no lines was not staged. The journal is untrusted; its lines are JSON objects, each
with its CRC-32:

    {"format": "headrace stage 4", "sources": {"name": "/path", …}, "made": true}
    {"file": "name/path", "size": 5, "mtime_ns": 7, "part": 0, "crc32": 1}   size and time of the source
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any

from headrace.data.staging.source_files import STAGE_FOLDER, FilePart, SourceFile, Version, is_in_memory, part_count
from headrace.data.storage.file_writing import OutputFolders, UnwritableError, partial_file, write_all, writing
from headrace.data.storage.open_file import DescriptorOwner, printable_path
from headrace.errors import WriteError

FORMAT = "headrace stage 4"
"""Version of the journal; a new one is also due if the size of parts changes."""
_NAME = b"journal"


class StageJournal(DescriptorOwner):
    """Locked folder of copies and its journal. Thread-safe for adding. Methods raise WriteError."""

    def __init__(self, folders: OutputFolders, *, made: bool) -> None:
        """Read the journal. `made`: True if the folder of copies did not exist before it was locked."""
        self.folders, self.folder = folders, folders.open(STAGE_FOLDER)
        self.in_memory = is_in_memory(folders.root.path)
        """True on tmpfs, which does not outlive the machine, so nothing is synced to disk."""
        self.made = made
        """True if staging created the folder of copies."""
        self.sources: dict[str, str] | None = None
        """Path of each source by name; None: nothing was staged."""
        self.files: dict[bytes, dict[tuple[int, int, int], int]] = {}
        """CRC-32 by size and modification time (ns) of the source, and number of the part; by path."""
        self._lock, self._end = threading.Lock(), 0
        if self.in_memory:
            self._expect_own()
        with writing(self.folder.place(_NAME)):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(_NAME, flags, 0o666, dir_fd=self.folder.descriptor)
        self._read()

    def begin(self, sources: dict[str, str]) -> None:
        """Write the first line."""
        self.add([{"format": FORMAT, "sources": sources, "made": self.made}])

    def add(self, entries: Sequence[dict[str, Any]]) -> None:
        lines = [json.dumps(entry).encode() for entry in entries]
        data = b"".join(b"%s %s\n" % (line, _check(line)) for line in lines)
        with self._lock, writing(self.folder.place(_NAME)):
            os.ftruncate(self._handle, self._end)  # cut off what a kill, or a full disk, has left
            write_all(self._handle, memoryview(data), self._end)
            if not self.in_memory:
                os.fdatasync(self._handle)
            self._end += len(data)
            for entry in entries:
                self._take(entry)

    def sum_of(self, part: FilePart) -> int | None:
        """Return the CRC-32 of a part that was copied; None if it was not."""
        return self.files.get(part.file.path, {}).get((*part.file.version, part.number))

    def unchanged(self, there: Mapping[bytes, Version | None]) -> Set[bytes]:
        """Return the complete copies among the files that are there, by size and modification time."""
        return {
            path
            for path, version in there.items()
            if (known := self.files.get(path)) and version is not None
            if all((*version, number) in known for number in range(part_count(version[0])))
        }

    def clear_partial(self, keep: Container[bytes] = ()) -> int:
        """Remove incomplete files, except those named in `keep`; return the bytes that these take."""
        taken = 0
        for name in map(os.fsencode, os.listdir(self.folder.descriptor)):
            with writing(self.folder.place(name)):
                if name in keep:
                    taken += os.stat(name, dir_fd=self.folder.descriptor).st_blocks * 512
                elif name != _NAME:
                    os.unlink(name, dir_fd=self.folder.descriptor)
        return taken

    def remove(self) -> None:
        """Remove the journal and its folder, after everything else."""
        self.sources = None
        self.clear_partial()
        with writing(self.folder.place(_NAME)), suppress(FileNotFoundError):
            os.unlink(_NAME, dir_fd=self.folder.descriptor)
            os.rmdir(STAGE_FOLDER, dir_fd=self.folders.root.descriptor)

    def _read(self) -> None:
        """Read the journal up to its last whole line."""
        place = self.folder.place(_NAME)
        with writing(place), open(self._handle, "rb", closefd=False) as file:
            data = file.read()
        self._end = data.rfind(b"\n") + 1
        for number, line in enumerate(data[: self._end].splitlines(), 1):
            try:
                self._take(_parsed(line))
            except (ValueError, RecursionError) as error:
                raise WriteError(
                    f"{printable_path(place)}: expected the journal of what is staged here, got one that cannot be "
                    f"used: line {number:,}: {error}. Delete the folder {printable_path(self.folders.root.path)} and "
                    f"stage again"
                ) from error

    def _take(self, entry: object) -> None:
        """Apply a line to the state. Raises ValueError."""
        match entry:
            case {"format": str(name)} if name != FORMAT:
                raise ValueError(f"is of another version, {name!r}; this one writes {FORMAT!r}")
            case {"format": _, "sources": dict(sources), "made": bool(made)} if all(map(_path, sources)):
                self.sources, self.made = sources, made
            case _ if self.sources is None:
                raise ValueError("is no header")
            case {"file": str(text), "size": int(size), "mtime_ns": int(time), "part": int(part), "crc32": int(sum_)}:
                self.files.setdefault(_path(text), {})[size, time, part] = sum_
            case _:
                raise ValueError("is no record")

    def _expect_own(self) -> None:
        """Raise WriteError for another user's folder: /dev/shm is shared, and its owner may change what is read."""
        for folder in (self.folders.root, self.folder):
            owner = os.fstat(folder.descriptor).st_uid
            if owner not in (os.geteuid(), 0):
                raise WriteError(
                    f"{printable_path(folder.path)}: expected a folder of user {os.geteuid()} in memory, got one of "
                    f"user {owner}, who could change the copies. Stage into a folder of your own"
                )


def partial_name(file: SourceFile) -> bytes:
    """Return the name of the incomplete file of a copy; another version of the source has another name."""
    what = b"%s\0%d\0%d" % (file.path, *file.version)
    return hashlib.blake2b(what, digest_size=16).hexdigest().encode() + b".partial"


@contextmanager
def locked_folder(root: bytes, *, wait: bool) -> Iterator[StageJournal]:
    """Create the folder `root` and the journal if missing, and lock them.

    Wait for another lock holder, or without `wait` raise an error. If nothing was staged by the end, remove both again
    unless the folder has other content. Raises WriteError.
    """
    made, journal = not os.path.isdir(root), None
    try:
        with partial_file(os.fsdecode(os.path.join(root, STAGE_FOLDER)), patience_s=None if wait else 0):
            journal = StageJournal(OutputFolders(root), made=made)
            try:
                yield journal
            finally:
                if journal.sources is None:
                    journal.remove()
    except UnwritableError as error:
        why = error if error.__cause__ else "another process that stages into it. Run it again when that has ended"
        raise WriteError(f"{printable_path(root)}: expected to be alone in this folder, got {why}") from error
    finally:
        if journal is not None and journal.sources is None and journal.made:
            with suppress(OSError):  # not empty, or a mount
                os.rmdir(root)


def _parsed(line: bytes) -> Any:
    bare, _, check = line.rpartition(b" ")
    if check != _check(bare):
        raise ValueError("does not fit its checksum")
    return json.loads(bare)


def _path(text: str) -> bytes:
    """Return a relative path that stays inside its folder. Raises ValueError for any other path."""
    path = os.fsencode(text)
    if b"\0" in path or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise ValueError(f"names {text!r}, which no copy is called")
    return path


def _check(line: bytes) -> bytes:
    return b"%08x" % zlib.crc32(line)
