"""Target folder of unpacking. Creates each member at its path unless it is already there.

A file counts as complete by size and modification time, as in rsync; if only the time differs, the bytes are compared.
A file is named only once it is complete, so a killed run can be resumed by running it again. Until then it is unnamed
(O_TMPFILE), or named in the staging folder if that is not supported. Both are as fast as a plain write
(benchmarks/unpack.py).
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

from headrace.data import OutputFolder, OutputFolders, printable_path, writing
from headrace.errors import WriteError
from headrace.tools.unpack.plan import PIECE_BYTES, STAGING, MemberAttributes, Piece, file_mode

Pieces = Callable[[], Iterator[Piece]]

_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""Errors of file systems and kernels without O_TMPFILE (open(2))."""
_ZEROS = memoryview(bytes(PIECE_BYTES))


class Placed(Enum):
    MADE = "made"
    KEPT = "kept"
    """An identical entry existed."""
    DIFFERS = "differs"
    """A different entry existed and was not replaced."""


class UnpackTarget:
    """Target folder for any number of threads. Every method raises WriteError and the errors of `pieces`."""

    def __init__(self, root: bytes, *, overwrite: bool) -> None:
        """Create the folder if missing. `overwrite` replaces different entries unless they are folders."""
        self._folders = OutputFolders(root)
        self._staging = StagingFolder(self._folders.root)
        self._overwrite = overwrite

    def close(self) -> None:
        self._staging.close()

    def place(self, path: bytes) -> str:
        """Return the full path for messages."""
        return printable_path(self._folders.root.place(path))

    def place_file(
        self, path: bytes, size: int, attributes: MemberAttributes, pieces: Pieces, *, replace: bool = False
    ) -> Placed:
        """Create a file from `pieces`, called at most once. `replace` an existing file even if it seems complete."""
        with self._at(path) as (folder, name, found):
            if found is not None and not replace and _is_complete(found, size, attributes.mtime_ns):
                return Placed.KEPT
            if found is None or self._is_replaced(found, replace):
                return self._make_file(folder, name, size, attributes, pieces(), replace=found is not None)
            if not _holds_file(folder, name, found, size, pieces):
                return Placed.DIFFERS
            os.utime(name, ns=(attributes.mtime_ns,) * 2, dir_fd=folder.descriptor, follow_symlinks=False)
            return Placed.KEPT

    def place_symbolic_link(self, path: bytes, target: bytes, mtime_ns: int, *, replace: bool = False) -> Placed:
        def make(at: int, name: bytes) -> None:
            os.symlink(target, name, dir_fd=at)
            os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=at, follow_symlinks=False)

        with self._at(path) as (folder, name, found):
            is_there = found is not None and stat.S_ISLNK(found.st_mode)
            if is_there and os.readlink(name, dir_fd=folder.descriptor) == target:
                return Placed.KEPT
            return self._put(folder, name, found, make, replace)

    def place_hard_link(self, path: bytes, target: bytes, *, replace: bool = False) -> Placed:
        """Create `path` as a hard link to the file at `target`."""
        other, there = self._folders.parent(target)

        def make(at: int, name: bytes) -> None:
            os.link(there, name, src_dir_fd=other.descriptor, dst_dir_fd=at, follow_symlinks=False)

        with self._at(path) as (folder, name, found):
            file = other.find(there)
            if found is not None and file is not None and os.path.samestat(found, file):
                return Placed.KEPT
            return self._put(folder, name, found, make, replace)

    def place_folder(self, path: bytes) -> None:
        self._folders.open(path)

    def set_folder_time(self, path: bytes, mtime_ns: int) -> None:
        """Set a folder's time, after its last entry was created."""
        folder = self._folders.open(path)
        with writing(folder.path):
            os.utime(folder.descriptor, ns=(mtime_ns, mtime_ns))

    def leads_inside(self, path: bytes, target: bytes) -> bool:
        """Return True if a link at `path` to `target` stays inside the root, given the links already there."""
        root = os.path.realpath(self._folders.root.path)
        end = os.path.realpath(os.path.join(root, path.rpartition(b"/")[0], target))
        return os.path.commonpath((root, end)) == root

    def holds_file(self, path: bytes, size: int, pieces: Pieces) -> bool:
        """Return True if `path` is a file with that size and those bytes."""
        with self._at(path) as (folder, name, found):
            return found is not None and _holds_file(folder, name, found, size, pieces)

    @contextmanager
    def _at(self, path: bytes) -> Iterator[tuple[OutputFolder, bytes, os.stat_result | None]]:
        """Yield the folder of `path`, its name there, and the existing entry's status, if any."""
        folder, name = self._folders.parent(path)
        with writing(folder.place(name)):
            yield folder, name, folder.find(name)

    def _is_replaced(self, found: os.stat_result, replace: bool) -> bool:
        return (replace or self._overwrite) and not stat.S_ISDIR(found.st_mode)

    def _put(
        self,
        folder: OutputFolder,
        name: bytes,
        found: os.stat_result | None,
        make: Callable[[int, bytes], None],
        replace: bool,
    ) -> Placed:
        """Create an entry by `make(folder, name)`, replacing `found` atomically if that is allowed."""
        if found is None:
            make(folder.descriptor, name)
            return Placed.MADE
        if not self._is_replaced(found, replace):
            return Placed.DIFFERS
        staging, staged = self._staging.folder().descriptor, self._staging.new_name()
        make(staging, staged)
        os.rename(staged, name, src_dir_fd=staging, dst_dir_fd=folder.descriptor)
        return Placed.MADE

    def _make_file(
        self,
        folder: OutputFolder,
        name: bytes,
        size: int,
        attributes: MemberAttributes,
        pieces: Iterator[Piece],
        *,
        replace: bool,
    ) -> Placed:
        """Create a file that is named only once it is complete; an incomplete file is deleted."""
        mode, mtime_ns = attributes
        descriptor, staged = self._new_file(folder, 0o666 if mode is None else 0o600, replace)
        try:
            _write_pieces(descriptor, pieces, size)
            if mode is not None:
                os.fchmod(descriptor, file_mode(mode))
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            if staged is None:
                os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=folder.descriptor, follow_symlinks=True)
            else:
                staging = self._staging.folder().descriptor
                os.rename(staged, name, src_dir_fd=staging, dst_dir_fd=folder.descriptor)
                staged = None
        except FileExistsError:  # another process was faster
            found = folder.find(name)
            return Placed.KEPT if found is not None and _is_complete(found, size, mtime_ns) else Placed.DIFFERS
        finally:
            os.close(descriptor)
            if staged is not None:
                os.unlink(staged, dir_fd=self._staging.folder().descriptor)
        return Placed.MADE

    def _new_file(self, folder: OutputFolder, mode: int, replace: bool) -> tuple[int, bytes | None]:
        """Open an unnamed file, or a file in the staging folder for `replace` or without O_TMPFILE."""
        flags = os.O_RDWR | os.O_CLOEXEC
        if not replace and self._staging.is_spared:
            try:
                return os.open(b".", flags | os.O_TMPFILE, mode, dir_fd=folder.descriptor), None
            except OSError as error:
                if error.errno not in _NO_UNNAMED_FILES:
                    raise
                self._staging.is_spared = False
        staged, staging = self._staging.new_name(), self._staging.folder().descriptor
        return os.open(staged, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=staging), staged


class StagingFolder:
    """Folder in the target for incomplete files that need a name.

    It is created on first use, locked while in use, and removed at the end; the next run removes it after a killed run.
    Safe for any number of threads.
    """

    def __init__(self, root: OutputFolder) -> None:
        """Remove the leftovers of a killed run. Raises WriteError."""
        self._root = root
        self._lock = threading.Lock()
        self._folder: OutputFolder | None = None
        self._numbers = itertools.count()
        self.is_spared = Path("/proc/self/fd").is_dir()  # needed to name an unnamed file
        """True while unnamed files seem to be supported."""
        if root.find(STAGING) is not None:
            with suppress(BlockingIOError):  # another process is using it
                self._folder = self._enter()
            self.close()

    def folder(self) -> OutputFolder:
        """Return the open folder. Raises WriteError, also if another process is using it."""
        with self._lock:
            try:
                self._folder = self._folder or self._enter()
            except BlockingIOError as error:
                raise WriteError(
                    f"{printable_path(self._root.place(STAGING))}: expected to be alone in this folder, got another "
                    f"process that unpacks into it. Run it again when that has ended"
                ) from error
            return self._folder

    def new_name(self) -> bytes:
        return str(next(self._numbers)).encode()

    def close(self) -> None:
        """Remove the folder. Raises WriteError."""
        folder, self._folder = self._folder, None
        if folder is not None:
            with writing(self._root.place(STAGING)):
                _clear(folder)
                os.rmdir(STAGING, dir_fd=self._root.descriptor)

    def _enter(self) -> OutputFolder:
        """Return the folder, empty and locked. Raises BlockingIOError or WriteError."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with writing(self._root.place(STAGING)):
            while True:
                with suppress(FileExistsError):
                    os.mkdir(STAGING, 0o700, dir_fd=self._root.descriptor)
                place = self._root.place(STAGING)
                folder = OutputFolder(os.open(STAGING, flags, dir_fd=self._root.descriptor), place)
                fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have removed it before it was locked.
                found = self._root.find(STAGING)
                if found is not None and os.path.samestat(found, os.fstat(folder.descriptor)):
                    _clear(folder)
                    return folder


def _clear(folder: OutputFolder) -> None:
    for name in os.listdir(folder.descriptor):
        os.unlink(name, dir_fd=folder.descriptor)


def _is_complete(found: os.stat_result, size: int, mtime_ns: int) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size == size and found.st_mtime_ns == mtime_ns


def _write_pieces(descriptor: int, pieces: Iterable[Piece], size: int) -> None:
    """Fill an empty file of `size` bytes with `pieces`, and holes between them."""
    end = 0
    for at, data in pieces:
        end = at + len(data)
        while data:
            written = os.pwrite(descriptor, data, at)
            at, data = at + written, data[written:]
    if end < size:
        os.ftruncate(descriptor, size)


def _holds_file(folder: OutputFolder, name: bytes, found: os.stat_result, size: int, pieces: Pieces) -> bool:
    """Return True if the file has `size` bytes: `pieces`, and zeros between them."""
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        return False
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder.descriptor), "rb", buffering=0) as file:
        buffer = memoryview(bytearray(PIECE_BYTES))
        for at, data in _with_zeros(pieces(), size):
            while data:
                got = os.preadv(file.fileno(), [buffer[: len(data)]], at)
                if got == 0 or buffer[:got] != data[:got]:
                    return False
                at, data = at + got, data[got:]
    return True


def _with_zeros(pieces: Iterable[Piece], size: int) -> Iterator[Piece]:
    """Yield `pieces`, and zeros for the holes between them."""
    end = 0
    for at, data in itertools.chain(pieces, [(size, _ZEROS[:0])]):
        for hole in range(end, at, PIECE_BYTES):
            yield hole, _ZEROS[: at - hole]
        yield at, data
        end = at + len(data)
