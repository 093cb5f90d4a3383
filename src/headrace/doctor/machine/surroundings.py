"""What the machine is: kernel, container, virtual machine, NUMA nodes."""

from __future__ import annotations

import platform
import socket
from typing import Any

from headrace.doctor.machine.control_groups import Cgroups
from headrace.doctor.machine.kernel import Kernel, span, stripped
from headrace.doctor.machine.part import Row

_CONTAINERS = {"kubepods": "Kubernetes", "docker": "Docker", "libpod": "Podman", "lxc": "LXC", "slurm": "Slurm"}
"""By what stands in a control group's path."""
_HYPERVISORS = ("KVM", "QEMU", "VMware", "VirtualBox", "Xen", "Amazon EC2", "Google", "Microsoft", "OpenStack", "HVM")
"""In the names that firmware gives to virtual hardware."""


class Surroundings:
    name = "surroundings"

    def __init__(self, kernel: Kernel, pid: int, cgroups: Cgroups) -> None:
        self._kernel = kernel
        self._container = _container(kernel, pid, cgroups)

    def read(self, now_s: float) -> Row:
        return {}

    def facts(self) -> dict[str, Any]:
        nodes = self._kernel.text("/sys/devices/system/node/online")
        return {
            "hostname": socket.gethostname(),
            "kernel": platform.release(),
            "container": self._container,
            "virtual_machine": self._virtual_machine(),
            "numa_nodes": len(span(nodes)) if nodes is not None else None,
            "transparent_huge_pages": _chosen(self._kernel.text("/sys/kernel/mm/transparent_hugepage/enabled")),
        }

    def _virtual_machine(self) -> str | None:
        """The hypervisor's name, or `yes` where only the CPU tells; None where nothing does: a real machine looks the
        same as one that hides it."""
        folder = "/sys/class/dmi/id"
        names = " ".join(
            filter(None, [stripped(self._kernel.text(f"{folder}/{file}")) for file in ("sys_vendor", "product_name")])
        )
        if any(known in names for known in _HYPERVISORS):
            return names
        return "yes" if " hypervisor" in (self._kernel.text("/proc/cpuinfo") or "") else None


def _container(kernel: Kernel, pid: int, cgroups: Cgroups) -> str | None:
    """None where nothing tells of one."""
    if "gvisor" in (kernel.text("/proc/version") or "").lower() or kernel.text("/proc/sentry-meminfo") is not None:
        return "gVisor"
    path = f"{kernel.text(f'/proc/{pid}/cgroup') or ''} {cgroups.path or ''}"
    by_path = next((name for part, name in _CONTAINERS.items() if part in path), None)
    if by_path is not None:
        return by_path
    if kernel.text("/run/.containerenv") is not None:
        return "Podman"
    return "Docker" if kernel.text("/.dockerenv") is not None else None


def _chosen(text: str | None) -> str | None:
    """Of a list such as `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0] or None if text is not None else None
