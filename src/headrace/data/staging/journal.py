"""Journal of what is complete in a folder of copies, which is also the folder's lock."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.data.staging.source_files import STAGE_FOLDER, SourceFile, is_in_memory
from headrace.data.storage.file_writing import OutputFolder, OutputFolders, write_error
from headrace.data.storage.open_file import printable_path
from headrace.errors import WriteError

# -- from stage/records.py: What a journal says, line by line: JSON, one object a line. Nothing read from it is
# trusted.
#
# Each object ends in `"check"`, the CRC-32 of the line as it is without that. Lines of the first version had none:
# where
# a journal begins as such, they are read as they are.
#
# {"format": "headrace stage 2", "sources": [["name", "/path"], …], "part_bytes": 67108864, "made": true}
# {"folder": "name"}                                                        was made
# {"file": "name/path", "size": 5, "mtime_ns": 7, "crc32": [1]}             complete, read back, one sum a part
# {"part": "name/path", "size": 5, "mtime_ns": 7, "number": 0, "crc32": 1}  of a file that is not complete yet
# {"gone": "name/path"}                                                     was removed, as the source is gone


FORMAT = "headrace stage 2"
_WITHOUT_CHECKS = "headrace stage 1"
_CHECK = re.compile(rb', "check": "([0-9a-f]{8})"}')


class DamagedJournalError(Exception):
    """What the journal says cannot be; the text says what."""


@dataclass(frozen=True)
class CopyRecord:
    """A copy that is complete."""

    path: bytes
    size: int
    mtime_ns: int
    sums: tuple[int, ...]
    """CRC-32 of each part of the source's bytes."""

    def line(self) -> bytes:
        return _line(
            {"file": os.fsdecode(self.path), "size": self.size, "mtime_ns": self.mtime_ns, "crc32": list(self.sums)}
        )


@dataclass(frozen=True)
class PartRecord:
    path: bytes
    size: int
    mtime_ns: int
    number: int
    sum: int

    def line(self) -> bytes:
        return _line(
            {
                "part": os.fsdecode(self.path),
                "size": self.size,
                "mtime_ns": self.mtime_ns,
                "number": self.number,
                "crc32": self.sum,
            }
        )


@dataclass(frozen=True)
class RemovedRecord:
    path: bytes

    def line(self) -> bytes:
        return _line({"gone": os.fsdecode(self.path)})


@dataclass(frozen=True)
class FolderRecord:
    """A folder."""

    path: bytes

    def line(self) -> bytes:
        return _line({"folder": os.fsdecode(self.path)})


@dataclass(frozen=True)
class JournalHeader:
    sources: tuple[tuple[str, str], ...]
    """Name and path of each."""
    part_bytes: int
    made: bool
    """Whether the folder of copies was not there before."""

    def line(self) -> bytes:
        sources = [list(one) for one in self.sources]
        return _line({"format": FORMAT, "sources": sources, "part_bytes": self.part_bytes, "made": self.made})


JournalRecord: TypeAlias = CopyRecord | PartRecord | RemovedRecord | FolderRecord


@dataclass
class JournalState:
    """What a journal says in all."""

    header: JournalHeader | None = None
    files: dict[bytes, CopyRecord] = field(default_factory=dict)
    parts: dict[bytes, dict[int, PartRecord]] = field(default_factory=dict)
    """Of files that are not complete, by path and number."""
    folders: set[bytes] = field(default_factory=set)

    def add(self, record: JournalRecord) -> None:
        match record:
            case CopyRecord():
                self.files[record.path] = record
                self.parts.pop(record.path, None)
            case PartRecord():
                self.parts.setdefault(record.path, {})[record.number] = record
            case FolderRecord():
                self.folders.add(record.path)
            case RemovedRecord():
                self.files.pop(record.path, None)


def parse(lines: Sequence[bytes]) -> JournalState:
    """Raises DamagedJournalError."""
    known = JournalState()
    checked = True
    for number, line in enumerate(lines, 1):
        found, has_check = _read(line, number)
        if number == 1:
            known.header, checked = _header(found)
        if checked and not has_check:
            raise DamagedJournalError(f"line {number:,} has no checksum")
        if number > 1:
            known.add(_record(found, number))
    return known


def _read(line: bytes, number: int) -> tuple[Any, bool]:
    """Return what the line says, and whether it has a checksum. Raises DamagedJournalError where that does not fit."""
    check = _CHECK.search(line, max(0, len(line) - _CHECK_BYTES))
    bare = line if check is None else line[: check.start()] + b"}"
    if check is not None and check[1] != _sum(bare):
        raise DamagedJournalError(f"line {number:,} does not fit its checksum")
    try:
        return json.loads(bare), check is not None
    except (ValueError, RecursionError):
        raise DamagedJournalError(f"line {number:,} is no JSON") from None


def _header(found: Any) -> tuple[JournalHeader, bool]:
    """Return the header, and whether each line has a checksum."""
    match found:
        case {"format": str(name)} if name not in (FORMAT, _WITHOUT_CHECKS):
            raise DamagedJournalError(f"it is of another version, {name!r}; this one writes {FORMAT!r}")
        case {"format": str(name), "sources": [*sources], "part_bytes": int(part_bytes), "made": bool(made)}:
            if part_bytes > 0 and all(isinstance(one, list) and len(one) == 2 and _all_texts(one) for one in sources):
                return JournalHeader(tuple((one[0], one[1]) for one in sources), part_bytes, made), name == FORMAT
    raise DamagedJournalError("its first line is no header")


def _record(found: Any, line: int) -> JournalRecord:
    match found:
        case {"file": str(path), "size": int(size), "mtime_ns": int(mtime_ns), "crc32": [*sums]} if _all_ints(sums):
            return CopyRecord(_path(path, line), size, mtime_ns, tuple(sums))
        case {
            "part": str(path),
            "size": int(size),
            "mtime_ns": int(mtime_ns),
            "number": int(number),
            "crc32": int(sum_),
        }:
            return PartRecord(_path(path, line), size, mtime_ns, number, sum_)
        case {"folder": str(path)}:
            return FolderRecord(_path(path, line))
        case {"gone": str(path)}:
            return RemovedRecord(_path(path, line))
    raise DamagedJournalError(f"line {line:,} is no record")


def _path(text: str, line: int) -> bytes:
    """Relative, and staying where it begins. Raises DamagedJournalError."""
    try:
        path = os.fsencode(text)
    except UnicodeEncodeError:
        path = b""
    if b"\0" in path or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise DamagedJournalError(f"line {line:,} names {text!r}, which no copy is called")
    return path


def _all_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _all_ints(values: Iterable[object]) -> bool:
    return all(isinstance(value, int) for value in values)


def _line(record: dict[str, Any]) -> bytes:
    bare = json.dumps(record).encode()
    return bare[:-1] + b', "check": "' + _sum(bare) + b'"}\n'


def _sum(bare: bytes) -> bytes:
    return b"%08x" % zlib.crc32(bare)


_CHECK_BYTES = len(b', "check": "00000000"}')


# -- from stage/journal.py: The folder in the folder of copies that is ours: a journal of what is complete, which is
# also the lock, and the files
# that are not complete yet.
#
# A copy counts once its line is in the journal and it has its name. The line comes first, so that whatever has a name
# without a line is somebody else's.


_NAME = b"journal"
_PARTIAL = re.compile(rb"[0-9a-f]{32}\.partial")


class StageJournal:
    """Open and locked. Any number of threads may add to it. Its methods raise WriteError."""

    def __init__(self, folder: OutputFolder, descriptor: int, *, durable: bool) -> None:
        """`durable`: what is said reaches the disk before it counts."""
        self.folder = folder
        self._descriptor = descriptor
        self._durable = durable
        self._lock = threading.Lock()
        self.known = self._read()

    def begin(self, header: JournalHeader) -> None:
        """Writes the header of a journal that has none."""
        self._append([header.line()])
        self.known.header = header

    def add(self, records: Iterable[JournalRecord]) -> None:
        new = list(records)
        with self._lock:
            self._append([record.line() for record in new])
            for record in new:
                self.known.add(record)

    def clear_partial(self, keep: Iterable[bytes]) -> None:
        """Removes unfinished files, but for those of these names."""
        kept = set(keep)
        for name in self._partial_files():
            if name not in kept:
                self._unlink(name)

    def partial_bytes(self, names: Iterable[bytes]) -> int:
        """What the unfinished files of these names take already."""
        wanted, found = set(names), 0
        for name in self._partial_files():
            if name in wanted:
                found += os.stat(name, dir_fd=self.folder.descriptor, follow_symlinks=False).st_blocks * 512
        return found

    def remove(self) -> None:
        """The last that goes."""
        self.clear_partial(())
        self._unlink(_NAME)
        self.known.header = None

    def _partial_files(self) -> list[bytes]:
        return [name for name in map(os.fsencode, os.listdir(self.folder.descriptor)) if _PARTIAL.fullmatch(name)]

    def _unlink(self, name: bytes) -> None:
        try:
            os.unlink(name, dir_fd=self.folder.descriptor)
        except OSError as error:
            raise write_error(self.folder.place(name), error) from error

    def _append(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            if self._durable:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise write_error(self.folder.place(_NAME), error) from error

    def _read(self) -> JournalState:
        """A last line that a kill has cut short is removed: what it was to say is done again."""
        try:
            with os.fdopen(os.dup(self._descriptor), "rb") as file:
                file.seek(0)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):
                os.ftruncate(self._descriptor, len(whole))
            return parse(whole.splitlines())
        except OSError as error:
            raise write_error(self.folder.place(_NAME), error) from error
        except DamagedJournalError as error:
            raise WriteError(
                f"{printable_path(self.folder.place(_NAME))}: expected the journal of what is staged here, got one "
                f"that cannot be used: {error}. Delete the folder {printable_path(os.path.dirname(self.folder.path))} "
                "and stage "
                f"again"
            ) from error


def partial_name(wanted: SourceFile) -> bytes:
    """Of the file that becomes the copy: another one if the source is another one by then."""
    what = b"%s\0%d\0%d" % (wanted.path, wanted.size, wanted.mtime_ns)
    return hashlib.blake2b(what, digest_size=16).hexdigest().encode() + b".partial"


@dataclass(frozen=True)
class LockedFolder:
    """The folder of copies, while nobody else stages into it."""

    folders: OutputFolders
    journal: StageJournal
    made: bool
    """Whether `root` was not there before."""
    in_memory: bool
    """Whether it is tmpfs: nothing of it outlives the machine, so nothing is made durable."""


@contextmanager
def locked_folder(root: bytes, *, wait: bool) -> Iterator[LockedFolder]:
    """Makes the folder `root` and the journal if they are missing. Another holder is waited for, or without `wait` an
    error. Without a header at the end all this is gone again, as far as nothing else lies there. Raises WriteError."""
    while True:
        made = not os.path.isdir(root)
        folders = OutputFolders(root)
        descriptor = _locked_journal(folders, wait=wait)
        if descriptor is not None:
            break
    try:
        in_memory = is_in_memory(root)
        if in_memory:
            _expect_own(folders)
        journal = StageJournal(folders.open(STAGE_FOLDER), descriptor, durable=not in_memory)
        made = made if journal.known.header is None else journal.known.header.made
        try:
            yield LockedFolder(folders, journal, made, in_memory)
        finally:
            if journal.known.header is None:
                _leave(folders, made)
    finally:
        os.close(descriptor)


def _expect_own(folders: OutputFolders) -> None:
    """/dev/shm is everybody's: who has made a folder there, and lets others write in it, decides what is read from it.
    Raises WriteError."""
    for folder in (folders.root, folders.open(STAGE_FOLDER)):
        owner = os.fstat(folder.descriptor).st_uid
        if owner not in (os.geteuid(), 0):
            raise WriteError(
                f"{printable_path(folder.path)}: expected a folder of user {os.geteuid()} in memory, got one of user "
                f"{owner}, who could change the copies. Stage into a folder of your own"
            )


def _leave(folders: OutputFolders, made: bool) -> None:
    """Whoever waits for the lock finds that the journal is not where it was."""
    with suppress(FileNotFoundError):
        os.unlink(_NAME, dir_fd=folders.open(STAGE_FOLDER).descriptor)
    with suppress(OSError):  # not empty, or a mount
        os.rmdir(STAGE_FOLDER, dir_fd=folders.root.descriptor)
        if made:
            os.rmdir(folders.root.path)


def _locked_journal(folders: OutputFolders, *, wait: bool) -> int | None:
    """The journal's descriptor; None if whoever held it before has removed it, and perhaps the folder with it."""
    folder = folders.root
    descriptor = None
    try:
        folder = folders.open(STAGE_FOLDER)
        descriptor = os.open(_NAME, _FLAGS, 0o666, dir_fd=folder.descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        here = os.stat(os.path.join(folders.root.path, STAGE_FOLDER, _NAME), follow_symlinks=False)
        if os.path.samestat(here, os.fstat(descriptor)):
            taken, descriptor = descriptor, None
            return taken
    except FileNotFoundError:
        return None
    except WriteError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    except BlockingIOError as error:
        raise WriteError(
            f"{printable_path(folders.root.path)}: expected to be alone in this folder, got another process that "
            "stages "
            f"into it. Run it again when that has ended"
        ) from error
    except OSError as error:
        raise write_error(folder.place(_NAME), error) from error
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return None


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
