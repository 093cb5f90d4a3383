"""Sources to stage, their files, and room for the copies."""

from __future__ import annotations

import itertools
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.filesize import decimal

from headrace.data.storage.file_writing import PARTIAL_SUFFIX
from headrace.data.storage.open_file import printable_path, read_error
from headrace.data.storage.paths import walk_folders
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import EmptyDatasetError, NotFoundError, UsageError, WriteError
from headrace.system import memory, mounts, read_text

STAGE_FOLDER = b".headrace-stage"
"""Private folder in the folder of copies."""
_RESERVE_BYTES, _RESERVE_SHARE = 1 << 30, 0.1
"""Default reserve for other programs: a share of all memory, and at least these bytes."""
_PAGE_BYTES = 4096
"""Allocation unit of files on tmpfs and most disks."""
_INDEX = os.fsencode(INDEX_SUFFIXES[0])
Version = tuple[int, int]
"""Size and modification time (ns) of a file, which show a change."""


class StageSource(NamedTuple):
    path: bytes
    """Absolute path of a folder or a file."""
    name: bytes
    """Relative path of the copy."""
    only: tuple[bytes, ...] | None = None
    """Relative paths of the wanted files in a folder; None: all files."""

    def copy_in(self, folder: str) -> str:
        """Return the path of the copy in the folder of copies."""
        return os.path.join(folder, os.fsdecode(self.name))


def sources_of(paths: Sequence[str], *, only: Sequence[tuple[bytes, ...] | None] | None = None) -> list[StageSource]:
    """Return the paths as sources named by last component; repeated names go to numbered subfolders.

    Raises UsageError or NotFoundError.
    """
    if not paths:
        raise UsageError("expected paths of what is to be staged, got none")
    taken = {STAGE_FOLDER}
    sources = []
    for path, wanted in zip(paths, only or [None] * len(paths), strict=True):
        if not os.path.exists(path):
            raise NotFoundError(f"{path}: expected a file or a folder to stage, got nothing. Check the path")
        if not os.path.isdir(path) and not os.path.isfile(path):
            raise UsageError(f"{path}: expected a file or a folder to stage, got a special file")
        full = os.fsencode(os.path.abspath(path))
        last = os.path.basename(full) or b"root"
        names = itertools.chain([last], (b"%d/%s" % (number, last) for number in itertools.count(2)))
        name = next(name for name in names if name.partition(b"/")[0] not in taken)
        taken.add(name.partition(b"/")[0])
        sources.append(StageSource(full, name, wanted))
    return sources


class SourceFile(NamedTuple):
    """File to copy to the folder of copies."""

    path: bytes
    """Path relative to the folder of copies."""
    source: bytes
    size: int
    mtime_ns: int
    mode: int
    """Permissions of the source, plus read and write for the owner."""

    @property
    def version(self) -> Version:
        return self.size, self.mtime_ns


class StageListing:
    """All regular files of sources, also through links, with size and modification time."""

    def __init__(self, sources: Sequence[StageSource]) -> None:
        """List files source by source. An archive includes the index next to it.

        Raises ReadError, or EmptyDatasetError if there are no files.
        """
        self.files: dict[bytes, SourceFile] = {}
        """Files by path of the copy."""
        self.folders: list[bytes] = []
        """Folders relative to the folder of copies; empty ones count, since they may be classes."""
        self.skipped: Counter[str] = Counter()
        """Number of entries that are not copied, by reason."""
        for source in sources:
            for end in self._ends(source):
                self._add(source.name + end, source.path + end)
        if not self.files:
            raise EmptyDatasetError(
                f"{os.fsdecode(sources[0].path)}: expected files to stage, got none. Check the path"
            )

    def _ends(self, source: StageSource) -> Iterator[bytes]:
        """Yield what follows the path of the source in the path of each file, in order."""
        if source.only is not None:
            yield from (b"/" + name for name in source.only)
        elif os.path.isdir(source.path):
            circles = "folder links that lead back"
            walk = walk_folders(source.path, self._scan, in_circle=lambda: self.skipped.update([circles]))
            for folder, names in sorted(walk):
                end = b"/" + folder if folder else b""
                self.folders.append(source.name + end)
                yield from (b"%s/%s" % (end, name) for name in sorted(names))
        else:
            yield b""
            if os.path.isfile(source.path + _INDEX):
                yield _INDEX

    def _scan(self, folder: bytes) -> tuple[list[bytes], list[bytes]]:
        """Return the names of the subfolders and of the files in one folder."""
        folders, files = [], []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.name)
                elif entry.is_file():
                    files.append(entry.name)
                else:
                    self.skipped["broken links and special files"] += 1
        return folders, files

    def _add(self, name: bytes, path: bytes) -> None:
        """Add the file at `path`, with a copy called `name`."""
        if name.endswith(_INDEX + os.fsencode(PARTIAL_SUFFIX)):
            self.skipped["indices that are being built"] += 1
            return
        try:
            status = os.stat(path)
        except OSError as error:
            raise read_error(path, 0, error) from error
        mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
        self.files[name] = SourceFile(name, path, status.st_size, status.st_mtime_ns, mode)


def expect_room(folder: bytes, sizes: Sequence[int], there: int, *, reserve_bytes: int | None) -> None:
    """Raise WriteError if files of these sizes would not fit; `there` bytes of them exist already. Raises OSError."""
    need = sum(-(-size // _PAGE_BYTES) * _PAGE_BYTES for size in sizes) - there
    if need <= 0:
        return
    status, known = os.statvfs(folder), memory() if is_in_memory(folder) else None
    free, share = status.f_bavail * status.f_frsize, 0 if known is None else int(known.total_bytes * _RESERVE_SHARE)
    reserve = max(_RESERVE_BYTES, share) if reserve_bytes is None else reserve_bytes
    if known is None:
        rooms = [("the file system", free, reserve)]
    else:
        rooms = [("the file system, which is memory,", free, 0), ("memory", known.available_bytes, reserve)]
    for what, left, reserved in rooms:
        if need > left - reserved:
            raise WriteError(
                f"{printable_path(folder)}: the copies need {decimal(need)}, and {what} has {decimal(left)} left, of "
                f"which {decimal(reserved)} stay free. Free space, enlarge it (mount -o remount,size=…; docker run "
                f"--shm-size=…), stage less, or onto a disk, or set the reserve: --reserve. Nothing was written"
            )
    if status.f_files and len(sizes) > status.f_favail:
        raise WriteError(
            f"{printable_path(folder)}: the copies are {len(sizes):,} files, and the file system takes "
            f"{status.f_favail:,} more. Stage an archive of them, or onto another file system. Nothing was written"
        )


def is_in_memory(folder: bytes) -> bool:
    """Return True if files in the folder use memory. Raises OSError."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(mount.number == number and mount.kind in ("tmpfs", "ramfs") for mount in mounts(read_text, "self"))
