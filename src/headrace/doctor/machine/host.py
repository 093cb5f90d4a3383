"""The disks of the machine: what they gave, and how long each request took.

Fields of /proc/diskstats: https://docs.kernel.org/admin-guide/iostats.html.
"""

from __future__ import annotations

from typing import Any

from headrace.doctor.machine.kernel import Kernel, is_whole, rows, stripped
from headrace.doctor.machine.part import Row
from headrace.doctor.machine.rates import Rates, ratio

SECTOR_BYTES = 512
"""Of diskstats, whatever the disk's own is."""
_READS, _READ_SECTORS, _READ_MS, _WRITES, _WRITE_SECTORS, _WRITE_MS, _BUSY_MS, _QUEUE_MS = 0, 2, 3, 4, 6, 7, 9, 10
_FIELDS = 11


class Disks:
    """Whole devices that have ever been used; partitions are counted in their disk."""

    name = "disks"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._rates = Rates()

    def read(self, now_s: float) -> Row:
        row: Row = {}
        counters = diskstats(self._kernel)
        for disk in whole_disks(self._kernel, list(counters)):
            if any(counters[disk]):
                row.update(self._disk(disk, counters[disk], now_s))
        return row

    def facts(self) -> dict[str, Any]:
        counters = diskstats(self._kernel)
        used = [disk for disk in whole_disks(self._kernel, list(counters)) if any(counters[disk])]
        return {"disks": {disk: self._describe(disk) for disk in used}}

    def _disk(self, disk: str, counters: list[int], now_s: float) -> Row:
        rate = [self._rates.per_second(f"{disk} {field}", value, now_s) for field, value in enumerate(counters)]
        busy, queue = rate[_BUSY_MS], rate[_QUEUE_MS]
        return {
            f"disk_{disk}_read_bytes_per_s": _bytes(rate[_READ_SECTORS]),
            f"disk_{disk}_write_bytes_per_s": _bytes(rate[_WRITE_SECTORS]),
            f"disk_{disk}_reads_per_s": rate[_READS],
            f"disk_{disk}_writes_per_s": rate[_WRITES],
            f"disk_{disk}_read_latency_us": _us(ratio(rate[_READ_MS], rate[_READS])),
            f"disk_{disk}_write_latency_us": _us(ratio(rate[_WRITE_MS], rate[_WRITES])),
            f"disk_{disk}_busy_share": None if busy is None else min(busy / 1000, 1.0),
            f"disk_{disk}_queue": None if queue is None else queue / 1000,
        }

    def _describe(self, disk: str) -> dict[str, Any]:
        folder = f"/sys/block/{disk}"
        rotational = stripped(self._kernel.text(f"{folder}/queue/rotational"))
        return {
            "model": stripped(self._kernel.text(f"{folder}/device/model")),
            "rotational": None if rotational is None else rotational == "1",
        }


def diskstats(kernel: Kernel) -> dict[str, list[int]]:
    """Counters by device. Older kernels write fewer fields than these; their partitions are left out."""
    found = {}
    for words in rows(kernel.text("/proc/diskstats")):
        if len(words) >= 3 + _FIELDS and all(map(is_whole, words[3 : 3 + _FIELDS])):
            found[words[2]] = [int(word) for word in words[3 : 3 + _FIELDS]]
    return found


def disk_names(kernel: Kernel) -> dict[str, str]:
    """Whole disk by `major:minor` and by device name, for it and for its partitions."""
    devices = [words[:3] for words in rows(kernel.text("/proc/diskstats")) if len(words) >= 3]
    disks = whole_disks(kernel, [name for _, _, name in devices])
    found = {}
    for major, minor, name in devices:
        disk = max((disk for disk in disks if name.startswith(disk)), key=len, default=None)
        if disk is not None:
            found[f"{major}:{minor}"] = found[name] = disk
    return found


def whole_disks(kernel: Kernel, devices: list[str]) -> list[str]:
    """Those that are no partition. Where /sys is hidden, a partition is a device named after another with a number."""
    blocks = set(kernel.names("/sys/block"))
    return [device for device in devices if (device in blocks if blocks else not _is_partition(device, devices))]


def _is_partition(device: str, devices: list[str]) -> bool:
    return any(device != disk and device.startswith(disk) and device[-1].isdigit() for disk in devices)


def _bytes(sectors: float | None) -> float | None:
    return None if sectors is None else sectors * SECTOR_BYTES


def _us(ms: float | None) -> float | None:
    return None if ms is None else ms * 1000
