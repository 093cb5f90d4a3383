"""Files during writing: partial files, scratch files, arrays that grow on disk, and output folders."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from headrace.data.storage.open_file import DescriptorOwner, printable_path
from headrace.errors import DatasetError, HeadraceError, WriteError

PARTIAL_SUFFIX = ".partial"
_SCRATCH_PREFIX = ".headrace."  # briefly visible if a file system has no unnamed files
_PIECE_BYTES = 4 << 20
_OPEN_AT_MOST = 128
_LOOK_EVERY_S = 0.02


class UnwritableError(Exception):
    """File that cannot be written at its path."""


@contextmanager
def partial_file(place: str, *, patience_s: float | None = None) -> Iterator[int]:
    """Yield the locked descriptor of `place`.partial, which is removed at the end unless renamed to `place`.

    The lock holder may write the file and rename it. The kernel frees the lock of a killed process, and the next holder
    overwrites the remains. `patience_s`: how long another holder may write nothing. Raises UnwritableError.
    """
    name = place + PARTIAL_SUFFIX
    descriptor = _lock(name, patience_s)
    try:
        yield descriptor
    finally:
        if _is_at(descriptor, name):
            with suppress(OSError):
                os.unlink(name)
        os.close(descriptor)


def finish_partial_file(partial: int, place: str, write: Callable[[BinaryIO], None]) -> None:
    """Write the locked file and rename it to `place`. Raises UnwritableError."""
    try:
        os.ftruncate(partial, 0)
        with os.fdopen(partial, "wb", closefd=False) as file:
            write(file)
        os.fsync(partial)
        os.replace(place + PARTIAL_SUFFIX, place)
    except HeadraceError:
        raise  # from the source of the bytes, such as a store
    except OSError as error:
        raise UnwritableError(error.strerror or str(error)) from error


def _lock(name: str, patience_s: float | None) -> int:
    """Open and lock `name`, waiting for another holder. Raises UnwritableError."""
    try:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        while True:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                _wait_for_lock(descriptor, patience_s)
            except BaseException:
                os.close(descriptor)
                raise
            # The previous holder may have renamed the file during the wait: then it is the finished one.
            if _is_at(descriptor, name):
                return descriptor
            os.close(descriptor)
    except OSError as error:
        raise UnwritableError(error.strerror or str(error)) from error


def _wait_for_lock(descriptor: int, patience_s: float | None) -> None:
    """Lock a file, and wait while its holder is writing it. Raises UnwritableError, OSError."""
    if patience_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    seen, since_s = None, time.monotonic()
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        status = os.fstat(descriptor)
        if (status.st_size, status.st_mtime_ns) != seen:
            seen, since_s = (status.st_size, status.st_mtime_ns), time.monotonic()
        elif time.monotonic() - since_s > patience_s:
            raise UnwritableError(f"another process has held it for {patience_s:.0f} s without writing a byte: end it")
        time.sleep(_LOOK_EVERY_S)


def _is_at(descriptor: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False


@contextmanager
def scratch_file(folder: str | None) -> Iterator[int]:
    """Yield an unnamed file, which disappears with its last descriptor, or with the process.

    `folder`: its folder; None: the temporary folder, which may be in memory. An OSError, also one of writing to it, is
    raised as UnwritableError, or as DatasetError if `folder` is None.
    """
    with _finding_room(folder), tempfile.TemporaryFile(buffering=0, dir=folder, prefix=_SCRATCH_PREFIX) as file:
        yield file.fileno()


@contextmanager
def _finding_room(folder: str | None) -> Iterator[None]:
    """Raise an OSError as `scratch_file` does."""
    try:
        yield
    except HeadraceError:
        raise
    except OSError as error:
        if folder is not None:
            raise UnwritableError(error.strerror or str(error)) from error
        raise DatasetError(
            f"{tempfile.gettempdir()}: expected a folder for temporary files with room, got: {error.strerror}. Free "
            f"some, or set TMPDIR to another folder"
        ) from error


def write_all(descriptor: int, data: memoryview, at: int) -> None:
    """Write all bytes of `data` at byte `at` of a file. Raises OSError."""
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written


class SpillFile(DescriptorOwner):
    """Unnamed file that arrays grow in; closed with the last of them."""

    def __init__(self, folder: str | None) -> None:
        """Create the file as `scratch_file` does, and raise as it does."""
        self._folder = folder
        self._end = 0
        with scratch_file(folder) as scratch:
            self._descriptor = os.dup(scratch)

    def append(self, data: memoryview) -> int:
        """Append bytes, and return their offset. Raises as creating the file does."""
        at = self._end
        with _finding_room(self._folder):
            write_all(self._handle, data, at)
        self._end += data.nbytes
        return at

    def read(self, at: int, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        found = np.empty(count, dtype)
        left = found.view(np.uint8).data
        while left:
            got = os.preadv(self._handle, [left], at)
            left, at = left[got:], at + got
        return found


class SpilledArray:
    """One-dimensional array that grows in a `SpillFile`, for columns too long for memory."""

    def __init__(self, scratch: SpillFile, dtype: type[np.generic]) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._scratch = scratch
        self._parts: list[tuple[int, int]] = []
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._count * self.dtype.itemsize

    def append(self, values: npt.NDArray[Any]) -> None:
        data = np.ascontiguousarray(values, self.dtype).view(np.uint8).data
        self._parts.append((self._scratch.append(data), len(values)))
        self._count += len(values)
        self._hash.update(data)

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the array in order, a few MB at a time."""
        step = _PIECE_BYTES // self.dtype.itemsize
        for at, count in self._parts:
            for start in range(0, count, step):
                yield self._scratch.read(at + start * self.dtype.itemsize, min(step, count - start), self.dtype)

    def digest(self) -> str:
        return self._hash.hexdigest()


_WRITE_ADVICE = {
    errno.ENOSPC: "Free space there and run it again: what is complete is kept",
    errno.EDQUOT: "Free space, or ask for a larger quota, and run it again: what is complete is kept",
    errno.EROFS: "Write into a folder that can be written",
    errno.EACCES: "Write into a folder that you may write",
    errno.EPERM: "The file system does not allow it: write into a folder on another one",
    errno.ENAMETOOLONG: "The file system does not take names that long: write into a folder on another one",
    errno.EFBIG: "The file system, or ulimit -f, does not allow files that large",
    errno.EXDEV: "Another file system is mounted below the target: write into each by itself",
    errno.ENOTDIR: "A file is where a folder should be: write into another folder",
}


def write_error(path: bytes, error: OSError) -> WriteError:
    hint = _WRITE_ADVICE.get(error.errno or 0, "Check the disk and run it again: what is complete is kept")
    return WriteError(f"{printable_path(path)}: could not be written: {error.strerror}. {hint}")


@contextmanager
def writing(path: bytes) -> Iterator[None]:
    """Raise WriteError for an OSError about `path`, except the BlockingIOError of a lock."""
    try:
        yield
    except (HeadraceError, BlockingIOError):
        raise
    except OSError as error:
        raise write_error(path, error) from error


class OutputFolder(DescriptorOwner):
    """Open folder to write into, closed with the last reference: no file ends up in another folder."""

    def __init__(self, descriptor: int, path: bytes) -> None:
        self.descriptor = self._descriptor = descriptor
        self.path = path
        """Path for messages."""

    def find(self, name: bytes) -> os.stat_result | None:
        """Return the status of the entry `name`, without following a link; None if missing."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise write_error(self.place(name), error) from error

    @contextmanager
    def opened(self, name: bytes, flags: int, mode: int = 0o600) -> Iterator[int]:
        """Open the file `name`, which must be no link. Raises WriteError, also for an OSError meanwhile."""
        with writing(self.place(name)):
            descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self.descriptor)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def move(self, name: bytes, folder: OutputFolder, to: bytes) -> None:
        """Rename the entry `name` to `to` in another folder, in place of an entry there. Raises WriteError."""
        with writing(folder.place(to)):
            os.rename(name, to, src_dir_fd=self.descriptor, dst_dir_fd=folder.descriptor)

    def remove(self, name: bytes) -> None:
        """Remove the entry `name` if it is there, unless it is a folder. Raises WriteError."""
        with writing(self.place(name)), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def place(self, name: bytes) -> bytes:
        """Return the path of the entry `name`, for messages."""
        return os.path.join(self.path, name)


class OutputFolders:
    """Folders to write into inside one root, by relative path. Thread-safe.

    They are opened one component at a time, never through a link, and cached. Files created in an open folder stay in
    it even if its path changes: no link can redirect them.
    """

    def __init__(self, root: bytes) -> None:
        """Create the root if missing; its own path may contain links. Raises WriteError."""
        try:
            os.makedirs(root, exist_ok=True)
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileExistsError as error:
            raise write_error(root, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))) from error
        except OSError as error:
            raise write_error(root, error) from error
        self.root = OutputFolder(descriptor, root)
        self._lock = threading.Lock()
        self._open: OrderedDict[bytes, OutputFolder] = OrderedDict()

    def open(self, path: bytes) -> OutputFolder:
        """Return the folder at `path`, created if missing. Raises WriteError, also for a link or a file in its way."""
        with self._lock:
            folder, missing = self._deepest(path)
            for path in missing:
                name = path.rpartition(b"/")[2]
                try:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder.descriptor)
                    folder = self._opened(folder, path)
                except NotADirectoryError as error:
                    found = folder.find(name)
                    what = "a link" if found is not None and stat.S_ISLNK(found.st_mode) else "a file"
                    raise WriteError(
                        f"{printable_path(folder.place(name))}: expected a folder, got {what}, through which nothing "
                        f"is written. Move it away, or write into another folder"
                    ) from error
                except OSError as error:
                    raise write_error(folder.place(name), error) from error
            return folder

    def find(self, path: bytes) -> OutputFolder | None:
        """Return the folder at `path`; None if missing, or if a link or a file is in its way. Raises WriteError."""
        with self._lock:
            folder, missing = self._deepest(path)
            for path in missing:
                try:
                    folder = self._opened(folder, path)
                except FileNotFoundError:
                    return None
                except OSError as error:
                    if error.errno in (errno.ENOTDIR, errno.ELOOP):
                        return None
                    raise write_error(folder.place(path), error) from error
            return folder

    def parent(self, path: bytes) -> tuple[OutputFolder, bytes]:
        """Return the parent folder of `path`, created if missing, and the name in it."""
        above, _, name = path.rpartition(b"/")
        return self.open(above), name

    def _deepest(self, path: bytes) -> tuple[OutputFolder, list[bytes]]:
        """Return the deepest open folder on the way to `path`, and the paths of the folders that follow."""
        missing: list[bytes] = []
        while path:
            folder = self._open.get(path)
            if folder is not None:
                self._open.move_to_end(path)
                return folder, missing[::-1]
            missing.append(path)
            path = path.rpartition(b"/")[0]
        return self.root, missing[::-1]

    def _opened(self, folder: OutputFolder, path: bytes) -> OutputFolder:
        """Open a folder in `folder`. Raises OSError."""
        name = path.rpartition(b"/")[2]
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder.descriptor)
        self._open[path] = entered = OutputFolder(descriptor, folder.place(name))
        if len(self._open) > _OPEN_AT_MOST:
            self._open.popitem(last=False)
        return entered
