"""Files to stage, existing copies, and free space for copies."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.filesize import decimal

from headrace.data.storage.file_writing import PARTIAL_SUFFIX
from headrace.data.storage.open_file import printable_path, read_error
from headrace.data.storage.paths import walk_folders
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import EmptyDatasetError, NotFoundError, UsageError, WriteError
from headrace.system import Mount, memory, mounts, read_text

STAGE_FOLDER = b".headrace-stage"
"""Private folder in the folder of copies."""
RESERVE_BYTES, RESERVE_SHARE = 1 << 30, 0.1
"""Default reserve for other programs: a share of all memory, and at least these bytes."""
_PAGE_BYTES = 4096
"""Allocation unit of files on tmpfs and most disks."""
_UNFINISHED = os.fsencode(next(suffix for suffix in INDEX_SUFFIXES if suffix.endswith(PARTIAL_SUFFIX)))


@dataclass(frozen=True)
class StageSource:
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
    for number, path in enumerate(paths):
        if not os.path.exists(path):
            raise NotFoundError(f"{path}: expected a file or a folder to stage, got nothing. Check the path")
        if not os.path.isdir(path) and not os.path.isfile(path):
            raise UsageError(f"{path}: expected a file or a folder to stage, got a special file")
        whole = os.fsencode(os.path.abspath(path))
        name, again = os.path.basename(whole) or b"root", 2
        if name in taken:
            while b"%d" % again in taken:
                again += 1
            name = b"%d/%s" % (again, name)
        taken |= {name, name.partition(b"/")[0]}
        sources.append(StageSource(whole, name, None if only is None else only[number]))
    return sources


@dataclass(frozen=True)
class SourceFile:
    """File to copy to the folder of copies."""

    path: bytes
    """Path relative to the folder of copies."""
    source: bytes
    size: int
    mtime_ns: int
    mode: int
    """Permissions of the source, plus read and write for the owner."""

    @property
    def version(self) -> tuple[int, int]:
        """Size and modification time (ns), which show a change."""
        return self.size, self.mtime_ns


class StageListing:
    """All regular files of sources, also through links, with size and modification time."""

    def __init__(self, sources: Sequence[StageSource]) -> None:
        """List files source by source. An archive includes the indices next to it.

        Raises ReadError, or EmptyDatasetError if there are no files.
        """
        self.files: list[SourceFile] = []
        self.folders: list[bytes] = []
        """Folders relative to the folder of copies; empty ones count, since they may be classes."""
        self.skipped: Counter[str] = Counter()
        """Number of entries that are not copied, by reason."""
        index = os.fsencode(INDEX_SUFFIXES[0])
        for source in sources:
            if source.only is not None:
                for name in source.only:
                    self._add(os.path.join(source.name, name), os.path.join(source.path, name))
            elif os.path.isdir(source.path):
                self._add_folder(source)
            else:
                self._add(source.name, source.path)
                if os.path.isfile(source.path + index):
                    self._add(source.name + index, source.path + index)
        if not self.files:
            raise EmptyDatasetError(
                f"{os.fsdecode(sources[0].path)}: expected files to stage, got none. Check the path"
            )

    def _add(self, name: bytes, path: bytes) -> None:
        """Add the file at `path`, with a copy called `name`."""
        if name.endswith(_UNFINISHED):
            self.skipped["indices that are being built"] += 1
            return
        try:
            status = os.stat(path)
        except OSError as error:
            raise read_error(path, 0, error) from error
        mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
        self.files.append(SourceFile(name, path, status.st_size, status.st_mtime_ns, mode))

    def _add_folder(self, source: StageSource) -> None:
        """Add all files in a folder, in the order of their paths."""

        def count_circle() -> None:
            self.skipped["folder links that lead back"] += 1

        for folder, names in sorted(walk_folders(source.path, self._scan, in_circle=count_circle)):
            self.folders.append(os.path.join(source.name, folder) if folder else source.name)
            for name in sorted(names):
                path = os.path.join(folder, name)
                self._add(os.path.join(source.name, path), os.path.join(source.path, path))

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


def existing_copies(root: bytes) -> tuple[dict[bytes, tuple[int, int]], list[bytes]]:
    """List the folder of copies, including files that were not staged, without following links.

    Return the size and modification time (ns) of each regular file by relative path, and all links and special files,
    which staging never creates. Raises WriteError for a folder that cannot be listed.
    """
    files: dict[bytes, tuple[int, int]] = {}
    others = []

    def fail(error: OSError) -> None:
        raise WriteError(
            f"{printable_path(error.filename)}: could not be listed: {error.strerror}. Stage into a folder of your own"
        ) from error

    for folder, folders, names in os.walk(root, onerror=fail):
        if folder == root:
            folders[:] = [name for name in folders if name != STAGE_FOLDER]
            names[:] = [name for name in names if name != STAGE_FOLDER + os.fsencode(PARTIAL_SUFFIX)]
        for place in [os.path.join(folder, name) for name in folders + names]:
            status, path = os.lstat(place), os.path.relpath(place, root)
            if stat.S_ISREG(status.st_mode):
                files[path] = (status.st_size, status.st_mtime_ns)
            elif not stat.S_ISDIR(status.st_mode):
                others.append(path)
    return files, others


class FreeSpace(NamedTuple):
    free_bytes: int
    """Free bytes of the file system for users other than root."""
    free_files: int | None
    """Free inodes; None if the file system does not count them."""
    memory_bytes: int | None
    """Available memory if the file system is in memory; None otherwise."""
    reserve_bytes: int
    """Bytes to leave free: of memory if the copies use memory, else of the file system."""


def free_space(folder: bytes, *, in_memory: bool, reserve_bytes: int | None) -> FreeSpace:
    """Return the space for copies. Raises OSError."""
    status = os.statvfs(folder)
    known = memory() if in_memory else None
    total, available = (0, None) if known is None else (known.total_bytes, known.available_bytes)
    reserve = max(RESERVE_BYTES, int(total * RESERVE_SHARE)) if reserve_bytes is None else reserve_bytes
    return FreeSpace(status.f_bavail * status.f_frsize, status.f_favail if status.f_files else None, available, reserve)


def expect_room(files: Sequence[SourceFile], there: int, space: FreeSpace, folder: bytes) -> None:
    """Raise WriteError if `files` would not fit; `there` bytes of them exist already."""
    need = sum(-(-file.size // _PAGE_BYTES) * _PAGE_BYTES for file in files) - there
    copies, left, reserve = (decimal(max(0, size)) for size in (need, space.free_bytes, space.reserve_bytes))
    lack = None
    if need <= 0:
        return
    if space.memory_bytes is None and need > space.free_bytes - space.reserve_bytes:
        lack = (
            f"the copies need {copies}, and the file system has {left} left, of which {reserve} are kept free. Free "
            f"space there, stage less, or say how much is to be left: --reserve"
        )
    elif need > space.free_bytes:
        lack = (
            f"the copies need {copies}, and the file system, which is memory, has {left} left. Make it larger "
            f"(mount -o remount,size=…; docker run --shm-size=…), stage less, or stage onto a disk"
        )
    elif space.memory_bytes is not None and need > space.memory_bytes - space.reserve_bytes:
        lack = (
            f"the copies need {copies} of memory, of which {decimal(space.memory_bytes)} are available, and {reserve} "
            f"are left to runs. Stage less, or onto a disk, or say how much runs need: --reserve"
        )
    elif space.free_files is not None and len(files) > space.free_files:
        lack = (
            f"the copies are {len(files):,} files, and the file system takes {space.free_files:,} more. Stage an "
            f"archive of them, or onto another file system"
        )
    if lack is not None:
        raise WriteError(f"{printable_path(folder)}: {lack}. Nothing was written")


def is_in_memory(folder: bytes) -> bool:
    """Return True if files in the folder use memory. Raises OSError."""
    return file_system_of(os.stat(folder).st_dev, mounts(read_text, "self")) in ("tmpfs", "ramfs")


def file_system_of(device: int, listed: Iterable[Mount]) -> str | None:
    """Return the file system of a device; None if no mount has that device."""
    number = f"{os.major(device)}:{os.minor(device)}"
    return next((mount.kind for mount in listed if mount.number == number), None)
