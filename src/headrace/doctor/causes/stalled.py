"""Runs that stand still and batches that hang: where each thread waits, and the cause where its signs are clear."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import psutil

from headrace.doctor.causes.cause import LEADS, Cause, Run
from headrace.doctor.causes.processes import KILLED, failed_process
from headrace.doctor.causes.stages import who
from headrace.doctor.measure import Finding
from headrace.doctor.probe.batch_production import LOST
from headrace.doctor.probe.training.loop_watch import MOVES, STANDS
from headrace.doctor.quantities import counted, size
from headrace.doctor.session.model import ProbedProcess, Session

RANKS, WORKER, LOCK_HELD, SERVER_SILENT, SAMPLE, MEMORY_FULL, ELSEWHERE = STALLS = (
    "stalled-ranks",
    "stalled-worker",
    "stalled-lock",
    "stalled-server",
    "stalled-sample",
    "stalled-shared-memory",
    "stalled",
)
ENDINGS = (*STALLS, KILLED)
"""Codes of findings that end a run, unless it ends by itself."""
LARGER = "Free /dev/shm, start the container with a larger one (--shm-size=8g, or --ipc=host), or use fewer workers."
NO_MEMORY = re.compile(r"out of shared memory|shared memory.*No space left|unable to (?:write|resize).*/torch_\d")
"""Errors of torch, of a worker or about it, for want of shared memory."""
FULL_BYTES = 1 << 20
"""Free shared memory below which a batch does not fit."""
STACK = re.compile(rf"{STANDS}: (?P<batches>\d+) batches, (?P<steps>\d+) steps\n(?P<stack>.*)", re.DOTALL)
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)(?:\n    (?P<code>.*))?')
HUNG = re.compile(
    r"hung: (?P<since>batch (?P<index>-?\d+) of epoch (?P<epoch>-?\d+) has been .*?):\n(?P<stack>.*)", re.DOTALL
)
PROBE = "/headrace/doctor/probe/"
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen ")
LOCK = re.compile(r"\block\b|_lock|acquire|\bphil\b|semaphore|condition", re.IGNORECASE)
AWAITED = ("wait", "get", "join", "result")
"""Functions of a library that wait for an event, a queue or a thread, and hold a lock for it."""
SERVER = re.compile(
    r"/(?:socket|ssl|http/client|urllib3|botocore|requests|fsspec|aiohttp|s3fs|httpx)\b|\.recv\(|\.connect\(|urlopen\("
)
WRAPPERS = ("wrapper", "inner", "wrapped")
"""Functions of decorators, which name nothing."""
COLLECTIVE = re.compile(r"distributed|/autograd/|_tensor\.py")


@dataclass(frozen=True)
class Frame:
    file: str
    line: str
    name: str
    code: str

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line} ({self.name})"

    @property
    def is_users(self) -> bool:
        return LIBRARY.search(self.file) is None


@dataclass(frozen=True)
class StandingThread:
    """Training thread that stands still, or thread whose batch hangs."""

    process: ProbedProcess
    name: str
    since: str
    """Batches until it stood still; or the batch that hangs, and its time so far."""
    stack: str
    batches: int = 0
    """Batches that a training thread received."""

    @property
    def frames(self) -> Sequence[Frame]:
        """Calls as the probe writes them, innermost last, without the probe's own."""
        found = [Frame(one["file"], one["line"], one["name"], one["code"] or "") for one in FRAME.finditer(self.stack)]
        return [one for one in found if PROBE not in one.file]

    @property
    def where(self) -> str:
        """The user's line, and the library's function that it waits in."""
        own = max((at for at, one in enumerate(self.frames) if one.is_users), default=0)
        inside = [one.name for one in self.frames[own + 1 :] if one.name not in WRAPPERS and one.name[0] != "_"]
        return f"{self.name} waits{f' in {inside[0]}' if inside else ''} at {self.frames[own]}"


Threads = Sequence[StandingThread]
Explained = tuple[str, str, str]
"""Code, cause and advice of a finding."""


def standing_ranks(session: Session) -> list[StandingThread]:
    """Return the training threads that stood still when the command was ended, by rank."""
    found = []
    for trainer in session.trainers if session.outcome.standstill is not None else ():
        process = session.process_of(trainer)
        told = [] if process is None else [one for one in process.stacks if one.startswith((STANDS, MOVES))]
        if process is not None and told and (last := STACK.fullmatch(told[-1])) is not None:
            name = f"Rank {trainer.rank}" if len(session.trainers) > 1 else "The training thread"
            batches = int(last["batches"])
            found.append(StandingThread(process, name, f"after {counted(batches, 'batch')}", last["stack"], batches))
    return [one for one in found if one.frames]


def hanging_batches(session: Session) -> list[StandingThread]:
    """Return the threads whose batch took much longer than any before and is the last of its process."""
    found = []
    for process in session.processes:
        made = [one.batches for one in session.makers if (one.host, one.pid) == (process.host, process.pid)]
        last = max((pair for one in made for pair in zip(one.epoch, one.index, strict=True)), default=())
        hung = [one for text in process.stacks if (one := HUNG.fullmatch(text)) is not None]
        told = [one for one in hung if last < (int(one["epoch"]), int(one["index"]))]
        found += [StandingThread(process, who(session, process), one["since"], one["stack"]) for one in told]
    return [one for one in found if one.frames]


def stalled_findings(run: Run) -> Iterator[Finding]:
    session = run.session
    if (full := _failed_without_memory(session)) is not None:
        yield full
        return
    ranks, batches = standing_ranks(session), hanging_batches(session)
    if not ranks and not batches:
        return
    code, cause, advice = (
        (_unsent_batch(session) if ranks else None)
        or _lost_worker(session, ranks)
        or _slow_sample(batches)
        or _uneven_ranks(session, ranks)
        or (
            ELSEWHERE,
            f"nothing returns from {(at := ranks[0].frames[-1])}",
            f"Look at {at}: a timeout makes it an error.",
        )
    )
    evidence = "; ".join(f"{one.where}, {one.since}" for one in ranks or batches)
    yield Finding(code, 1.0, f"{'The run stands still' if ranks else 'A batch hangs'}: {cause}.", evidence, advice)


def _unsent_batch(session: Session) -> Explained | None:
    """Name a batch that a worker could not send, or shared memory without room for one."""
    errors = [(one, text) for one in session.processes for text in one.stacks if text.startswith(f"{LOST}: ")]
    standstill = session.outcome.standstill
    free = None if standstill is None else standstill.shared_memory_free
    if free is not None and (free < FULL_BYTES or any(NO_MEMORY.search(text) for _, text in errors)):
        return (
            MEMORY_FULL,
            f"/dev/shm is full ({size(free)} free), so workers cannot hand over batches",
            LARGER,
        )
    for worker, text in errors:
        return (
            WORKER,
            f"{who(session, worker)} cannot send a batch: {text.partition(': ')[2]}",
            "Return tensors, arrays and plain values from the dataset and from collate_fn: batches are pickled.",
        )
    return None


def _failed_without_memory(session: Session) -> Finding | None:
    """Find a worker that had no shared memory for its batch: its error says so, or torch blames a bus error on it."""
    failed = failed_process(session) if session.outcome.why == "failed" else None
    lines = [line for line in ((failed and failed.error) or "").splitlines() if NO_MEMORY.search(line)]
    if not lines:
        return None
    total = next((total for one in session.machines if (total := one.facts.get("shm_bytes"))), None)
    of = "" if total is None else f" ({size(total)})"
    text = f"The run failed: /dev/shm{of} is full, so workers cannot hand over batches."
    return Finding(MEMORY_FULL, 1.0, text, lines[-1].strip().rstrip("."), LARGER)


def _lost_worker(session: Session, ranks: Threads) -> Explained | None:
    standstill, parents = session.outcome.standstill, {one.process.pid for one in ranks}
    states = {} if standstill is None else standstill.states
    for worker in session.processes:
        if worker.role != "worker" or worker.parent not in parents or worker.ended is not None:
            continue
        state = states.get(worker.pid, psutil.STATUS_ZOMBIE)
        if state == psutil.STATUS_STOPPED:
            return (
                WORKER,
                f"{who(session, worker)} is stopped (SIGSTOP), and its batches are missing",
                f"Continue it with kill -CONT {worker.pid}, and find out what stops it: a debugger, or job control.",
            )
        if state == psutil.STATUS_ZOMBIE:
            return (
                WORKER,
                f"{who(session, worker)} has died, and its batches are missing",
                "Look at dmesg for the OOM killer, and at what the worker prints; set the DataLoader's timeout=60 to "
                "get an error instead.",
            )
    return None


def _slow_sample(batches: Threads) -> Explained | None:
    """Name the line of a sample that does not come: a lock, a server, or the dataset itself."""
    if not batches:
        return None
    name, calls = batches[0].name, batches[0].frames
    own = next((each for each in reversed(calls) if each.is_users), calls[-1])
    inner = calls[calls.index(own) :]
    is_awaiting = any(each.name in AWAITED for each in inner[1:])
    if not is_awaiting and any(LOCK.search(f"{each.name} {each.code}") for each in inner):
        is_fork = any("/multiprocessing/popen_fork.py" in each.file for each in calls)
        fork = ", which a thread of the parent held at the fork" if is_fork else ""
        advice = 'Make the lock, or what holds it, in the worker; or set multiprocessing_context="spawn".'
        return LOCK_HELD, f"{name} waits for a lock{fork}, at {own}", advice
    if any(SERVER.search(f"{each.file} {each.code}") for each in inner):
        advice = "Set a timeout and retries for the request; look at whether the store answers at all."
        return SERVER_SILENT, f"{name} waits for a server's answer at {own}", advice
    return SAMPLE, f"{name} does not return from {own}", f"Look at {own}: the sample that is made there never comes."


def _uneven_ranks(session: Session, ranks: Threads) -> Explained | None:
    """Name the rank that has no more batches while others wait for it in a collective."""
    waiting = [one for one in ranks if any(COLLECTIVE.search(each.file) for each in one.frames if not each.is_users)]
    counts = {one.name: one.batches for one in ranks}
    for trainer in session.trainers:
        process = session.process_of(trainer)
        if process is not None and process.ended == "exit" and len(session.trainers) > 1:
            counts[f"Rank {trainer.rank}"] = len(trainer.gets.index)
    if not waiting or len(counts) < 2 or len(set(counts.values())) == 1:
        return None
    least = min(counts, key=lambda name: counts[name])
    most = max(waiting, key=lambda one: one.batches)
    return (
        RANKS,
        f"{least} ended after {counted(counts[least], 'batch')}, and {most.name.lower()} waits "
        f"for it after {most.batches}, at {most.where.rpartition(' at ')[2]}",
        "Give all ranks equally many batches: DistributedSampler, drop_last=True, equal shards; or train within "
        "torch.distributed.algorithms.join.Join.",
    )


_STANDS = "No step ended and no batch arrived for 30 s, and 20 times as long as usual"
_HANGS = f"{_STANDS}, or a batch was not made in 10 s and 20 times as long"
CAUSE = Cause(
    findings={
        RANKS: f"{_STANDS}; ranks wait in a collective for one that had fewer batches.",
        WORKER: f"{_STANDS}; a worker is stopped, has died, or cannot send a batch.",
        LOCK_HELD: f"{_HANGS}; a sample waits for a lock.",
        SERVER_SILENT: f"{_HANGS}; a sample waits for a server.",
        SAMPLE: f"{_HANGS}; a sample is not returned.",
        MEMORY_FULL: f"{_STANDS}; or the run failed; /dev/shm is full.",
        ELSEWHERE: f"{_STANDS}.",
    },
    find=stalled_findings,
    order=LEADS,
)
