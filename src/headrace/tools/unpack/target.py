"""The folder that is unpacked into: each member is complete or not there at all."""

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

from headrace.data.storage.file_writing import OutputFolder, OutputFolders, write_error
from headrace.data.storage.open_file import printable_path
from headrace.errors import HeadraceError, WriteError
from headrace.tools.unpack.plan import PIECE_BYTES, STAGING, MemberAttributes, Piece, file_mode

# -- from unpack/staging.py: The folder in the target where files wait for their names if they cannot be without one.
# It is gone at the end, and
# if a run is killed the next one removes it.


class StagingFolder:
    """Made when it is first needed, and locked while it is in use. Any number of threads may ask."""

    def __init__(self, target: OutputFolders) -> None:
        """Removes what a killed run has left. Raises WriteError."""
        self._root = target.root
        self._lock = threading.Lock()
        self._folder: OutputFolder | None = None
        self._numbers = itertools.count()
        self.is_spared = Path("/proc/self/fd").is_dir()  # by way of which an unnamed file gets its name
        """Whether unnamed files are to be had."""
        if self._root.find(STAGING) is not None:
            with suppress(BlockingIOError):  # another process is using it
                self._folder = self._enter()
            self.close()

    def folder(self) -> OutputFolder:
        """Raises WriteError, also if another process is using it."""
        with self._lock:
            if self._folder is None:
                try:
                    self._folder = self._enter()
                except BlockingIOError as error:
                    raise WriteError(
                        f"{printable_path(self._root.place(STAGING))}: expected to be alone in this folder, got "
                        "another "
                        f"process that unpacks into it. Run it again when that has ended"
                    ) from error
            return self._folder

    def new_name(self) -> bytes:
        return str(next(self._numbers)).encode()

    def close(self) -> None:
        """Removes the folder. Raises WriteError."""
        if self._folder is not None:
            try:
                _clear_staging(self._folder)
                os.rmdir(STAGING, dir_fd=self._root.descriptor)
            except OSError as error:
                raise write_error(self._folder.path, error) from error
            finally:
                self._folder = None

    def _enter(self) -> OutputFolder:
        """The folder, empty and locked. Raises BlockingIOError or WriteError."""
        try:
            while True:
                with suppress(FileExistsError):
                    os.mkdir(STAGING, 0o700, dir_fd=self._root.descriptor)
                folder = _open_staging(self._root)
                fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have removed it before it was locked.
                found = self._root.find(STAGING)
                if found is not None and os.path.samestat(found, os.fstat(folder.descriptor)):
                    _clear_staging(folder)
                    return folder
        except BlockingIOError:
            raise
        except OSError as error:
            raise write_error(self._root.place(STAGING), error) from error


def _open_staging(root: OutputFolder) -> OutputFolder:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return OutputFolder(os.open(STAGING, flags, dir_fd=root.descriptor), root.place(STAGING))


def _clear_staging(folder: OutputFolder) -> None:
    for name in os.listdir(folder.descriptor):
        os.unlink(name, dir_fd=folder.descriptor)


# -- from unpack/new_file.py: A file that gets its name once it is complete: without any until then where the file
# system can (O_TMPFILE), so that
# nothing is left of it if the process is killed; else under a name in the staging folder.
#
# Both take the time of a plain write (benchmarks/unpack.py).


_LACKING = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""How file systems and kernels say that they have no O_TMPFILE (open(2))."""


class NewFile:
    """`with NewFile(folder, staging) as descriptor:` … `name_as`. Without that it is gone at the end.

    Its methods raise OSError.
    """

    def __init__(self, folder: OutputFolder, staging: StagingFolder, *, replace: bool, mode: int) -> None:
        """`replace`: take the place of what has the name, as an unnamed file cannot."""
        self._folder = folder
        self._staged: bytes | None = None
        self._staging = staging
        flags = os.O_RDWR | os.O_CLOEXEC
        if not replace and staging.is_spared:
            try:
                self.descriptor = os.open(b".", flags | os.O_TMPFILE, mode, dir_fd=folder.descriptor)
                return
            except OSError as error:
                if error.errno not in _LACKING:
                    raise
                staging.is_spared = False
        self._staged = staging.new_name()
        self.descriptor = os.open(
            self._staged, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=staging.folder().descriptor
        )

    def __enter__(self) -> NewFile:
        return self

    def name_as(self, name: bytes) -> None:
        """Raises FileExistsError if there is one and this file was not to replace it, as far as this can be seen."""
        target = self._folder.descriptor
        if self._staged is None:
            os.link(f"/proc/self/fd/{self.descriptor}", name, dst_dir_fd=target, follow_symlinks=True)
        else:
            os.rename(self._staged, name, src_dir_fd=self._staging.folder().descriptor, dst_dir_fd=target)
            self._staged = None

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)
        if self._staged is not None:
            os.unlink(self._staged, dir_fd=self._staging.folder().descriptor)


# -- from unpack/contents.py: A file's bytes, from its pieces to a disk, or compared with what is there.


_ZEROS = memoryview(bytes(PIECE_BYTES))


def write_pieces(descriptor: int, pieces: Iterable[Piece], size: int) -> None:
    """Makes an empty file of `size` bytes: `pieces`, and holes between them. Raises OSError."""
    end = 0
    for at, data in pieces:
        end = at + len(data)
        while data:
            written = os.pwrite(descriptor, data, at)
            at, data = at + written, data[written:]
    if end < size:
        os.ftruncate(descriptor, size)


def holds_pieces(descriptor: int, pieces: Iterable[Piece], size: int) -> bool:
    """Whether the file has `size` bytes, those of `pieces` and zeros between them. Raises OSError."""
    if os.fstat(descriptor).st_size != size:
        return False
    buffer = memoryview(bytearray(PIECE_BYTES))
    return all(_holds_piece(descriptor, at, data, buffer) for at, data in _with_zeros(pieces, size))


def _holds_piece(descriptor: int, at: int, data: memoryview, buffer: memoryview) -> bool:
    while data:
        got = os.preadv(descriptor, [buffer[: len(data)]], at)
        if got == 0 or buffer[:got] != data[:got]:
            return False
        at, data = at + got, data[got:]
    return True


def _with_zeros(pieces: Iterable[Piece], size: int) -> Iterator[Piece]:
    """`pieces`, and zeros wherever they leave a hole."""
    end = 0
    for at, data in pieces:
        yield from _zeros(end, at)
        yield at, data
        end = at + len(data)
    yield from _zeros(end, size)


def _zeros(start: int, stop: int) -> Iterator[Piece]:
    for at in range(start, stop, PIECE_BYTES):
        yield at, _ZEROS[: stop - at]


# -- from unpack/target.py: The folder that is unpacked into: puts each member where it belongs, unless it is there
# already.
#
# A file counts as complete by its size and its time of modification, as with rsync; where the time alone differs, its
# bytes are compared. Whatever has its name is complete, so running a command again goes on where it was killed.


Pieces = Callable[[], Iterator[Piece]]


class Placed(Enum):
    MADE = "made"
    KEPT = "kept"
    """It was there."""
    DIFFERS = "differs"
    """Something else was there, and still is."""


class UnpackTarget:
    """Any number of threads may place members. Every method raises WriteError, and what `pieces` raise."""

    def __init__(self, root: bytes, *, overwrite: bool) -> None:
        """`overwrite`: what differs is replaced, unless it is a folder."""
        self._folders = OutputFolders(root)
        self._staging = StagingFolder(self._folders)
        self._overwrite = overwrite

    def close(self) -> None:
        self._staging.close()

    def place(self, path: bytes) -> str:
        """Where that path lies, for messages."""
        return printable_path(self._folders.root.place(path))

    def place_file(
        self, path: bytes, size: int, attributes: MemberAttributes, pieces: Pieces, *, replace: bool = False
    ) -> Placed:
        """`pieces` is called once at most. `replace` what is there, even a file of the same size and time."""
        folder, name = self._folders.parent(path)
        with _writing(folder, name):
            found = folder.find(name)
            if found is not None and not replace and _is_complete(found, size, attributes.mtime_ns):
                return Placed.KEPT
            if found is None or self._is_replaced(found, replace):
                return self._make_file(folder, name, size, attributes, pieces(), replace=found is not None)
            if _file_holds(folder, name, found, size, pieces):
                _set_time(folder, name, attributes.mtime_ns)
                return Placed.KEPT
            return Placed.DIFFERS

    def place_symbolic_link(self, path: bytes, target: bytes, mtime_ns: int, *, replace: bool = False) -> Placed:
        folder, name = self._folders.parent(path)
        with _writing(folder, name):
            found = folder.find(name)
            if found is not None and _leads_to(folder, name, found, target):
                return Placed.KEPT
            if found is not None and not self._is_replaced(found, replace):
                return Placed.DIFFERS
            self._put(folder, name, lambda at, called: os.symlink(target, called, dir_fd=at), replace=found is not None)
            _set_time(folder, name, mtime_ns)
            return Placed.MADE

    def place_hard_link(self, path: bytes, target: bytes, *, replace: bool = False) -> Placed:
        """Makes `path` another name of the file at `target`."""
        folder, name = self._folders.parent(path)
        other, there = self._folders.parent(target)
        with _writing(folder, name):
            found, file = folder.find(name), other.find(there)
            if found is not None:
                if file is not None and os.path.samestat(found, file):
                    return Placed.KEPT
                if not self._is_replaced(found, replace):
                    return Placed.DIFFERS
            self._put(
                folder,
                name,
                lambda at, called: os.link(
                    there, called, src_dir_fd=other.descriptor, dst_dir_fd=at, follow_symlinks=False
                ),
                replace=found is not None,
            )
            return Placed.MADE

    def place_folder(self, path: bytes) -> None:
        self._folders.open(path)

    def set_folder_time(self, path: bytes, mtime_ns: int) -> None:
        """To be called once nothing more is made in it."""
        folder = self._folders.open(path)
        with _writing(folder, b""):
            os.utime(folder.descriptor, ns=(mtime_ns, mtime_ns))

    def leads_inside(self, path: bytes, target: bytes) -> bool:
        """Whether a link at `path` to `target` stays below the root, given the links that are there already."""
        root = os.path.realpath(self._folders.root.path)
        above = path.rpartition(b"/")[0]
        end = os.path.realpath(os.path.join(root, above, target))
        return os.path.commonpath((root, end)) == root

    def holds_file(self, path: bytes, size: int, pieces: Pieces) -> bool:
        """Whether `path` is a file of that size and bytes."""
        folder, name = self._folders.parent(path)
        with _writing(folder, name):
            found = folder.find(name)
            return found is not None and _file_holds(folder, name, found, size, pieces)

    def _is_replaced(self, found: os.stat_result, replace: bool) -> bool:
        return (replace or self._overwrite) and not stat.S_ISDIR(found.st_mode)

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
        mtime_ns = attributes.mtime_ns
        with NewFile(folder, self._staging, replace=replace, mode=0o666 if attributes.mode is None else 0o600) as file:
            write_pieces(file.descriptor, pieces, size)
            if attributes.mode is not None:
                os.fchmod(file.descriptor, file_mode(attributes.mode))
            os.utime(file.descriptor, ns=(mtime_ns, mtime_ns))
            try:
                file.name_as(name)
            except FileExistsError:  # somebody else was quicker
                found = folder.find(name)
                return Placed.KEPT if found is not None and _is_complete(found, size, mtime_ns) else Placed.DIFFERS
        return Placed.MADE

    def _put(self, folder: OutputFolder, name: bytes, make: Callable[[int, bytes], None], *, replace: bool) -> None:
        """`make` makes something in a folder under a name, all at once."""
        if not replace:
            make(folder.descriptor, name)
            return
        staging, staged = self._staging.folder().descriptor, self._staging.new_name()
        make(staging, staged)
        os.rename(staged, name, src_dir_fd=staging, dst_dir_fd=folder.descriptor)


@contextmanager
def _writing(folder: OutputFolder, name: bytes) -> Iterator[None]:
    try:
        yield
    except HeadraceError:
        raise
    except OSError as error:
        raise write_error(folder.place(name), error) from error


def _is_complete(found: os.stat_result, size: int, mtime_ns: int) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size == size and found.st_mtime_ns == mtime_ns


def _leads_to(folder: OutputFolder, name: bytes, found: os.stat_result, target: bytes) -> bool:
    return stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=folder.descriptor) == target


def _file_holds(folder: OutputFolder, name: bytes, found: os.stat_result, size: int, pieces: Pieces) -> bool:
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        return False
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder.descriptor)
    try:
        return holds_pieces(descriptor, pieces(), size)
    finally:
        os.close(descriptor)


def _set_time(folder: OutputFolder, name: bytes, mtime_ns: int) -> None:
    os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=folder.descriptor, follow_symlinks=False)
