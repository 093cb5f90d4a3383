"""Control groups of a process, of version 1 and 2: limits, usage and throttling."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.doctor.machine.kernel import Kernel, is_whole, mounts, pairs, whole

UNLIMITED_BYTES = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page; no machine has this much."""


@dataclass(frozen=True)
class Throttling:
    """Counters of the group's CPU quota."""

    periods: int | None
    throttled_periods: int | None
    throttled_s: float | None
    """Of all cores together."""


class Cgroups:
    """The groups of one process, found once: `levels` lists folders from its own group up to the highest that can be
    seen. A limit is the smallest on that path, since each binds all below it."""

    def __init__(self, kernel: Kernel, pid: int) -> None:
        self._kernel = kernel
        members = _memberships(kernel.text(f"/proc/{pid}/cgroup"))
        mounted = mounts(kernel, pid)
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
        """The process's own folder, of version 2 where both are there."""
        return next((levels[0] for levels in (self.unified, self._legacy.get("memory", [])) if levels), None)

    def quota_cores(self) -> float | None:
        """The smallest CPU quota; None where none can be seen."""
        new = [_quota(self._text(folder, "cpu.max")) for folder in self.unified]
        old = [
            _quota(f"{self._text(folder, 'cpu.cfs_quota_us')} {self._text(folder, 'cpu.cfs_period_us')}")
            for folder in self._legacy.get("cpu", [])
        ]
        return min((quota for quota in new + old if quota is not None), default=None)

    def throttling(self) -> Throttling:
        """Of the group whose quota has bound most often. All None where no group counts."""
        found = [pairs(self._text(folder, "cpu.stat")) for folder in self.unified + self._legacy.get("cpu", [])]
        counted = max((stat for stat in found if "nr_periods" in stat), key=_throttled, default={})
        us, ns = counted.get("throttled_usec"), counted.get("throttled_time")
        seconds = us / 1e6 if us is not None else ns / 1e9 if ns is not None else None
        return Throttling(counted.get("nr_periods"), counted.get("nr_throttled"), seconds)

    def memory_limit_bytes(self) -> int | None:
        """The smallest memory limit; None where none can be seen."""
        return None if (tightest := self._tightest()) is None else tightest[0]

    def memory_used_bytes(self) -> int | None:
        """Of the group with the smallest limit, or the process's own: without file cache that the kernel drops at
        need, so that the limit is near when this is."""
        tightest = self._tightest()
        for folder in [tightest[1]] if tightest is not None else self._memory_levels():
            used = whole(self._text(folder, "memory.current") or self._text(folder, "memory.usage_in_bytes"))
            stat = pairs(self._text(folder, "memory.stat"))
            if used is not None:
                return max(used - stat.get("total_inactive_file", stat.get("inactive_file", 0)), 0)
        return None

    def oom_kills(self) -> int | None:
        """Processes that the kernel has killed for want of memory in the own group and below, ever; None where it does
        not count them. (Those of the groups above are other jobs', too.)"""
        new = [pairs(self._text(folder, "memory.events")).get("oom_kill") for folder in self.unified[:1]]
        old = [pairs(self._text(folder, "memory.oom_control")).get("oom_kill") for folder in self._legacy_memory()[:1]]
        return next((kills for kills in new + old if kills is not None), None)

    def pressure(self, resource: str) -> str | None:
        """The text of the own group's pressure file; of version 2 only."""
        return self._text(self.unified[0], f"{resource}.pressure") if self.unified else None

    def _tightest(self) -> tuple[int, str] | None:
        limits = []
        for folder in self._memory_levels():
            limit = whole(self._text(folder, "memory.max") or self._text(folder, "memory.limit_in_bytes"))
            if limit is not None and limit < UNLIMITED_BYTES:
                limits.append((limit, folder))
        return min(limits, default=None)

    def _memory_levels(self) -> list[str]:
        return self.unified + self._legacy_memory()

    def _legacy_memory(self) -> list[str]:
        return self._legacy.get("memory", [])

    def _text(self, folder: str, file: str) -> str | None:
        return self._kernel.text(f"{folder}/{file}")


def _memberships(text: str | None) -> dict[str, str]:
    """Path by controller, of /proc/PID/cgroup; that of version 2 under the empty name."""
    found = {}
    for line in (text or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _levels(point: str, root: str, path: str) -> list[str]:
    """Folders from `path` up to the mount point. A container may mount only its own group (`root`), or be told a path
    outside what it sees (`/..`): the mount point is its own group then."""
    below = path[len(root.rstrip("/")) :] if path.startswith(root.rstrip("/")) else ""
    parts = [] if ".." in below else [part for part in below.split("/") if part]
    return [point.rstrip("/") + "".join(f"/{part}" for part in parts[:count]) for count in range(len(parts), -1, -1)]


def _quota(text: str | None) -> float | None:
    words = (text or "").split()
    if len(words) < 2 or not (is_whole(words[0]) and is_whole(words[1])) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _throttled(stat: dict[str, int]) -> int:
    return stat.get("nr_throttled", 0)
