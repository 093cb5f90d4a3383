"""CPU time and memory of a process and all its descendants, from Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(root: int, *, proc: Path = PROC) -> list[int]:
    """List the live process `root` and its descendants."""
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit() and (fields := _stat(folder)) is not None:
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [root]
    for pid in found:  # grows as it goes
        found += children.get(pid, [])
    return found


def cpu_s(pids: list[int], *, proc: Path = PROC) -> float:
    """Sum user and system time, in seconds, of these processes and of children that they have already reaped."""
    all_fields = (_stat(proc / str(pid)) for pid in pids)
    return sum(int(ticks) for fields in all_fields if fields for ticks in fields[11:15]) / TICKS_PER_S


def pss_bytes(pids: list[int], *, proc: Path = PROC) -> int | None:
    """Sum the proportional set sizes, in which a page that n processes share counts 1/n for each.

    None where the kernel shows none of them.
    """
    sizes = [_pss_bytes(proc / str(pid)) for pid in pids]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _stat(folder: Path) -> list[str] | None:
    """Read the fields after the command's name, which may itself hold spaces and parentheses; None if it is gone."""
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _pss_bytes(folder: Path) -> int | None:
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)
