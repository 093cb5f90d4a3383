"""The folder that is unpacked into: puts each member where it belongs, unless it is there already.

A file counts as complete by its size and its time of modification, as with rsync; where the time alone differs, its
bytes are compared. Whatever has its name is complete, so running a command again goes on where it was killed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from headrace.data.storage.file_writing import Folder, Folders
from headrace.data.storage.open_file import path_text
from headrace.data.write_errors import unwritable
from headrace.errors import HeadraceError
from headrace.unpack.contents import holds_pieces, write_pieces
from headrace.unpack.member_paths import file_mode
from headrace.unpack.members import Attributes, Piece
from headrace.unpack.new_file import NewFile
from headrace.unpack.staging import Staging

Pieces = Callable[[], Iterator[Piece]]


class Placed(Enum):
    MADE = "made"
    KEPT = "kept"
    """It was there."""
    DIFFERS = "differs"
    """Something else was there, and still is."""


class Target:
    """Any number of threads may place members. Every method raises WriteError, and what `pieces` raise."""

    def __init__(self, root: bytes, *, overwrite: bool) -> None:
        """`overwrite`: what differs is replaced, unless it is a folder."""
        self._folders = Folders(root)
        self._staging = Staging(self._folders)
        self._overwrite = overwrite

    def close(self) -> None:
        self._staging.close()

    def place(self, path: bytes) -> str:
        """Where that path lies, for messages."""
        return path_text(self._folders.root.place(path))

    def place_file(
        self, path: bytes, size: int, attributes: Attributes, pieces: Pieces, *, replace: bool = False
    ) -> Placed:
        """`pieces` is called once at most. `replace` what is there, even a file of the same size and time."""
        folder, name = self._folders.parent(path)
        with _writing(folder, name):
            found = folder.find(name)
            if found is not None and not replace and _is_complete(found, size, attributes.mtime_ns):
                return Placed.KEPT
            if found is None or self._is_replaced(found, replace):
                return self._make_file(folder, name, size, attributes, pieces(), replace=found is not None)
            if _holds(folder, name, found, size, pieces):
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
            return found is not None and _holds(folder, name, found, size, pieces)

    def _is_replaced(self, found: os.stat_result, replace: bool) -> bool:
        return (replace or self._overwrite) and not stat.S_ISDIR(found.st_mode)

    def _make_file(
        self,
        folder: Folder,
        name: bytes,
        size: int,
        attributes: Attributes,
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

    def _put(self, folder: Folder, name: bytes, make: Callable[[int, bytes], None], *, replace: bool) -> None:
        """`make` makes something in a folder under a name, all at once."""
        if not replace:
            make(folder.descriptor, name)
            return
        staging, staged = self._staging.folder().descriptor, self._staging.new_name()
        make(staging, staged)
        os.rename(staged, name, src_dir_fd=staging, dst_dir_fd=folder.descriptor)


@contextmanager
def _writing(folder: Folder, name: bytes) -> Iterator[None]:
    try:
        yield
    except HeadraceError:
        raise
    except OSError as error:
        raise unwritable(folder.place(name), error) from error


def _is_complete(found: os.stat_result, size: int, mtime_ns: int) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size == size and found.st_mtime_ns == mtime_ns


def _leads_to(folder: Folder, name: bytes, found: os.stat_result, target: bytes) -> bool:
    return stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=folder.descriptor) == target


def _holds(folder: Folder, name: bytes, found: os.stat_result, size: int, pieces: Pieces) -> bool:
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        return False
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder.descriptor)
    try:
        return holds_pieces(descriptor, pieces(), size)
    finally:
        os.close(descriptor)


def _set_time(folder: Folder, name: bytes, mtime_ns: int) -> None:
    os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=folder.descriptor, follow_symlinks=False)
