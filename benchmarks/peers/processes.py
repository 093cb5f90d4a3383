"""CPU time and memory of a process and all its descendants."""

import os
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Memory:
    """Proportional set size: a page that n processes share counts 1/n for each, so that a sum counts it once."""

    bytes: int
    file_bytes: int  # of it, pages of files (libraries, mapped data), which the kernel may drop


def tree(pid):
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def tree_cpu_s():
    """User and system seconds of this process, its live descendants, and those that these have waited for."""
    return sum(sum(times) for times in map(_cpu_times, tree(os.getpid())))


def tree_memory(pid):
    sizes = [_rollup(process.pid) for process in tree(pid)]
    return Memory(sum(size.bytes for size in sizes), sum(size.file_bytes for size in sizes))


def _cpu_times(process):
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return ()
    return times.user, times.system, times.children_user, times.children_system


def _rollup(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            lines = dict(line.split(":", 1) for line in file if line.startswith("Pss"))
    except OSError:  # it has ended
        return Memory(0, 0)
    return Memory(_bytes(lines.get("Pss")), _bytes(lines.get("Pss_File")))


def _bytes(text):
    return 0 if text is None else int(text.split()[0]) * 1024
