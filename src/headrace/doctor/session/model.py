"""Session model: every measurement of one diagnosis, merged on one clock. Findings are computed from it.

Times are microseconds since the session's origin, and durations are microseconds. A table has one column per field, all
of equal length. None means not measured.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.doctor.session.after_run import DataCheck, DataFault, LoaderTrial, LookedImage, Proof
from headrace.doctor.session.trainers import BatchProducer, Facts, Pid, RemoteReads, Time, Trainer

FORMAT = "headrace-session"
VERSION = 2


class ProbedProcess(msgspec.Struct):
    """One process in which the probe ran. Host, pid and start identify it."""

    pid: Pid
    parent: Pid
    host: str
    role: str
    start: Time
    end: Time | None
    """Time of the last record; None if the evidence just stops."""
    ended: str | None
    """`exit`, `steps` (the doctor ended it), `error` (an exception); None if it was killed or called `os._exit`."""
    facts: Facts = {}
    """Facts by kind of record: `process`, `torch`, `facts`, and the `calls` of a trainer."""
    error: str | None = None
    """Traceback of the exception that ended it."""
    stacks: list[str] = []
    """Recorded stacks, as `hung: …` or `stands: …`."""
    cut: bool = False
    """True if its evidence reached its size limit, or ends within a record."""
    evidence_bytes: int = 0


class SessionNote(msgspec.Struct):
    """Message of a probe or of the doctor."""

    code: str
    text: str
    pid: Pid | None = None
    time: Time | None = None


class Machine(msgspec.Struct):
    """One host during the run."""

    host: str
    facts: Facts = {}
    time: list[Time] = []
    columns: dict[str, list[float | None]] = {}
    """Readings by name with unit, such as `cpu_cores_busy` or `gpu0_utilisation_percent`."""
    processes: dict[int, dict[str, Any]] = {}
    """Figures over the life of each process by pid, such as `cpu_s`, `pss_bytes_peak`, `read_bytes`."""


class Standstill(msgspec.Struct):
    """Processes of a command at the time when it stood still, or was asked to end."""

    states: dict[Pid, str] = {}
    """Status of each process in psutil's words, such as `stopped` or `zombie`."""
    shared_memory_free: int | None = None
    """Free bytes of /dev/shm."""


class CommandOutcome(msgspec.Struct):
    """Exit status of the command, and why it ended."""

    command: list[str]
    status: int
    """Exit status; 128 + n after signal n; 127 if not found, 126 if not executable."""
    why: str
    """`finished`, `steps` (the doctor ended it), `failed`, `not found`, `interrupted`, `timed out`, `stalled` (it stood
    still, and the doctor ended it)."""
    duration: int
    last_lines: list[str] = []
    standstill: Standstill | None = None


class Session(msgspec.Struct):
    """Everything measured in one diagnosis."""

    created: str
    """ISO 8601, UTC."""
    mode: str
    """`measure` (the doctor ended the run after its steps) or `observe` (the whole run)."""
    headrace: str
    warmup: int | None
    """Steps requested before the measured ones; None for as many as emptied the prefetch queue."""
    steps: int
    """Steps requested to be measured."""
    outcome: CommandOutcome
    processes: list[ProbedProcess] = []
    """Every process in which the probe ran, by start."""
    trainers: list[Trainer] = []
    """Processes that trained, by rank."""
    makers: list[BatchProducer] = []
    """Processes that produced batches: workers, and trainers without workers."""
    remote: RemoteReads = msgspec.field(default_factory=RemoteReads)
    machines: list[Machine] = []
    notes: list[SessionNote] = []
    proofs: list[Proof] = []
    controls: list[Proof] = []
    """Runs of the unchanged command that alternate with the proofs."""
    looked_image: LookedImage | None = None
    """Recipe of each sample's first picture; None if no picture was explained."""
    faults: list[DataFault] = []
    check: DataCheck | None = None
    """None if the run was no check."""
    loader_trial: LoaderTrial | None = None
    format: str = FORMAT
    version: int = VERSION
    """Version of the format. A reader refuses any other."""

    def process_of(self, one: Trainer | BatchProducer) -> ProbedProcess | None:
        """Return the process of a trainer or producer: the first with the same pid on the same host."""
        return next((process for process in self.processes if (process.host, process.pid) == (one.host, one.pid)), None)

    def process_facts(self, one: Trainer | BatchProducer) -> dict[str, Any]:
        process = self.process_of(one)
        return {} if process is None else process.facts
