"""Whether copies fit: into the file system, and where that is memory, beside what runs need of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.filesize import decimal

from headrace.data.staging.source_files import Wanted
from headrace.data.storage.open_file import path_text
from headrace.errors import WriteError
from headrace.system.resources import memory

RESERVE_BYTES = 1 << 30
RESERVE_SHARE = 0.1
"""Of all memory, left to runs where nobody says how much they need, and at least `RESERVE_BYTES`."""
_PAGE_BYTES = 4096
"""What files take is a multiple of it, on tmpfs and on most disks."""


@dataclass(frozen=True)
class Room:
    free_bytes: int
    """Of the file system, for whoever is not root."""
    free_files: int | None
    """None: it does not count them."""
    memory_bytes: int | None
    """Available, where the file system is memory; None: it is not."""
    reserve_bytes: int
    """To be left: of memory, where the copies take that, else of the file system."""


def room_of(folder: bytes, *, in_memory: bool, reserve_bytes: int | None) -> Room:
    """Raises OSError."""
    status = os.statvfs(folder)
    known = memory() if in_memory else None
    if reserve_bytes is None:
        share = 0 if known is None else int(known.total_bytes * RESERVE_SHARE)
        reserve_bytes = max(RESERVE_BYTES, share)
    return Room(
        free_bytes=status.f_bavail * status.f_frsize,
        free_files=status.f_favail if status.f_files else None,
        memory_bytes=None if known is None else known.available_bytes,
        reserve_bytes=reserve_bytes,
    )


def needed_bytes(files: Sequence[Wanted]) -> int:
    """That they take on a file system."""
    return sum(-(-wanted.size // _PAGE_BYTES) * _PAGE_BYTES for wanted in files)


def expect_room(files: Sequence[Wanted], there: int, room: Room, folder: bytes) -> None:
    """Raises WriteError if `files` would not fit, of which `there` bytes are there already."""
    need = needed_bytes(files) - there
    if not files or need <= 0:
        return
    why = _lack(need, len(files), room)
    if why is not None:
        raise WriteError(f"{path_text(folder)}: {why}. Nothing was written")


def _lack(need: int, files: int, room: Room) -> str | None:
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
