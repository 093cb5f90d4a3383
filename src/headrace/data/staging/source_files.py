"""Files to stage, files that are there, and whether the copies fit."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.filesize import decimal

from headrace.data.storage.file_writing import PARTIAL_SUFFIX
from headrace.data.storage.open_file import printable_path, read_error
from headrace.data.storage.paths import walk_folders
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import EmptyDatasetError, NotFoundError, UsageError, WriteError
from headrace.system.resources import memory

# -- from stage/sources.py: What is staged, and under which name each lies in the folder of copies.


STAGE_FOLDER = b".headrace-stage"
"""In the folder of copies, what is ours."""


@dataclass(frozen=True)
class StageSource:
    path: bytes
    """Absolute: a folder, or a file."""
    name: bytes
    """Relative path of its copy."""
    only: tuple[bytes, ...] | None = None
    """Of a folder: relative paths of the files that are wanted; None: all that it holds."""

    def copy_in(self, folder: str) -> str:
        """Where its copy lies in the folder of copies."""
        return os.path.join(folder, os.fsdecode(self.name))


def sources_of(paths: Sequence[str], *, only: Sequence[tuple[bytes, ...] | None] | None = None) -> list[StageSource]:
    """Each path under its own last name; where two have the same, those that follow lie in a folder with a number.

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
        name = _free_name(os.path.basename(whole) or b"root", taken)
        taken |= {name, name.partition(b"/")[0]}
        sources.append(StageSource(whole, name, None if only is None else only[number]))
    return sources


def _free_name(name: bytes, taken: set[bytes]) -> bytes:
    if name not in taken:
        return name
    number = 2
    while b"%d" % number in taken:
        number += 1
    return b"%d/%s" % (number, name)


def expect_apart(sources: Sequence[StageSource], to: str) -> None:
    """Raises UsageError where the copies would lie in what is copied, or the other way round."""
    target = os.path.realpath(to)
    for source in sources:
        path = os.fsdecode(os.path.realpath(source.path))
        if os.path.commonpath((path, target)) in (path, target):
            raise UsageError(
                f"expected a folder for copies that lies apart from what is copied, got {to} and "
                f"{printable_path(source.path)}. Name another folder, such as /dev/shm/NAME"
            )


# -- from stage/listing.py: What a source holds: every regular file, also through links, with its size and its time.


_UNFINISHED = next(suffix for suffix in INDEX_SUFFIXES if suffix.endswith(PARTIAL_SUFFIX))


@dataclass(frozen=True)
class SourceFile:
    """A file that is to lie in the folder of copies."""

    path: bytes
    """There, relative to it."""
    source: bytes
    size: int
    mtime_ns: int
    mode: int
    """Permissions: those of the source, and the owner's to read and write."""


@dataclass
class StageListing:
    files: list[SourceFile] = field(default_factory=list)
    folders: list[bytes] = field(default_factory=list)
    """Relative to the folder of copies; empty ones count, too: they may be classes."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What is not copied, by reason."""


def list_sources(sources: Sequence[StageSource]) -> StageListing:
    """Files in the order of their paths, source by source. An archive comes with the indices that lie beside it.

    Raises ReadError, or EmptyDatasetError where there is no file at all.
    """
    listing = StageListing()
    for source in sources:
        if source.only is not None:
            _take(listing, source, ((name, os.path.join(source.path, name)) for name in source.only))
        elif os.path.isdir(source.path):
            _take_folder(listing, source)
        else:
            _take_file(listing, source)
    if not listing.files:
        raise EmptyDatasetError(f"{os.fsdecode(sources[0].path)}: expected files to stage, got none. Check the path")
    return listing


def _take_folder(listing: StageListing, source: StageSource) -> None:
    def count_circle() -> None:
        listing.skipped["folder links that lead back"] += 1

    found = sorted(walk_folders(source.path, lambda full: _scan(full, listing.skipped), in_circle=count_circle))
    for folder, names in found:
        listing.folders.append(os.path.join(source.name, folder) if folder else source.name)
        paths = (os.path.join(folder, name) if folder else name for name in sorted(names))
        _take(listing, source, ((path, os.path.join(source.path, path)) for path in paths))


def _take_file(listing: StageListing, source: StageSource) -> None:
    folder, name = os.path.split(source.path)
    beside = [INDEX_SUFFIXES[0]]
    listing.files.append(_wanted(source.name, source.path))
    for suffix in beside:
        index = os.path.join(folder, name + os.fsencode(suffix))
        if os.path.isfile(index):
            listing.files.append(_wanted(source.name + os.fsencode(suffix), index))


def _take(listing: StageListing, source: StageSource, files: Iterator[tuple[bytes, bytes]]) -> None:
    for name, path in files:
        if name.endswith(os.fsencode(_UNFINISHED)):
            listing.skipped["indices that are being built"] += 1
        else:
            listing.files.append(_wanted(os.path.join(source.name, name), path))


def _wanted(path: bytes, source: bytes) -> SourceFile:
    try:
        status = os.stat(source)
    except OSError as error:
        raise read_error(source, 0, error) from error
    mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
    return SourceFile(path, source, status.st_size, status.st_mtime_ns, mode)


def _scan(full: bytes, skipped: Counter[str]) -> tuple[list[bytes], list[bytes]]:
    """Names of the subfolders and of the files in one folder."""
    folders, files = [], []
    with os.scandir(full) as entries:
        for entry in entries:
            if entry.is_dir():
                folders.append(entry.name)
            elif entry.is_file():
                files.append(entry.name)
            else:
                skipped["broken links and special files"] += 1
    return folders, files


# -- from stage/room.py: Whether copies fit: into the file system, and where that is memory, beside what runs need of
# it.


RESERVE_BYTES = 1 << 30
RESERVE_SHARE = 0.1
"""Of all memory, left to runs where nobody says how much they need, and at least `RESERVE_BYTES`."""
_PAGE_BYTES = 4096
"""What files take is a multiple of it, on tmpfs and on most disks."""


@dataclass(frozen=True)
class FreeSpace:
    free_bytes: int
    """Of the file system, for whoever is not root."""
    free_files: int | None
    """None: it does not count them."""
    memory_bytes: int | None
    """Available, where the file system is memory; None: it is not."""
    reserve_bytes: int
    """To be left: of memory, where the copies take that, else of the file system."""


def free_space(folder: bytes, *, in_memory: bool, reserve_bytes: int | None) -> FreeSpace:
    """Raises OSError."""
    status = os.statvfs(folder)
    known = memory() if in_memory else None
    if reserve_bytes is None:
        share = 0 if known is None else int(known.total_bytes * RESERVE_SHARE)
        reserve_bytes = max(RESERVE_BYTES, share)
    return FreeSpace(
        free_bytes=status.f_bavail * status.f_frsize,
        free_files=status.f_favail if status.f_files else None,
        memory_bytes=None if known is None else known.available_bytes,
        reserve_bytes=reserve_bytes,
    )


def needed_bytes(files: Sequence[SourceFile]) -> int:
    """That they take on a file system."""
    return sum(-(-wanted.size // _PAGE_BYTES) * _PAGE_BYTES for wanted in files)


def expect_room(files: Sequence[SourceFile], there: int, room: FreeSpace, folder: bytes) -> None:
    """Raises WriteError if `files` would not fit, of which `there` bytes are there already."""
    need = needed_bytes(files) - there
    if not files or need <= 0:
        return
    why = _lack(need, len(files), room)
    if why is not None:
        raise WriteError(f"{printable_path(folder)}: {why}. Nothing was written")


def _lack(need: int, files: int, room: FreeSpace) -> str | None:
    copies = f"the copies need {decimal(need)}"
    if room.memory_bytes is not None:
        if need > room.free_bytes:
            return (
                f"{copies}, and the file system, which is memory, has {decimal(room.free_bytes)} left. Make it larger "
                f"(mount -o remount,size=…; docker run --shm-size=…), stage less, or stage onto a disk"
            )
        if need > room.memory_bytes - room.reserve_bytes:
            return (
                f"{copies} of memory, of which {decimal(room.memory_bytes)} are available, and "
                f"{decimal(room.reserve_bytes)} are left to runs. Stage less, or onto a disk, or say "
                "how much runs need: --reserve"
            )
    elif need > room.free_bytes - room.reserve_bytes:
        return (
            f"{copies}, and the file system has {decimal(room.free_bytes)} left, of which "
            f"{decimal(room.reserve_bytes)} are kept free. Free space there, stage less, or say "
            "how much is to be left: --reserve"
        )
    if room.free_files is not None and files > room.free_files:
        return (
            f"the copies are {files:,} files, and the file system takes {room.free_files:,} more. Stage an archive of "
            f"them, or onto another file system"
        )
    return None


# -- from stage/copies.py: What lies in the folder of copies, whoever put it there.


@dataclass
class ExistingCopies:
    files: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Size and time (ns) of each regular file, by relative path."""
    others: list[bytes] = field(default_factory=list)
    """Links and special files, which are never ours."""


def existing_copies(root: bytes) -> ExistingCopies:
    """Follows no link. Raises WriteError for a folder that cannot be listed."""
    copies = ExistingCopies()
    folders = [b""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if path != STAGE_FOLDER:
                            folders.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        copies.files[path] = (status.st_size, status.st_mtime_ns)
                    else:
                        copies.others.append(path)
        except OSError as error:
            raise WriteError(
                f"{printable_path(os.path.join(root, folder))}: could not be listed: {error.strerror}. Stage into a "
                "folder "
                f"of your own"
            ) from error
    return copies


# -- from stage/mounts.py: Which kind of file system a folder lies on.


_IN_MEMORY = ("tmpfs", "ramfs")


def is_in_memory(folder: bytes) -> bool:
    """Whether what is written there takes memory. Raises OSError."""
    return file_system_of(
        os.stat(folder).st_dev, Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    ) in (_IN_MEMORY)


def file_system_of(device: int, mountinfo: str) -> str | None:
    """The file system of that device, as proc(5) lists mounts; None where it does not."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split(" ")[2:3] == [number]:
            return rest.split(" ")[0]
    return None
