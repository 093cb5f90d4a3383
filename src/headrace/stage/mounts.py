"""Which kind of file system a folder lies on."""

from __future__ import annotations

import os
from pathlib import Path

_IN_MEMORY = ("tmpfs", "ramfs")


def is_in_memory(folder: bytes) -> bool:
    """Whether what is written there takes memory. Raises OSError."""
    return kind_of(os.stat(folder).st_dev, Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")) in (
        _IN_MEMORY
    )


def kind_of(device: int, mountinfo: str) -> str | None:
    """The file system of that device, as proc(5) lists mounts; None where it does not."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split(" ")[2:3] == [number]:
            return rest.split(" ")[0]
    return None
