"""What lies in a folder, to be compared: names, kinds, bytes, permissions, times, and which names are one file."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

TIME_STEP_NS = 100_000
"""tarfile sets times from floats, which have no nanoseconds."""


def tree(
    root: Path, *, timed: Collection[str] = (), modes: bool = True, times: bool = True
) -> dict[bytes, tuple[object, ...]]:
    """By path relative to `root`, which is `b"."` itself. Times are those of files, in steps of TIME_STEP_NS, and
    of the folders that are `timed`: others have the moment at which they were made."""
    first_names: dict[int, bytes] = {}
    found = {}
    for path in sorted(_walk(os.fsencode(root))):
        name = os.path.relpath(path, os.fsencode(root))
        status = os.lstat(path)
        time = round(status.st_mtime_ns / TIME_STEP_NS) if times else None
        mode = oct(stat.S_IMODE(status.st_mode)) if modes else None
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISDIR(status.st_mode):
            found[name] = ("folder", time if os.fsdecode(name) in timed else None)
        elif stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:
                content = file.read()
            found[name] = ("file", content, mode, time, first_names.setdefault(status.st_ino, name))
        else:
            found[name] = ("something else",)
    return found


def names(root: Path) -> list[str]:
    """Of all that lies below `root`."""
    return [os.fsdecode(name) for name in tree(root) if name != b"."]


def _walk(root: bytes) -> list[bytes]:
    paths = [root]
    for folder, folders, files in os.walk(root):
        paths += [os.path.join(folder, name) for name in folders + files]
    return paths
