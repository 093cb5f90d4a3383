"""Room for copies: on their file system, and in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.filesize import decimal

from headrace.data.storage.open_file import printable_path
from headrace.errors import WriteError
from headrace.system import memory, mounts, read_text

RESERVE_BYTES, RESERVE_SHARE = 1 << 30, 0.1
"""Default reserve for other programs: a share of all memory, and at least these bytes."""
_PAGE_BYTES = 4096
"""Allocation unit of files on tmpfs and most disks."""


def expect_room(folder: bytes, sizes: Sequence[int], there: int, *, reserve_bytes: int | None) -> None:
    """Raise WriteError if files of these sizes would not fit; `there` bytes of them exist already. Raises OSError."""
    need = sum(-(-size // _PAGE_BYTES) * _PAGE_BYTES for size in sizes) - there
    if need <= 0:
        return
    status, known = os.statvfs(folder), memory() if is_in_memory(folder) else None
    free, share = status.f_bavail * status.f_frsize, 0 if known is None else int(known.total_bytes * RESERVE_SHARE)
    reserve = max(RESERVE_BYTES, share) if reserve_bytes is None else reserve_bytes
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
