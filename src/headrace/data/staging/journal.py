"""Journal of the complete files in a folder of copies, next to the incomplete files in a private subfolder.

A copy counts once its line is in the journal and the file has its final name. The line comes first, so a file with a
final name but no line was not staged. The journal is untrusted; its lines are JSON objects, each with its CRC-32:

    {"format": "headrace stage 3", "sources": [["name", "/path"], …], "part_bytes": 67108864, "made": true}
    {"file": "name/path", "size": 5, "mtime_ns": 7, "crc32": [1]}             complete, read back; one sum per part
    {"part": "name/path", "size": 5, "mtime_ns": 7, "number": 0, "crc32": 1}  part of an incomplete file
    {"gone": "name/path"}                                                     was removed, as the source is gone
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from headrace.data.staging.source_files import STAGE_FOLDER, SourceFile, is_in_memory
from headrace.data.storage.file_writing import OutputFolders, UnwritableError, partial_file, writing
from headrace.data.storage.open_file import DescriptorOwner, printable_path
from headrace.errors import WriteError

FORMAT = "headrace stage 3"
_NAME = b"journal"


class DamagedJournalError(Exception):
    """Invalid content of a journal; the message describes it."""


class JournalHeader(NamedTuple):
    sources: tuple[tuple[str, str], ...]
    """Name and path of each source."""
    part_bytes: int
    made: bool
    """True if staging created the folder of copies."""


class CopyRecord(NamedTuple):
    """Complete copy, or one part of a copy."""

    version: tuple[int, int]
    """Size and modification time (ns) of the source."""
    sums: tuple[int, ...]
    """CRC-32 of each part of the source's bytes."""


class StageJournal(DescriptorOwner):
    """Locked folder of copies and its journal. Thread-safe for adding. Methods raise WriteError."""

    def __init__(self, folders: OutputFolders, *, made: bool) -> None:
        """Read the journal. `made`: True if the folder of copies did not exist before it was locked."""
        self.folders, self.folder = folders, folders.open(STAGE_FOLDER)
        self.in_memory = is_in_memory(folders.root.path)
        """True on tmpfs, which does not outlive the machine, so nothing is synced to disk."""
        self.header: JournalHeader | None = None
        self.files: dict[bytes, CopyRecord] = {}
        self.parts: dict[tuple[bytes, int], CopyRecord] = {}
        """Parts of incomplete files, by path and number."""
        self._lock = threading.Lock()
        if self.in_memory:
            self._expect_own()
        with writing(self.folder.place(_NAME)):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(_NAME, flags, 0o666, dir_fd=self.folder.descriptor)
        self._read()
        self.made = made if self.header is None else self.header.made

    def begin(self, header: JournalHeader) -> None:
        """Write the header of a journal without one."""
        self._append([{"format": FORMAT, **header._asdict()}])
        self.header = header

    def add(self, entries: Iterable[dict[str, Any]]) -> None:
        new = list(entries)
        with self._lock:
            self._append(new)
            for entry in new:
                self._take(entry)

    def clear_partial(self, keep: Iterable[bytes] = ()) -> None:
        """Remove incomplete files, except those named in `keep`."""
        for name in set(map(os.fsencode, os.listdir(self.folder.descriptor))).difference(keep, [_NAME]):
            with writing(self.folder.place(name)):
                os.unlink(name, dir_fd=self.folder.descriptor)

    def remove(self) -> None:
        """Remove the journal and its folder, after everything else."""
        self.header = None
        self.clear_partial()
        with writing(self.folder.place(_NAME)), suppress(FileNotFoundError):
            os.unlink(_NAME, dir_fd=self.folder.descriptor)
            os.rmdir(STAGE_FOLDER, dir_fd=self.folders.root.descriptor)

    def _append(self, entries: list[dict[str, Any]]) -> None:
        lines = [json.dumps(entry).encode() for entry in entries]
        data = b"".join(b"%s %s\n" % (line, _check(line)) for line in lines)
        with writing(self.folder.place(_NAME)):
            while data:
                data = data[os.write(self._handle, data) :]
            if not self.in_memory:
                os.fdatasync(self._handle)

    def _read(self) -> None:
        """Read the journal. Drop a last line that a kill cut short: its work is repeated."""
        place, number = self.folder.place(_NAME), 0
        with writing(place), open(self._handle, "rb", closefd=False) as file:
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):
                os.ftruncate(self._handle, len(whole))
        try:
            for number, line in enumerate(whole.splitlines(), 1):
                entry = _parsed(line)
                if number == 1:
                    self.header = _header(entry)
                else:
                    self._take(entry)
        except DamagedJournalError as error:
            raise WriteError(
                f"{printable_path(place)}: expected the journal of what is staged here, got one that cannot be used: "
                f"line {number:,} {error}. Delete the folder {printable_path(self.folders.root.path)} and stage again"
            ) from error

    def _take(self, entry: object) -> None:
        """Apply a line to the state. Raises DamagedJournalError."""
        match entry:
            case {"file": str(text), "size": int(size), "mtime_ns": int(time), "crc32": [*sums]} if _all(int, sums):
                path = _path(text)
                self.files[path] = CopyRecord((size, time), tuple(sums))
                for number in range(len(sums)):
                    self.parts.pop((path, number), None)
            case {"part": str(text), "size": int(size), "mtime_ns": int(time), "number": int(at), "crc32": int(sum_)}:
                self.parts[_path(text), at] = CopyRecord((size, time), (sum_,))
            case {"gone": str(text)}:
                self.files.pop(_path(text), None)
            case _:
                raise DamagedJournalError("is no record")

    def _expect_own(self) -> None:
        """Raise WriteError for another user's folder: /dev/shm is shared, and its owner may change what is read."""
        for folder in (self.folders.root, self.folder):
            owner = os.fstat(folder.descriptor).st_uid
            if owner not in (os.geteuid(), 0):
                raise WriteError(
                    f"{printable_path(folder.path)}: expected a folder of user {os.geteuid()} in memory, got one of "
                    f"user {owner}, who could change the copies. Stage into a folder of your own"
                )


def _parsed(line: bytes) -> Any:
    bare, _, check = line.rpartition(b" ")
    if check != _check(bare):
        raise DamagedJournalError("does not fit its checksum")
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        raise DamagedJournalError("is no JSON") from None


def _header(entry: Any) -> JournalHeader:
    match entry:
        case {"format": str(name)} if name != FORMAT:
            raise DamagedJournalError(f"is of another version, {name!r}; this one writes {FORMAT!r}")
        case {"format": _, "sources": [*sources], "part_bytes": int(part_bytes), "made": bool(made)}:
            if all(isinstance(one, list) and len(one) == 2 and _all(str, one) for one in sources):
                return JournalHeader(tuple((one[0], one[1]) for one in sources), part_bytes, made)
    raise DamagedJournalError("is no header")


def _path(text: str) -> bytes:
    """Return a relative path that stays inside its folder. Raises DamagedJournalError for any other path."""
    with suppress(UnicodeEncodeError):
        path = os.fsencode(text)
        if b"\0" not in path and not any(part in (b"", b".", b"..") for part in path.split(b"/")):
            return path
    raise DamagedJournalError(f"names {text!r}, which no copy is called")


def _all(kind: type, values: Iterable[object]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _check(line: bytes) -> bytes:
    return b"%08x" % zlib.crc32(line)


def partial_name(file: SourceFile) -> bytes:
    """Return the name of the incomplete file of a copy; another version of the source has another name."""
    what = b"%s\0%d\0%d" % (file.path, *file.version)
    return hashlib.blake2b(what, digest_size=16).hexdigest().encode() + b".partial"


@contextmanager
def locked_folder(root: bytes, *, wait: bool) -> Iterator[StageJournal]:
    """Create the folder `root` and the journal if missing, and lock them.

    Wait for another lock holder, or without `wait` raise an error. Without a header at the end, remove both again
    unless the folder has other content. Raises WriteError.
    """
    made, journal = not os.path.isdir(root), None
    try:
        with partial_file(os.fsdecode(os.path.join(root, STAGE_FOLDER)), patience_s=None if wait else 0):
            journal = StageJournal(OutputFolders(root), made=made)
            try:
                yield journal
            finally:
                if journal.header is None:
                    journal.remove()
    except UnwritableError as error:
        why = error if error.__cause__ else "another process that stages into it. Run it again when that has ended"
        raise WriteError(f"{printable_path(root)}: expected to be alone in this folder, got {why}") from error
    finally:
        if journal is not None and journal.header is None and journal.made:
            with suppress(OSError):  # not empty, or a mount
                os.rmdir(root)
