"""Settings that the doctor hands to its probes, and the clocks that all of them read."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

SETTINGS_FILE = "settings.json"
EVIDENCE = "evidence"
_SCHEDSTAT = "/proc/thread-self/schedstat"
_LONG_NS = 10_000_000
"""Reading a file of the kernel's takes 6 µs; twice that is little beside work as long as this."""


@dataclass(frozen=True)
class ProbeSettings:
    """Settings of one diagnosis: written once by the doctor, read by every process."""

    folder: str
    """The session's folder."""
    origin_us: int
    """Zero of every time in the evidence, on the doctor's CLOCK_MONOTONIC."""
    origin_wall_us: int
    """The same moment by the wall clock, for hosts that booted at another time."""
    boot_id: str
    """Which boot of which machine `origin_us` belongs to; empty where the kernel does not tell."""
    observe: bool = False
    """Passive for the whole run. Otherwise the run ends once `steps` were measured."""
    warmup: int | None = None
    """Steps before the measured ones; None for as many as empty the prefetch queue."""
    steps: int = 200
    """Steps to measure."""
    enough: int = 0
    """Measured steps after which a run that plainly waits for no data ends; 0: never before `steps`."""
    ranges: bool = False
    """Whether steps and stages show as record_function and NVTX ranges."""
    replay: int = 0
    """Steps of the replay window, and of that under load, after the measured ones; 0: neither, and no drain."""
    early: bool = True
    """Whether a few steps are replayed beyond the end of a first epoch that is short, if any are replayed."""
    drain_s: float = 0.0
    """Seconds that draining may take."""
    scratch: str = ""
    """The folder that takes what the run would write of checkpoints and trackers' files; empty: it writes as ever."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Remedies to inject, of docs/doctor/remedies.md."""
    look_s: float = 0.0
    """Seconds that a look at the values of samples may take, once the steps were measured; 0: none."""
    looks_first: bool = False
    """Whether the run is for that look alone, and ends with it at its first pass with autograd on."""
    digests: int = 0
    """Batches, the first of each process that trains, that are digested, so that runs can be compared."""
    most_bytes: int = 16 << 20
    """Size that no evidence file exceeds; from half of it on, records are thinned."""

    @property
    def evidence(self) -> str:
        return os.path.join(self.folder, EVIDENCE)

    def write(self) -> None:
        os.makedirs(self.evidence, exist_ok=True)
        with open(os.path.join(self.folder, SETTINGS_FILE), "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)

    @classmethod
    def read(cls, folder: str) -> ProbeSettings:
        """Read them, without fields of a newer doctor: one process may have been started by another version."""
        with open(os.path.join(folder, SETTINGS_FILE), encoding="utf-8") as file:
            values = json.load(file)
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**dict(known, folder=folder))


class SessionClock:
    """One clock for all processes of a diagnosis: microseconds since its origin.

    CLOCK_MONOTONIC is one clock for a whole machine. On another machine, or after another boot, the wall clock gives
    the distance, as well as the two machines agree on it.
    """

    def __init__(self, settings: ProbeSettings) -> None:
        if settings.boot_id == boot_id():
            self._zero_ns = settings.origin_us * 1000
        else:
            since_origin_ns = time.time_ns() - settings.origin_wall_us * 1000
            self._zero_ns = time.monotonic_ns() - since_origin_ns

    def now_us(self) -> int:
        return (time.monotonic_ns() - self._zero_ns) // 1000

    def us(self, monotonic_ns: int) -> int:
        """Convert a reading of time.monotonic_ns()."""
        return (monotonic_ns - self._zero_ns) // 1000


def boot_id() -> str:
    """Return the kernel's name for this boot; empty where it has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class CoreUse(NamedTuple):
    """Use of the cores by a stretch of work, in nanoseconds."""

    cpu: int
    """CPU time of all threads of the process."""
    delay: int | None
    """How long the calling thread was ready to run and had no core; None where that is not asked, or not known."""

    def us_since(self, before: CoreUse) -> tuple[int, int | None]:
        """Return the use between two readings in one thread, in whole microseconds."""
        delay = None if self.delay is None or before.delay is None else (self.delay - before.delay) // 1000
        return (self.cpu - before.cpu) // 1000, delay


def others_cpu_ns() -> int:
    """Return the CPU time that all other threads of the process have had up to now."""
    return time.process_time_ns() - time.thread_time_ns()


def core_use(expected_ns: int) -> CoreUse:
    """Read the use up to now. `expected_ns` is how long the stretch will be, or was, as far as is known.

    The scheduler's file is read anew each time: one kept open would tell of the thread that opened it, or a fork's.
    """
    cpu = time.process_time_ns()
    if expected_ns < _LONG_NS:
        return CoreUse(cpu, None)
    try:
        descriptor = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return CoreUse(cpu, None)
    try:
        words = os.read(descriptor, 64).split()
    finally:
        os.close(descriptor)
    return CoreUse(cpu, int(words[1]) if len(words) == 3 and any(word != b"0" for word in words) else None)
