"""Where files lie: file systems, and the devices or servers under them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.doctor.machine.kernel import Kernel

NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "virtiofs")
)
"""Kinds of file systems whose bytes come from another machine, or from the host of this one."""


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    point: str
    root: str
    """The folder of the file system that is mounted."""
    kind: str
    source: str
    number: str
    """Of the device, `major:minor`; `0:…` where there is none."""
    options: tuple[str, ...]

    @property
    def is_network(self) -> bool:
        """FUSE is counted, since what serves it is unknown to the kernel, and is mostly an object store."""
        return self.kind in NETWORK or self.kind.startswith("fuse")


def mounts(kernel: Kernel, pid: int) -> list[Mount]:
    """The file systems that a process sees, in the order in which they were mounted."""
    text = kernel.text(f"/proc/{pid}/mountinfo") or ""
    return [mount for line in text.splitlines() if (mount := _mount(line)) is not None]


def mount_of(path: str, mounted: list[Mount]) -> Mount | None:
    """The file system that a path lies in; where two are mounted at one place, the later."""
    holding = [mount for mount in mounted if path == mount.point or path.startswith(mount.point.rstrip("/") + "/")]
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)


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
    """The kernel writes spaces, tabs, line ends and backslashes as `\\040` and so on."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
