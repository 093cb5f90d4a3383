"""Control groups and mounts of a process, as the kernel describes them in /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Text: TypeAlias = Callable[[str], str | None]
"""Function that returns a file's text; None if the file is absent or forbidden."""

UNLIMITED_BYTES = 1 << 60
"""Bound of real limits: version 1 writes "no limit" as the largest multiple of a page, beyond any machine's memory."""

MOST_DIGITS = 20
_KIB = 1024


def read_text(path: str) -> str | None:
    """Return the text of a kernel file; None if it is absent or forbidden."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return None


def pairs(text: str | None) -> dict[str, int]:
    """Parse lines such as `key 12`, `key: 12` or `key:  12 kB`, kB in bytes. Other lines are left out."""
    found = {}
    for words in rows(text):
        if len(words) >= 2 and is_whole(words[1]):
            found[words[0].rstrip(":")] = int(words[1]) * (_KIB if words[2:] == ["kB"] else 1)
    return found


def rows(text: str | None) -> list[list[str]]:
    """Return the words of each non-empty line."""
    return [words for line in (text or "").splitlines() if (words := line.split())]


def whole(text: str | None) -> int | None:
    """Return the number if the text is nothing else; None otherwise."""
    text = (text or "").strip()
    return int(text) if is_whole(text) else None


def is_whole(text: str) -> bool:
    """Return True if the text is a number in the kernel's form, of 64 bits at most."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    point: str
    root: str
    """Folder of the file system that is mounted."""
    kind: str
    source: str
    number: str
    """Device number as `major:minor`; `0:…` if the file system has no device."""
    options: tuple[str, ...]


def mounts(text: Text, pid: int | str) -> list[Mount]:
    """Return the file systems that a process sees, in mount order."""
    lines = text(f"/proc/{pid}/mountinfo") or ""
    return [mount for line in lines.splitlines() if (mount := _mount(line)) is not None]


def _mount(line: str) -> Mount | None:
    words = line.split(" ")
    try:
        dash = words.index("-")
        number, root, point = words[2:5]
        kind, source, options = words[dash + 1 : dash + 4]
    except ValueError:
        return None
    return Mount(_plain(point), _plain(root), kind, _plain(source), number, tuple(options.split(",")))


def _plain(text: str) -> str:
    r"""Decode spaces, tabs, line ends and backslashes, which the kernel writes as `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


@dataclass(frozen=True)
class Throttling:
    """Counters of the group's CPU quota."""

    periods: int | None
    throttled_periods: int | None
    throttled_s: float | None
    """Throttled time, summed over all cores."""


class ControlGroups:
    """Control groups of one process: version 1, 2 or both at once, each with all of its ancestors.

    They are found once. `unified` lists the folders of version 2, from the process's own group up to the highest
    visible one. A limit is the smallest on that path, since each binds all groups below it.
    """

    def __init__(self, text: Text, pid: int | str) -> None:
        self._text = text
        members = _memberships(text(f"/proc/{pid}/cgroup"))
        mounted = mounts(text, pid)
        self.unified: list[str] = []
        self._legacy: dict[str, list[str]] = {}
        for mount in mounted:
            if mount.kind == "cgroup2":
                self.unified = _levels(mount.point, mount.root, members.get("", "/"))
            elif mount.kind == "cgroup":
                for controller in set(mount.options) & set(members):
                    self._legacy[controller] = _levels(mount.point, mount.root, members[controller])

    @property
    def path(self) -> str | None:
        """Folder of the process's own group, of version 2 if both exist."""
        return next((levels[0] for levels in (self.unified, self._legacy.get("memory", [])) if levels), None)

    def quota_cores(self) -> float | None:
        """Return the smallest CPU quota, in cores; None if none is visible."""
        new = [_quota(self._file(folder, "cpu.max")) for folder in self.unified]
        old = [
            _quota(f"{self._file(folder, 'cpu.cfs_quota_us')} {self._file(folder, 'cpu.cfs_period_us')}")
            for folder in self._legacy.get("cpu", [])
        ]
        return min((quota for quota in new + old if quota is not None), default=None)

    def throttling(self) -> Throttling:
        """Return the counters of the group that was throttled most often; all None if no group counts."""
        found = [pairs(self._file(folder, "cpu.stat")) for folder in self.unified + self._legacy.get("cpu", [])]
        counted = max(
            (stat for stat in found if "nr_periods" in stat),
            key=lambda stat: stat.get("nr_throttled", 0),
            default={},
        )
        us, ns = counted.get("throttled_usec"), counted.get("throttled_time")
        seconds = us / 1e6 if us is not None else ns / 1e9 if ns is not None else None
        return Throttling(counted.get("nr_periods"), counted.get("nr_throttled"), seconds)

    def memory_limit_bytes(self) -> int | None:
        """Return the smallest memory limit; None if none is visible."""
        return min((limit for limit, _ in self._limits()), default=None)

    def memory_available_bytes(self) -> int | None:
        """Return the memory left below the limits of all groups; None if no limit is visible."""
        left = [limit - used for limit, folder in self._limits() if (used := self._used(folder)) is not None]
        return max(0, min(left)) if left else None

    def oom_kills(self) -> int | None:
        """Return how many processes the kernel ever killed for lack of memory, in the own group and below.

        None if it does not count them. The groups above also count other jobs' processes.
        """
        new = [pairs(self._file(folder, "memory.events")).get("oom_kill") for folder in self.unified[:1]]
        old = [
            pairs(self._file(folder, "memory.oom_control")).get("oom_kill")
            for folder in self._legacy.get("memory", [])[:1]
        ]
        return next((kills for kills in new + old if kills is not None), None)

    def pressure(self, resource: str) -> str | None:
        """Return the text of the own group's pressure file; version 2 only."""
        return self._file(self.unified[0], f"{resource}.pressure") if self.unified else None

    def _limits(self) -> list[tuple[int, str]]:
        found = []
        for folder in self._memory_levels():
            limit = whole(self._file(folder, "memory.max") or self._file(folder, "memory.limit_in_bytes"))
            if limit is not None and limit < UNLIMITED_BYTES:
                found.append((limit, folder))
        return found

    def _used(self, folder: str) -> int | None:
        used = whole(self._file(folder, "memory.current") or self._file(folder, "memory.usage_in_bytes"))
        stat = pairs(self._file(folder, "memory.stat"))
        return None if used is None else max(used - stat.get("total_inactive_file", stat.get("inactive_file", 0)), 0)

    def _memory_levels(self) -> list[str]:
        return self.unified + self._legacy.get("memory", [])

    def _file(self, folder: str, name: str) -> str | None:
        return self._text(f"{folder}/{name}")


def _memberships(text: str | None) -> dict[str, str]:
    """Return the path of each controller in /proc/PID/cgroup; version 2 has the empty name."""
    found = {}
    for line in (text or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _levels(point: str, root: str, path: str) -> list[str]:
    """Return the folders from `path` up to the mount point.

    A container may mount only its own group (`root`), or get a path outside its view (`/..`). The mount point is then
    its own group.
    """
    below = path[len(root.rstrip("/")) :] if path.startswith(root.rstrip("/")) else ""
    parts = [] if ".." in below else [part for part in below.split("/") if part]
    return [point.rstrip("/") + "".join(f"/{part}" for part in parts[:count]) for count in range(len(parts), -1, -1)]


def _quota(text: str | None) -> float | None:
    words = (text or "").split()
    if len(words) < 2 or not (is_whole(words[0]) and is_whole(words[1])) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])
