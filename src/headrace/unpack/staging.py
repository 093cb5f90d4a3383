"""The folder in the target where files wait for their names if they cannot be without one. It is gone at the end, and
if a run is killed the next one removes it."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path

from headrace.data.storage.file_writing import Folder, Folders
from headrace.data.storage.open_file import path_text
from headrace.data.write_errors import unwritable
from headrace.errors import WriteError
from headrace.unpack.member_paths import STAGING


class Staging:
    """Made when it is first needed, and locked while it is in use. Any number of threads may ask."""

    def __init__(self, target: Folders) -> None:
        """Removes what a killed run has left. Raises WriteError."""
        self._root = target.root
        self._lock = threading.Lock()
        self._folder: Folder | None = None
        self._numbers = itertools.count()
        self.is_spared = Path("/proc/self/fd").is_dir()  # by way of which an unnamed file gets its name
        """Whether unnamed files are to be had."""
        if self._root.find(STAGING) is not None:
            with suppress(BlockingIOError):  # another process is using it
                self._folder = self._enter()
            self.close()

    def folder(self) -> Folder:
        """Raises WriteError, also if another process is using it."""
        with self._lock:
            if self._folder is None:
                try:
                    self._folder = self._enter()
                except BlockingIOError as error:
                    raise WriteError(
                        f"{path_text(self._root.place(STAGING))}: expected to be alone in this folder, got another "
                        f"process that unpacks into it. Run it again when that has ended"
                    ) from error
            return self._folder

    def new_name(self) -> bytes:
        return str(next(self._numbers)).encode()

    def close(self) -> None:
        """Removes the folder. Raises WriteError."""
        if self._folder is not None:
            try:
                _clear(self._folder)
                os.rmdir(STAGING, dir_fd=self._root.descriptor)
            except OSError as error:
                raise unwritable(self._folder.path, error) from error
            finally:
                self._folder = None

    def _enter(self) -> Folder:
        """The folder, empty and locked. Raises BlockingIOError or WriteError."""
        try:
            while True:
                with suppress(FileExistsError):
                    os.mkdir(STAGING, 0o700, dir_fd=self._root.descriptor)
                folder = _open(self._root)
                fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have removed it before it was locked.
                found = self._root.find(STAGING)
                if found is not None and os.path.samestat(found, os.fstat(folder.descriptor)):
                    _clear(folder)
                    return folder
        except BlockingIOError:
            raise
        except OSError as error:
            raise unwritable(self._root.place(STAGING), error) from error


def _open(root: Folder) -> Folder:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return Folder(os.open(STAGING, flags, dir_fd=root.descriptor), root.place(STAGING))


def _clear(folder: Folder) -> None:
    for name in os.listdir(folder.descriptor):
        os.unlink(name, dir_fd=folder.descriptor)
