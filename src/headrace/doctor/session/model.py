"""Session model: every measurement of one diagnosis, merged on one clock. Findings are computed from it.

Times are microseconds since the session's origin, and durations are microseconds. A table has one column per field, all
of equal length. None means not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.doctor.session.after_run import DataFault, LoaderTrial, LookedImage, MachineSurvey, Proof
from headrace.doctor.session.declaring import Bytes, Duration, Facts, Pid, Time, listed, recorded, told
from headrace.doctor.session.producers import BatchProducer, FileOpens, RemoteReads
from headrace.doctor.session.trainers import Trainer

FORMAT = "headrace-session"
VERSION = 2

PhaseRow = tuple[str, int, int]
"""Name, start and end of a phase of the diagnosis."""


@recorded("every", {"gc": "Full garbage collections, of the oldest generation, since the last such record."})
@dataclass
class GarbageCollections:
    """Full garbage collections of a process, up to a time."""

    time: Time = told("of the record")
    count: int = told("collections")
    spent: Duration = told("of them together")
    longest: Duration = told("of the longest")


@dataclass
class ProbedProcess:
    """One process in which the probe ran. Host, pid and start identify it."""

    pid: Pid = told("the system's")
    parent: Pid = told("pid of its parent")
    host: str = told("on which it ran")
    role: str = told("`trainer`, `worker` or `other`")
    start: Time = told("when the probe began")
    end: Time | None = told("when it wrote its last record; `null` if the evidence just stops")
    ended: str | None = told(
        "`exit`, `steps` (the doctor ended it), `error` (an exception), or `null`: it was killed, or called `os._exit`"
    )
    facts: Facts = told(
        "by kind of record: `process`, `torch` and `facts`, newer values in place of older ones; of a process that "
        "trains also its `calls` records",
        default_factory=dict,
    )
    error: str | None = told("traceback of the exception that ended it", default=None)
    stacks: list[str] = listed("stacks that the probe recorded, as `hung: …`")
    cut: bool = told("whether its evidence reached its size limit, or ends within a record", default=False)
    evidence_bytes: Bytes = told("size of its evidence", default=0)
    collections: list[GarbageCollections] = listed("full garbage collections", rows_of="gc")


@dataclass
class SessionNote:
    """Message of a probe or of the doctor."""

    code: str = told("of the [list below](#note-codes)")
    text: str = told("what the report says")
    pid: Pid | None = told("of the process", default=None)
    time: Time | None = told("of the message", default=None)


@dataclass
class UnreachedProcess:
    """Python process of the command that imported torch and has no probe."""

    pid: Pid = told("the system's")
    command: str = told("its command line")
    why: str = told("why the probe did not reach it")


@dataclass
class Machine:
    """One host during the run ([machine](measuring.md#the-machine))."""

    host: str = told("its name")
    facts: Facts = told("that do not change", default_factory=dict)
    time: list[Time] = listed("of each reading")
    columns: dict[str, list[float | None]] = told(
        "readings by name with unit, such as `cpu_cores_busy` or `gpu0_sm_clock_mhz`", default_factory=dict
    )
    processes: dict[int, dict[str, Any]] = told(
        "figures over the life of each, by pid, such as `cpu_s`, `pss_bytes_peak`, `read_bytes`",
        default_factory=dict,
    )


@dataclass
class CommandOutcome:
    """Exit status of the command, and why it ended."""

    command: list[str] = told("by argument")
    status: int | None = told("its exit status; 128 + n after signal n; `null` while it runs")
    why: str = told("`finished`, `steps` (the doctor ended it), `failed`, `not found`, `interrupted`, `running`")
    duration: Duration = told("of the whole run")
    last_lines: list[str] = listed("of its output")


@dataclass
class Session:
    """Everything measured in one diagnosis."""

    created: str = told("ISO 8601, UTC")
    mode: str = told("`measure` (the doctor ended the run after its steps) or `observe` (the whole run)")
    headrace: str = told("version of the doctor")
    warmup: int | None = told("steps requested before the measured ones; `null`: as many as emptied the prefetch queue")
    steps: int = told("steps requested to be measured")
    outcome: CommandOutcome = told("how the command ended")
    processes: list[ProbedProcess] = listed("every process in which the probe ran, by its start")
    trainers: list[Trainer] = listed("processes that trained, by rank")
    makers: list[BatchProducer] = listed("processes that produced batches: workers, and trainers without workers")
    opened: FileOpens = told("files opened for reading during batch production", default_factory=FileOpens)
    remote: RemoteReads = told("requests to stores during batch production", default_factory=RemoteReads)
    machines: list[Machine] = listed("one a host")
    unreached: list[UnreachedProcess] = listed("Python processes that imported torch without the probe")
    notes: list[SessionNote] = listed("messages of the probes and of the doctor")
    survey: MachineSurvey | None = told(
        "what the doctor looked up on the machine after the command had ended", default=None
    )
    proofs: list[Proof] = listed("remedies that were tried")
    control: Proof | None = told(
        "the command run again as it is, to compare the proofs with; `null` without proofs, or time for it",
        default=None,
    )
    looked_image: LookedImage | None = told(
        "what the first picture of each sample is; `null` where no picture was explained", default=None
    )
    faults: list[DataFault] = listed("faults of the data, as inspected samples prove them")
    loader_trial: LoaderTrial | None = told("Headrace's Loader, tried in place of the run's", default=None)
    phases: list[PhaseRow] = listed(
        "name, start and end of what the diagnosis took its time for. Of the run: `start` (until its first step), "
        "`warm-up`, its [windows](#windows), and `end` (until its processes have ended and its files are back). Of the "
        "doctor after it: `read` (its evidence), `look` (an explanation of its samples; it holds the second start of a "
        "run that ended before it could be looked at), `survey` (of files), `diagnose`, `trial` (of Headrace's "
        "Loader), `prescribe` (simulations) and `prove`"
    )
    format: str = told("`headrace-session`", default=FORMAT)
    version: int = told("a reader refuses any other version", default=VERSION)

    def process_of(self, one: Trainer | BatchProducer) -> ProbedProcess | None:
        """Return the process of a trainer or producer: the first with the same pid on the same host."""
        return next((process for process in self.processes if (process.host, process.pid) == (one.host, one.pid)), None)

    def process_facts(self, one: Trainer | BatchProducer) -> dict[str, Any]:
        """Return the facts of the process of a trainer or producer."""
        process = self.process_of(one)
        return {} if process is None else process.facts
