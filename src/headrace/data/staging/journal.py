"""The folder in the folder of copies that is ours: a journal of what is complete, which is also the lock, and the files
that are not complete yet.

A copy counts once its line is in the journal and it has its name. The line comes first, so that whatever has a name
without a line is somebody else's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from headrace.data.staging.source_files import Wanted
from headrace.data.storage.file_writing import Folder, Folders
from headrace.data.storage.open_file import path_text
from headrace.data.write_errors import unwritable
from headrace.errors import WriteError
from headrace.stage.mounts import is_in_memory
from headrace.stage.records import DamagedJournalError, Header, Known, Line, parse
from headrace.stage.sources import FOLDER

_NAME = b"journal"
_PARTIAL = re.compile(rb"[0-9a-f]{32}\.partial")


class Journal:
    """Open and locked. Any number of threads may add to it. Its methods raise WriteError."""

    def __init__(self, folder: Folder, descriptor: int, *, durable: bool) -> None:
        """`durable`: what is said reaches the disk before it counts."""
        self.folder = folder
        self._descriptor = descriptor
        self._durable = durable
        self._lock = threading.Lock()
        self.known = self._read()

    def begin(self, header: Header) -> None:
        """Writes the header of a journal that has none."""
        self._append([header.line()])
        self.known.header = header

    def add(self, records: Iterable[Line]) -> None:
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
            raise unwritable(self.folder.place(name), error) from error

    def _append(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            if self._durable:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise unwritable(self.folder.place(_NAME), error) from error

    def _read(self) -> Known:
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
            raise unwritable(self.folder.place(_NAME), error) from error
        except DamagedJournalError as error:
            raise WriteError(
                f"{path_text(self.folder.place(_NAME))}: expected the journal of what is staged here, got one that "
                f"cannot be used: {error}. Delete the folder {path_text(os.path.dirname(self.folder.path))} and stage "
                f"again"
            ) from error


def partial_name(wanted: Wanted) -> bytes:
    """Of the file that becomes the copy: another one if the source is another one by then."""
    what = b"%s\0%d\0%d" % (wanted.path, wanted.size, wanted.mtime_ns)
    return hashlib.blake2b(what, digest_size=16).hexdigest().encode() + b".partial"


@dataclass(frozen=True)
class Held:
    """The folder of copies, while nobody else stages into it."""

    folders: Folders
    journal: Journal
    made: bool
    """Whether `root` was not there before."""
    in_memory: bool
    """Whether it is tmpfs: nothing of it outlives the machine, so nothing is made durable."""


@contextmanager
def held(root: bytes, *, wait: bool) -> Iterator[Held]:
    """Makes the folder `root` and the journal if they are missing. Another holder is waited for, or without `wait` an
    error. Without a header at the end all this is gone again, as far as nothing else lies there. Raises WriteError."""
    while True:
        made = not os.path.isdir(root)
        folders = Folders(root)
        descriptor = _locked(folders, wait=wait)
        if descriptor is not None:
            break
    try:
        in_memory = is_in_memory(root)
        if in_memory:
            _expect_own(folders)
        journal = Journal(folders.open(FOLDER), descriptor, durable=not in_memory)
        made = made if journal.known.header is None else journal.known.header.made
        try:
            yield Held(folders, journal, made, in_memory)
        finally:
            if journal.known.header is None:
                _leave(folders, made)
    finally:
        os.close(descriptor)


def _expect_own(folders: Folders) -> None:
    """/dev/shm is everybody's: who has made a folder there, and lets others write in it, decides what is read from it.
    Raises WriteError."""
    for folder in (folders.root, folders.open(FOLDER)):
        owner = os.fstat(folder.descriptor).st_uid
        if owner not in (os.geteuid(), 0):
            raise WriteError(
                f"{path_text(folder.path)}: expected a folder of user {os.geteuid()} in memory, got one of user "
                f"{owner}, who could change the copies. Stage into a folder of your own"
            )


def _leave(folders: Folders, made: bool) -> None:
    """Whoever waits for the lock finds that the journal is not where it was."""
    with suppress(FileNotFoundError):
        os.unlink(_NAME, dir_fd=folders.open(FOLDER).descriptor)
    with suppress(OSError):  # not empty, or a mount
        os.rmdir(FOLDER, dir_fd=folders.root.descriptor)
        if made:
            os.rmdir(folders.root.path)


def _locked(folders: Folders, *, wait: bool) -> int | None:
    """The journal's descriptor; None if whoever held it before has removed it, and perhaps the folder with it."""
    folder = folders.root
    descriptor = None
    try:
        folder = folders.open(FOLDER)
        descriptor = os.open(_NAME, _FLAGS, 0o666, dir_fd=folder.descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        here = os.stat(os.path.join(folders.root.path, FOLDER, _NAME), follow_symlinks=False)
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
            f"{path_text(folders.root.path)}: expected to be alone in this folder, got another process that stages "
            f"into it. Run it again when that has ended"
        ) from error
    except OSError as error:
        raise unwritable(folder.place(_NAME), error) from error
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return None


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
