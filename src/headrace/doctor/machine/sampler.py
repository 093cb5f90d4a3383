"""Sampler of the machine, in a thread of the doctor's own process."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.doctor.machine.host import Cores, Gpus, MachineMemory, MachinePart, Pressure, Processes, Rates, Readings
from headrace.doctor.probe.settings import SessionClock
from headrace.doctor.session.model import Machine
from headrace.system import ControlGroups, read_text

MOST_ROWS = 3600
"""Maximum number of readings: an hour, since a run that is only observed is measured at its start."""
_Part = TypeVar("_Part", bound=MachinePart)
_Result = TypeVar("_Result")


INTERVAL_S = 1.0
MOST_SHARE = 0.02
"""Share of one core that sampling may use. A machine with very many processes is read less often."""


class MachineSampler:
    """Sampler of this machine and the processes below `root_pid`. A part that fails is switched off and named."""

    def __init__(self, clock: SessionClock, root_pid: int, *, interval_s: float = INTERVAL_S) -> None:
        """`interval_s` is the time between two readings."""
        self._clock = clock
        self._root = root_pid
        self._interval_s = interval_s
        self._parts: list[MachinePart] = []
        self._processes: Processes | None = None
        self._gpus: Gpus | None = None
        self._off: dict[str, str] = {}
        self._time: list[int] = []
        self._columns: dict[str, list[float | None]] = {}
        self._rates = Rates()
        self._last: Machine | None = None
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-doctor-machine", daemon=True)

    def start(self) -> MachineSampler:
        self._thread.start()
        return self

    def stop(self) -> Machine:
        """Take a last reading, end the thread, and return the measurements. A second call returns the same."""
        self._is_over.set()
        self._thread.join()
        return self.machine()

    def machine(self) -> Machine:
        with self._lock:
            return self._last if self._last is not None else self._measured()

    def _run(self) -> None:
        self._open()
        pause_s = 0.0
        while not self._is_over.wait(pause_s):
            pause_s = self._pause_s(self._read())
        self._read()
        with self._lock:
            self._last = self._measured()
            if self._gpus is not None:
                self._gpus.close()

    def _open(self) -> None:
        """Open every part: processes first, since the command may be short; the GPUs last, since NVML is slow."""
        pid = self._root if read_text(f"/proc/{self._root}/mountinfo") else os.getpid()
        cgroups = ControlGroups(read_text, pid)
        rates = self._rates
        rates.now_s = self._clock.now_us() / 1e6
        self._processes = self._add(Processes.name, lambda: Processes(pid, rates))
        self._add(Cores.name, lambda: Cores(pid, cgroups, rates))
        self._add(MachineMemory.name, lambda: MachineMemory(cgroups))
        self._add(Pressure.name, lambda: Pressure(cgroups, rates))
        self._gpus = self._add(Gpus.name, Gpus)

    def _add(self, name: str, make: Callable[[], _Part]) -> _Part | None:
        part = self._try(name, make)
        if part is not None:
            with self._lock:
                self._parts.append(part)
        return part

    def _try(self, name: str, call: Callable[[], _Result]) -> _Result | None:
        """Query a part. A part may fail on an unknown kind of machine, while the others are still useful."""
        try:
            return call()
        except Exception as error:
            self._off[name] = f"{type(error).__name__}: {error}"
            return None

    def _read(self) -> float:
        """Add a row, and return its cost in seconds of one core."""
        began = time.thread_time()
        with self._lock:
            now_us = self._clock.now_us()
            self._rates.now_s = now_us / 1e6
            row: Readings = {}
            for part in self._parts:
                if part.name not in self._off:
                    row.update(self._try(part.name, part.read) or {})
            # Busy cores are divided into the command's, the doctor's own, and others'.
            busy, command = row.get("cpu_cores_busy"), row.get("cpu_cores_command")
            doctor = self._rates.per_second("doctor", time.process_time())
            others = None if busy is None or command is None else max(busy - command - (doctor or 0.0), 0.0)
            row["cpu_cores_other"] = others
            self._append(now_us, row)
        return time.thread_time() - began

    def _append(self, time_us: int, row: Readings) -> None:
        """Add a row. A late column is None in earlier rows."""
        if len(self._time) < MOST_ROWS:
            for name in row:
                self._columns.setdefault(name, [None] * len(self._time))
            self._time.append(time_us)
            for name, values in self._columns.items():
                values.append(row.get(name))

    def _pause_s(self, cost_s: float) -> float:
        return max(self._interval_s, cost_s / MOST_SHARE)

    def _measured(self) -> Machine:
        facts: dict[str, Any] = {}
        for part in self._parts:
            facts.update(self._try(part.name, part.facts) or {})
        facts["sampler_off"] = dict(self._off)
        return Machine(
            host=socket.gethostname(),
            facts=facts,
            time=list(self._time),
            columns={name: list(values) for name, values in self._columns.items()},
            processes=self._processes.figures() if self._processes is not None else {},
        )
