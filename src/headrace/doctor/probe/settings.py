"""Settings that the doctor passes to its probes, and the clocks that all probes read."""

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
"""Minimum work in ns for reading the kernel's file, which takes 6 µs; two readings are little in comparison."""


@dataclass(frozen=True)
class ProbeSettings:
    """Settings of one diagnosis: written once by the doctor, read by every process."""

    folder: str
    """Path of the session folder."""
    origin_us: int
    """Origin of all times in the evidence, on the doctor's CLOCK_MONOTONIC."""
    origin_wall_us: int
    """The same moment by the wall clock, for hosts that booted at another time."""
    boot_id: str
    """Boot of the machine to which `origin_us` belongs; empty if the kernel does not provide it."""
    observe: bool = False
    """True if the whole run is only observed. Otherwise the run ends once `steps` are measured."""
    warmup: int | None = None
    """Steps before the measured steps; None for as many as empty the prefetch queue."""
    steps: int = 200
    """Number of steps to measure."""
    enough: int = 0
    """Measured steps after which a run ends if it clearly does not wait for data; 0: never before `steps`."""
    replay: int = 0
    """Steps of the replay window after the measured steps; 0: none."""
    scratch: str = ""
    """Folder for tracker files, and for checkpoints from the first repeated batch on; empty: they go where they go."""
    proves: bool = False
    """True if the run is one of a proof: its checkpoints go to the scratch folder from the start."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Remedies to inject, from docs/doctor/remedies.md."""
    look_s: float = 0.0
    """Maximum duration of the inspection of sample values after the measured steps, in seconds; 0: none."""
    looks_first: bool = False
    """True if the run is only for that inspection, and ends with it at its first pass with autograd on."""
    orders: bool = False
    """True if the keys of all batches, and when checkpoints are saved, are recorded, to check a resume."""
    shortens: int = 0
    """Number of batches that each pass makes, in a run that is checked for faults of its data; 0: whole passes."""
    check_s: float = 60.0
    """Time from the first pass on after which such a run ends, in seconds."""
    digests: int = 0
    """Number of first batches that are digested in each training process, to compare runs."""
    standstill_s: float = 30.0
    """Time without a step or a batch after which the run counts as standing still, in seconds."""
    most_bytes: int = 16 << 20
    """Maximum size of each evidence file. A full file takes no more but how its process ends."""

    @property
    def evidence(self) -> str:
        return os.path.join(self.folder, EVIDENCE)

    def write(self) -> None:
        os.makedirs(self.evidence, exist_ok=True)
        with open(os.path.join(self.folder, SETTINGS_FILE), "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)

    @classmethod
    def read(cls, folder: str) -> ProbeSettings:
        """Read the settings, ignoring fields of a newer doctor: another version may have started this process."""
        with open(os.path.join(folder, SETTINGS_FILE), encoding="utf-8") as file:
            values = json.load(file)
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**dict(known, folder=folder))


class SessionClock:
    """One clock for all processes of a diagnosis: microseconds since its origin.

    CLOCK_MONOTONIC is one clock for a whole machine. On another machine, or after another boot, the wall clock gives
    the offset, as accurately as the two machines agree on it.
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
        return (monotonic_ns - self._zero_ns) // 1000


def boot_id() -> str:
    """Return the kernel's id of this boot, or an empty string if there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class CoreUse(NamedTuple):
    """Core use of a stretch of work, in nanoseconds."""

    cpu: int
    """CPU time of all threads of the process."""
    delay: int | None
    """Time the calling thread was runnable without a core; None if not requested, or unknown."""

    def us_since(self, before: CoreUse) -> tuple[int, int | None]:
        """Return the use between two readings in one thread, in whole microseconds."""
        delay = None if self.delay is None or before.delay is None else (self.delay - before.delay) // 1000
        return (self.cpu - before.cpu) // 1000, delay


def core_use(expected_ns: int) -> CoreUse:
    """Read the core use so far. `expected_ns` is the expected, or actual, length of the stretch of work.

    The scheduler's file is reopened each time: an open descriptor would report the thread that opened it, or a fork's.
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
