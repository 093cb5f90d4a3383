"""The folders that files are made in: opened one component at a time, never through a link, and kept open for a while.

What is made in an open folder lies there, whatever becomes of its path meanwhile: a link that somebody puts in its way
leads nothing astray.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import OrderedDict
from contextlib import suppress

from headrace.data.storage.open_file import path_text
from headrace.data.write_errors import unwritable
from headrace.errors import WriteError

_OPEN_AT_MOST = 128


class Folder:
    """An open folder, closed with the last reference to it, so that no thread makes a file in another one."""

    def __init__(self, descriptor: int, path: bytes) -> None:
        self.descriptor = descriptor
        self.path = path
        """For messages."""

    def __del__(self) -> None:
        os.close(self.descriptor)

    def find(self, name: bytes) -> os.stat_result | None:
        """What lies there under that name, a link as such; None: nothing."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unwritable(self.place(name), error) from error

    def place(self, name: bytes) -> bytes:
        """Its path, for messages."""
        return os.path.join(self.path, name)


class Folders:
    """Everything below one folder, by path relative to it. Any number of threads may ask."""

    def __init__(self, root: bytes) -> None:
        """Makes the root if it is missing; it may be reached through links, which are whoever names it's own.
        Raises WriteError."""
        try:
            os.makedirs(root, exist_ok=True)
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileExistsError as error:
            raise unwritable(root, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))) from error
        except OSError as error:
            raise unwritable(root, error) from error
        self.root = Folder(descriptor, root)
        self._lock = threading.Lock()
        self._open: OrderedDict[bytes, Folder] = OrderedDict()

    def open(self, path: bytes) -> Folder:
        """The folder at `path`, made if it is missing. Raises WriteError, also where a link or a file is in its way."""
        with self._lock:
            folder, missing = self._deepest(path)
            for path in missing:
                folder = self._enter(folder, path)
            return folder

    def find(self, path: bytes) -> Folder | None:
        """The folder at `path`; None if it is not there, or a link or a file is in its way. Raises WriteError."""
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
                    raise unwritable(folder.place(path), error) from error
            return folder

    def parent(self, path: bytes) -> tuple[Folder, bytes]:
        """The folder that `path` lies in, made if it is missing, and its name there."""
        above, _, name = path.rpartition(b"/")
        return self.open(above), name

    def _deepest(self, path: bytes) -> tuple[Folder, list[bytes]]:
        """The deepest folder on the way to `path` that is open, and the paths of those below it."""
        missing: list[bytes] = []
        while path:
            folder = self._open.get(path)
            if folder is not None:
                self._open.move_to_end(path)
                return folder, missing[::-1]
            missing.append(path)
            path = path.rpartition(b"/")[0]
        return self.root, missing[::-1]

    def _enter(self, folder: Folder, path: bytes) -> Folder:
        name = path.rpartition(b"/")[2]
        try:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder.descriptor)
            return self._opened(folder, path)
        except NotADirectoryError as error:
            raise WriteError(_in_the_way(folder, name)) from error
        except OSError as error:
            raise unwritable(folder.place(name), error) from error

    def _opened(self, folder: Folder, path: bytes) -> Folder:
        """Raises OSError."""
        name = path.rpartition(b"/")[2]
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder.descriptor)
        self._open[path] = entered = Folder(descriptor, folder.place(name))
        if len(self._open) > _OPEN_AT_MOST:
            self._open.popitem(last=False)
        return entered


def _in_the_way(folder: Folder, name: bytes) -> str:
    found = folder.find(name)
    what = "a link" if found is not None and stat.S_ISLNK(found.st_mode) else "a file"
    return (
        f"{path_text(folder.place(name))}: expected a folder, got {what}, through which nothing is written. "
        f"Move it away, or write into another folder"
    )
