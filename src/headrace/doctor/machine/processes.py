"""What one process of the command used over its life."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from typing import Any

from headrace.doctor.machine.cores import TICKS_A_SECOND
from headrace.doctor.machine.kernel import Kernel, pairs
from headrace.doctor.process_stat import Stat

MOST_NAMED_THREADS = 512
"""Of one process; each costs a file."""
NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")


class Process:
    """Figures of one process, each the newest or the largest seen. None is what the kernel did not tell: the memory and
    I/O of another user's process, say."""

    def __init__(self, kernel: Kernel, pid: int, seen: Stat) -> None:
        self.pid = pid
        self.started_ticks = seen.started_ticks
        self.detailed_at_s = -math.inf
        self.threads: int | None = None
        self.of_children_s = 0.0
        """CPU time of its children that ended, as last seen of each."""
        self._before_s = seen.waited_ticks / TICKS_A_SECOND
        self._own_s = self._waited_s = 0.0
        self._kernel = kernel
        self._memory = Memory()
        self._threads_named = 0
        self.figures: dict[str, Any] = {"parent": seen.parent, **self._memory.figures(), "threads_by_name": None}

    def read(self, seen: Stat, now_s: float) -> None:
        """What is cheap: four small files, none of which holds up the process. Of one that has ended and is not fetched
        yet, a zombie, only the times are still told."""
        status = pairs(self._text("status"))
        io = pairs(self._text("io"))
        self.threads = seen.threads or self.threads
        self._keep("name", seen.name)
        self._keep("last", round(now_s * 1e6))
        self._own_s = (seen.user_ticks + seen.system_ticks) / TICKS_A_SECOND
        self._waited_s = seen.waited_ticks / TICKS_A_SECOND
        self._keep("cpu_s", self._own_s)
        self._keep("cpu_user_s", seen.user_ticks / TICKS_A_SECOND)
        self._keep("cpu_system_s", seen.system_ticks / TICKS_A_SECOND)
        self._keep("cpu_wait_s", _waited(self._text("schedstat")))
        self._keep("threads_peak", _largest(self.figures.get("threads_peak"), self.threads))
        self._keep("major_faults", seen.major_faults)
        rss = status.get("VmHWM", status.get("VmRSS"))
        self._keep("rss_bytes_peak", _largest(self.figures.get("rss_bytes_peak"), rss))
        self._keep("switches_voluntary", status.get("voluntary_ctxt_switches"))
        self._keep("switches_involuntary", status.get("nonvoluntary_ctxt_switches"))
        self._keep("read_call_bytes", io.get("rchar"))
        self._keep("read_bytes", io.get("read_bytes"))
        self._keep("write_bytes", io.get("write_bytes"))

    def read_details(self, now_s: float) -> None:
        """What is dear: the kernel walks all the process's pages (10 ms for 500 MB), and a file a thread."""
        self.detailed_at_s = now_s
        self._memory.read(pairs(self._text("smaps_rollup")))
        self.figures.update(self._memory.figures())
        threads = self.figures.get("threads_peak") or 0
        if threads > self._threads_named:
            self._threads_named = threads
            self.figures["threads_by_name"] = self._thread_names()

    def read_files(self) -> list[str]:
        """Paths of the files that it has open now to read from; pipes, sockets, devices and logs left out."""
        found = []
        for descriptor in self._kernel.names(f"/proc/{self.pid}/fd"):
            path = self._kernel.link(f"/proc/{self.pid}/fd/{descriptor}") or ""
            if path.startswith("/") and not path.startswith(NO_FILES) and self._is_read(descriptor):
                found.append(path)
        return found

    @property
    def used_s(self) -> float:
        """CPU time, its own and that of its children that ended. What these used after they had been seen last, it
        knows itself once it has waited for them."""
        return self._own_s + max(self._waited_s, self._before_s + self.of_children_s)

    def is_it(self, seen: Stat) -> bool:
        """Whether that is this process, and not a later one of the same number."""
        return seen.started_ticks == self.started_ticks

    @property
    def pss_bytes(self) -> int | None:
        """Now; None where it was not read."""
        return self._memory.pss_bytes

    def _thread_names(self) -> dict[str, int]:
        """Libraries that name their threads can be told apart, `pt_autograd_0` say; the rest bear the program's."""
        folder = f"/proc/{self.pid}/task"
        threads = self._kernel.names(folder)[:MOST_NAMED_THREADS]
        names = [self._kernel.text(f"{folder}/{thread}/comm") for thread in threads]
        return dict(Counter(re.sub(r"[-_:#]?\d+$", "", name.strip()) for name in names if name is not None))

    def _keep(self, figure: str, value: Any) -> None:
        """The newest; what is no longer told keeps its last value."""
        if value is not None or figure not in self.figures:
            self.figures[figure] = value

    def _is_read(self, descriptor: str) -> bool:
        """By the flags of open, which fdinfo writes in octal: the last digit holds the access mode. A file whose flags
        are not told counts."""
        flags = pairs(self._text(f"fdinfo/{descriptor}")).get("flags", os.O_RDONLY)
        return flags % 10 & os.O_ACCMODE != os.O_WRONLY

    def _text(self, file: str) -> str | None:
        return self._kernel.text(f"/proc/{self.pid}/{file}")


class Memory:
    """What a process holds, of /proc/PID/smaps_rollup.

    A forked worker begins with all its parent's memory, shared: a page becomes its own when either writes to it, and
    reading a Python object writes to its reference count. `cow_bytes` is that growth: by how much anonymous memory that
    others shared has shrunk since the process was first seen, as far as its private memory has grown by as much. (New
    memory grows the private part alone; freeing inherited memory shrinks the shared part alone.) It is a lower bound:
    pages that were copied before the first look are not in it.
    """

    def __init__(self) -> None:
        self.pss_bytes: int | None = None
        self._first: tuple[int, int] | None = None
        self._figures: dict[str, int] = {}

    def read(self, rollup: dict[str, int]) -> None:
        self.pss_bytes = rollup.get("Pss", self.pss_bytes)
        private = rollup.get("Private_Dirty")
        for name, value in (("pss_bytes_peak", rollup.get("Pss")), ("private_bytes_peak", private)):
            if value is not None:
                self._figures[name] = max(value, self._figures.get(name, 0))
        if private is None or "Anonymous" not in rollup:
            return
        shared = max(rollup["Anonymous"] - private, 0)
        if self._first is None:
            self._first = (shared, private)
            self._figures["shared_bytes_first"] = shared
            return
        cow = min(self._first[0] - shared, private - self._first[1])
        self._figures["cow_bytes"] = max(cow, self._figures.get("cow_bytes", 0))

    def figures(self) -> dict[str, int | None]:
        names = ("pss_bytes_peak", "private_bytes_peak", "shared_bytes_first", "cow_bytes")
        return {name: self._figures.get(name) for name in names}


def _waited(schedstat: str | None) -> float | None:
    """Seconds that the first thread was ready to run and had no core; None where the scheduler does not count."""
    words = (schedstat or "").split()
    return int(words[1]) / 1e9 if len(words) == 3 and any(word != "0" for word in words) else None


def _largest(before: int | None, now: int | None) -> int | None:
    return max((value for value in (before, now) if value is not None), default=None)
