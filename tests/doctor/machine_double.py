"""Machines made of texts: what /proc and /sys say, by path, so that a test can be on any machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.doctor.machine.kernel import Kernel, Space


@dataclass
class Texts(Kernel):
    """The Kernel of a machine that is made of these texts. Folders are what their paths say."""

    texts: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    spaces: dict[str, Space] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def text(self, path: str) -> str | None:
        self.asked.append(path)
        return self.texts.get(path)

    def names(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        below = [path[len(prefix) :] for path in (*self.texts, *self.links) if path.startswith(prefix)]
        return sorted({path.split("/")[0] for path in below})

    def link(self, path: str) -> str | None:
        return self.links.get(path)

    def space(self, path: str) -> Space | None:
        return self.spaces.get(path)

    def process(self, pid: int, **fields: object) -> None:
        """Adds /proc/PID/stat, or replaces it."""
        self.texts[f"/proc/{pid}/stat"] = stat_text(pid, **fields)

    def end(self, pid: int) -> None:
        for path in [path for path in self.texts if path.startswith(f"/proc/{pid}/")]:
            del self.texts[path]


def stat_text(
    pid: int,
    *,
    name: str = "python",
    state: str = "S",
    parent: int = 1,
    group: int = 0,
    session: int = 0,
    user: int = 0,
    system: int = 0,
    waited: int = 0,
    started: int = 100,
) -> str:
    """A line as the kernel writes it: man 5 proc_pid_stat."""
    fields = [pid, f"({name})", state, parent, group, session, 0, -1, 4194304, 99, 0, 0, 0, user, system, waited, 0]
    return " ".join(map(str, [*fields, 20, 0, 1, 0, started, *[0] * 30])) + "\n"


def rollup_text(**kib: int) -> str:
    """A smaps_rollup; give its figures in KiB, by their names."""
    return "55-7f ---p 00000000 00:00 0 [rollup]\n" + "".join(
        f"{name}: {value:>12} kB\n" for name, value in kib.items()
    )


MOUNTINFO_V2 = """\
22 1 0:21 / /proc rw,relatime - proc proc rw
27 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw,discard
31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
40 27 0:50 / /data rw,relatime shared:5 - nfs4 server:/export\\040two rw,vers=4.2
41 27 0:51 /sub /cache rw - btrfs /dev/nvme0n1p2 rw
"""
MOUNTINFO_V1 = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
"""


def disk_line(
    major: int,
    name: str,
    minor: int,
    *,
    reads: int = 0,
    sectors: int = 0,
    read_ms: int = 0,
) -> str:
    return f" {major} {minor} {name} {reads} 0 {sectors} {read_ms} 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
