"""Target folder of unpacking, and the paths allowed in it.

The rules follow tarfile's "data" filter (PEP 706), which Python before 3.11.4 lacks. Each entry is made in a
private folder and renamed once it is complete, so a killed run can be resumed.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headrace.data import (
    OutputFolder,
    OutputFolders,
    UnwritableError,
    partial_file,
    printable_path,
    write_all,
    writing,
)
from headrace.errors import WriteError
from headrace.tools.unpack.archives import HARD_LINK, SYMBOLIC_LINK, Member

Pieces = Callable[[Member], Iterable[bytes]]

_PRIVATE = b".headrace-unpack"
"""Private folder in the target, for incomplete entries."""
_NAME_MOST_BYTES, _PATH_MOST_BYTES = 255, 4095


class RefusedError(Exception):
    """Refusal to create a member; the text is the reason."""


def member_path(name: str) -> bytes:
    """Return `name` relative to the target, without leading slashes; empty for the target. Raises RefusedError."""
    parts = [part for part in os.fsencode(name).split(b"/") if part not in (b"", b".")]
    path = b"/".join(parts)
    if b".." in parts:
        raise RefusedError("its name holds '..'")
    if b"\0" in path or path.startswith(_PRIVATE):
        raise RefusedError(f"its name holds a zero byte, or begins with {os.fsdecode(_PRIVATE)!r}, kept for unpacking")
    if len(path) > _PATH_MOST_BYTES or max(map(len, parts), default=0) > _NAME_MOST_BYTES:
        raise RefusedError(f"its name, or a part of it, is longer than {_PATH_MOST_BYTES} or {_NAME_MOST_BYTES} bytes")
    return path


def link_target(path: bytes, link: str) -> str:
    """Return the safe target of the symbolic link at `path`: `link` with every `..` at its start. Raises RefusedError.

    A `..` after a name would be resolved at that name's own target if the name is a link.
    """
    target = posixpath.normpath(link)
    if not link or "\0" in link or len(os.fsencode(target)) > _PATH_MOST_BYTES:
        raise RefusedError(f"it is a link that names nothing, or a path longer than {_PATH_MOST_BYTES} bytes")
    if link.startswith("/"):
        raise RefusedError(f"it is a link to an absolute path, {link!r}")
    if target.split("/").count("..") > path.count(b"/"):
        raise RefusedError(f"it is a link that leads out of the target, {link!r}")
    return target


@contextmanager
def unpack_target(root: bytes, *, overwrite: bool) -> Iterator[UnpackTarget]:
    """Yield the folder `root`, created if missing. Wait for another process that unpacks into it. Raises WriteError.

    `overwrite` replaces different entries unless they are folders.
    """
    folders = OutputFolders(root)
    private = folders.root.place(_PRIVATE)
    try:
        with partial_file(os.fsdecode(private)):
            shutil.rmtree(private, ignore_errors=True)  # of a killed run
            try:
                yield UnpackTarget(folders, folders.open(_PRIVATE), overwrite=overwrite)
            finally:
                shutil.rmtree(private, ignore_errors=True)
    except UnwritableError as error:
        raise WriteError(f"{printable_path(root)}: could not be locked: {error}. Write into another folder") from error


class UnpackTarget:
    """Target folder for any number of threads. Every method raises WriteError and the errors of `pieces`."""

    def __init__(self, folders: OutputFolders, staging: OutputFolder, *, overwrite: bool) -> None:
        self._folders, self._staging, self._overwrite = folders, staging, overwrite
        self._numbers = itertools.count()

    def place(self, member: Member, pieces: Pieces, *, replace: bool) -> bool:
        """Create a file or a link, or return False if it is there. `replace` any entry that is not a folder.

        Size and time show that a file is there, as in rsync; if only the time differs, the bytes.
        """
        folder, name = self._folders.parent(member.path)
        with writing(folder.place(name)):
            found = folder.find(name)
            if found is not None:
                if not replace and self._is_there(folder.descriptor, name, found, member, pieces):
                    return False
                if stat.S_ISDIR(found.st_mode) or not (replace or self._overwrite):
                    raise WriteError(
                        f"{printable_path(folder.place(name))}: expected nothing there, or what the archive holds, got "
                        f"something else. Move it away, or replace it: --overwrite"
                    )
            staged = b"%d" % next(self._numbers)
            self._make(staged, member, pieces)
            self._staging.move(staged, folder, name)
        return True

    def place_folder(self, member: Member, *, timed: bool = False) -> None:
        """Create a folder, and set its time: after its last entry was created."""
        folder = self._folders.open(member.path)
        if timed:
            with writing(folder.path):
                os.utime(folder.descriptor, ns=(member.mtime_ns, member.mtime_ns))

    def verify(self, member: Member, pieces: Pieces) -> None:
        """Compare a file with the archive."""
        folder, name = self._folders.parent(member.path)
        with writing(folder.place(name)):
            if not _holds(folder.descriptor, name, pieces(member)):
                raise WriteError(
                    f"{printable_path(folder.place(name))}: expected the bytes that the archive holds, got others. "
                    f"Delete it and run this again; if it comes again, check the disk"
                )

    def _is_there(self, at: int, name: bytes, found: os.stat_result, member: Member, pieces: Pieces) -> bool:
        if member.kind == SYMBOLIC_LINK:
            return stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=at) == os.fsencode(member.link)
        if member.kind == HARD_LINK:
            folder, linked = self._folders.parent(os.fsencode(member.link))
            file = folder.find(linked)
            return file is not None and os.path.samestat(found, file)
        if not stat.S_ISREG(found.st_mode) or found.st_size != member.size:
            return False
        if abs(found.st_mtime_ns - member.mtime_ns) > 1000:  # tarfile's times are floats
            if self._overwrite or not _holds(at, name, pieces(member)):
                return False
            os.utime(name, ns=(member.mtime_ns, member.mtime_ns), dir_fd=at, follow_symlinks=False)
        return True

    def _make(self, name: bytes, member: Member, pieces: Pieces) -> None:
        """Create a file or a link in the private folder."""
        at, times = self._staging.descriptor, (member.mtime_ns, member.mtime_ns)
        if member.kind == SYMBOLIC_LINK:
            os.symlink(member.link, name, dir_fd=at)
            os.utime(name, ns=times, dir_fd=at, follow_symlinks=False)
        elif member.kind == HARD_LINK:
            folder, linked = self._folders.parent(os.fsencode(member.link))
            os.link(linked, name, src_dir_fd=folder.descriptor, dst_dir_fd=at, follow_symlinks=False)
        else:
            mode = 0o666 if member.mode is None else 0o600
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=at)
            try:
                done = 0
                for piece in pieces(member):
                    write_all(descriptor, memoryview(piece), done)
                    done += len(piece)
                if member.mode is not None:
                    os.fchmod(descriptor, member.mode & (0o755 if member.mode & 0o100 else 0o644) | 0o600)
                os.utime(descriptor, ns=times)
            finally:
                os.close(descriptor)


def _holds(at: int, name: bytes, pieces: Iterable[bytes]) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=at), "rb") as file:
        return all(file.read(len(piece)) == piece for piece in pieces) and not file.read(1)
