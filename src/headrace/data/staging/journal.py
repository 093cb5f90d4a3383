"""Journal of the complete files in a folder of copies; it also locks the folder.

The journal is in a private subfolder, next to the incomplete files. A copy counts once its line is in the journal and
the file has its final name. The line comes first, so a file with a final name but no line was not staged.

The journal is JSON, one object per line, and untrusted. Each object ends in `"check"`, the CRC-32 of the line without
that field. Lines of the first version have no checks: a journal that starts in that version is read without them.

    {"format": "headrace stage 2", "sources": [["name", "/path"], …], "part_bytes": 67108864, "made": true}
    {"folder": "name"}                                                        was created
    {"file": "name/path", "size": 5, "mtime_ns": 7, "crc32": [1]}             complete, read back; one sum per part
    {"part": "name/path", "size": 5, "mtime_ns": 7, "number": 0, "crc32": 1}  part of an incomplete file
    {"gone": "name/path"}                                                     was removed, as the source is gone
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from headrace.data.staging.source_files import STAGE_FOLDER, SourceFile, is_in_memory
from headrace.data.storage.file_writing import OutputFolders, write_error, writing
from headrace.data.storage.open_file import printable_path
from headrace.errors import WriteError

FORMAT = "headrace stage 2"
_WITHOUT_CHECKS = "headrace stage 1"
_CHECK = re.compile(rb', "check": "([0-9a-f]{8})"}\Z')
_NAME = b"journal"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_PARTIAL = re.compile(rb"[0-9a-f]{32}\.partial")


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


class StageJournal:
    """Folder of copies and its journal, locked against other staging processes.

    Thread-safe for adding. Methods raise WriteError.
    """

    def __init__(self, folders: OutputFolders, descriptor: int, *, made: bool) -> None:
        """Read the journal. `made`: True if the folder of copies did not exist before it was locked."""
        self.folders = folders
        self.folder = folders.open(STAGE_FOLDER)
        self.in_memory = is_in_memory(folders.root.path)
        """True on tmpfs, which does not outlive the machine, so nothing is synced to disk."""
        self.header: JournalHeader | None = None
        self.files: dict[bytes, CopyRecord] = {}
        self.parts: dict[bytes, dict[int, CopyRecord]] = {}
        """Parts of incomplete files, by path and number."""
        self.made_folders: set[bytes] = set()
        self._descriptor = descriptor
        self._lock = threading.Lock()
        if self.in_memory:
            self._expect_own()
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

    def partial_files(self) -> list[bytes]:
        """List the incomplete files."""
        return [name for name in map(os.fsencode, os.listdir(self.folder.descriptor)) if _PARTIAL.fullmatch(name)]

    def clear_partial(self, keep: Iterable[bytes] = ()) -> None:
        """Remove incomplete files, except those named in `keep`."""
        for name in set(self.partial_files()).difference(keep):
            self._unlink(name)

    def remove(self) -> None:
        """Remove the journal, after everything else."""
        self.clear_partial()
        self._unlink(_NAME)
        self.header = None

    def _unlink(self, name: bytes) -> None:
        with writing(self.folder.place(name)):
            os.unlink(name, dir_fd=self.folder.descriptor)

    def _append(self, entries: list[dict[str, Any]]) -> None:
        lines = [json.dumps(entry).encode() for entry in entries]
        data = b"".join(line[:-1] + b', "check": "' + _sum(line) + b'"}\n' for line in lines)
        with writing(self.folder.place(_NAME)):
            while data:
                data = data[os.write(self._descriptor, data) :]
            if not self.in_memory:
                os.fdatasync(self._descriptor)

    def _read(self) -> None:
        """Read the journal. Drop a last line that a kill cut short: its work is repeated."""
        place = self.folder.place(_NAME)
        with writing(place):
            with open(self._descriptor, "rb", closefd=False) as file:
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):
                os.ftruncate(self._descriptor, len(whole))
        number, is_checked = 0, True
        try:
            for number, line in enumerate(whole.splitlines(), 1):
                entry, has_check = _read_line(line)
                if number == 1:
                    self.header, is_checked = _read_header(entry)
                if is_checked and not has_check:
                    raise DamagedJournalError("has no checksum")
                if number > 1:
                    self._take(entry)
        except DamagedJournalError as error:
            raise WriteError(
                f"{printable_path(place)}: expected the journal of what is staged here, got one that cannot be used: "
                f"line {number:,} {error}. Delete the folder {printable_path(os.path.dirname(self.folder.path))} and "
                f"stage again"
            ) from error

    def _take(self, entry: object) -> None:
        """Apply a line to the state. Raises DamagedJournalError."""
        match entry:
            case {"file": str(text), "size": int(size), "mtime_ns": int(mtime_ns), "crc32": [*sums]} if _all(int, sums):
                path = _path(text)
                self.files[path] = CopyRecord((size, mtime_ns), tuple(sums))
                self.parts.pop(path, None)
            case {
                "part": str(text),
                "size": int(size),
                "mtime_ns": int(mtime_ns),
                "number": int(number),
                "crc32": int(sum_),
            }:
                self.parts.setdefault(_path(text), {})[number] = CopyRecord((size, mtime_ns), (sum_,))
            case {"folder": str(text)}:
                self.made_folders.add(_path(text))
            case {"gone": str(text)}:
                self.files.pop(_path(text), None)
            case _:
                raise DamagedJournalError("is no record")

    def _expect_own(self) -> None:
        """Raise WriteError for another user's folder.

        /dev/shm is shared: the owner of a folder there can let others write in it, and so controls the bytes read from
        it.
        """
        for folder in (self.folders.root, self.folder):
            owner = os.fstat(folder.descriptor).st_uid
            if owner not in (os.geteuid(), 0):
                raise WriteError(
                    f"{printable_path(folder.path)}: expected a folder of user {os.geteuid()} in memory, got one of "
                    f"user {owner}, who could change the copies. Stage into a folder of your own"
                )


def _read_line(line: bytes) -> tuple[Any, bool]:
    """Return the parsed line, and True if it has a checksum."""
    check = _CHECK.search(line, max(0, len(line) - len(b', "check": "00000000"}')))
    bare = line if check is None else line[: check.start()] + b"}"
    if check is not None and check[1] != _sum(bare):
        raise DamagedJournalError("does not fit its checksum")
    try:
        return json.loads(bare), check is not None
    except (ValueError, RecursionError):
        raise DamagedJournalError("is no JSON") from None


def _read_header(entry: Any) -> tuple[JournalHeader, bool]:
    """Return the header, and True if each line must have a checksum."""
    match entry:
        case {"format": str(name)} if name not in (FORMAT, _WITHOUT_CHECKS):
            raise DamagedJournalError(f"is of another version, {name!r}; this one writes {FORMAT!r}")
        case {"format": str(name), "sources": [*sources], "part_bytes": int(part_bytes), "made": bool(made)}:
            if part_bytes > 0 and all(isinstance(one, list) and len(one) == 2 and _all(str, one) for one in sources):
                return JournalHeader(tuple((one[0], one[1]) for one in sources), part_bytes, made), name == FORMAT
    raise DamagedJournalError("is no header")


def _path(text: str) -> bytes:
    """Return a relative path that stays inside its folder. Raises DamagedJournalError for any other path."""
    try:
        path = os.fsencode(text)
    except UnicodeEncodeError:
        path = b""
    if b"\0" in path or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise DamagedJournalError(f"names {text!r}, which no copy is called")
    return path


def _all(kind: type, values: Iterable[object]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _sum(bare: bytes) -> bytes:
    return b"%08x" % zlib.crc32(bare)


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
    descriptor = None
    while descriptor is None:
        made = not os.path.isdir(root)
        folders = OutputFolders(root)
        descriptor = _locked_journal(folders, wait=wait)
    try:
        journal = StageJournal(folders, descriptor, made=made)
        try:
            yield journal
        finally:
            if journal.header is None:
                # Processes that wait for the lock detect that the journal was removed.
                with suppress(FileNotFoundError):
                    os.unlink(_NAME, dir_fd=folders.open(STAGE_FOLDER).descriptor)
                with suppress(OSError):  # not empty, or a mount
                    os.rmdir(STAGE_FOLDER, dir_fd=folders.root.descriptor)
                    if journal.made:
                        os.rmdir(root)
    finally:
        os.close(descriptor)


def _locked_journal(folders: OutputFolders, *, wait: bool) -> int | None:
    """Return the journal's locked descriptor; None if the previous holder removed the journal, or its folder."""
    folder, descriptor = folders.root, -1
    try:
        folder = folders.open(STAGE_FOLDER)
        descriptor = os.open(_NAME, _FLAGS, 0o666, dir_fd=folder.descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        here = os.stat(os.path.join(folders.root.path, STAGE_FOLDER, _NAME), follow_symlinks=False)
        if os.path.samestat(here, os.fstat(descriptor)):
            taken, descriptor = descriptor, -1
            return taken
    except FileNotFoundError:
        pass
    except WriteError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    except BlockingIOError as error:
        raise WriteError(
            f"{printable_path(folders.root.path)}: expected to be alone in this folder, got another process that "
            f"stages into it. Run it again when that has ended"
        ) from error
    except OSError as error:
        raise write_error(folder.place(_NAME), error) from error
    finally:
        if descriptor != -1:
            os.close(descriptor)
    return None
