"""Where files could be copied to: memory, and local disks that do not turn."""

from __future__ import annotations

import os
import tempfile

from headrace.doctor.session.model import Machine, Place

SHM = "/dev/shm"


def places(machine: Machine) -> list[Place]:
    """Memory first."""
    found = [Place(SHM, free, "memory")] if (free := _free_bytes(SHM)) is not None else []
    folder = tempfile.gettempdir()
    free = _free_bytes(folder)
    if free is not None and not _is_slow(machine, folder):
        found.append(Place(folder, free, "disk"))
    return found


def _free_bytes(folder: str) -> int | None:
    """None where nothing can be written."""
    if not os.access(folder, os.W_OK):
        return None
    try:
        system = os.statvfs(folder)
    except OSError:
        return None
    return system.f_bavail * system.f_frsize


def _is_slow(machine: Machine, folder: str) -> bool:
    """Whether it is known to lie on a network, or on a disk that turns. One of which nothing is known counts as fast:
    it is local, at least."""
    mounts = [one for one in machine.facts.get("mounts") or [] if folder.startswith(one["path"])]
    mount = max(mounts, key=lambda one: len(one["path"]), default=None)
    if mount is None:
        return False
    disks = machine.facts.get("disks") or {}
    return bool(mount["network"]) or disks.get(mount.get("disk"), {}).get("rotational") is True
