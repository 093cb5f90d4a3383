"""Runs that stand still: for each rank where its training thread waits, and the cause where its signs are clear."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import psutil

from headrace.doctor.causes.cause import LEADS, Cause, Run
from headrace.doctor.causes.processes import failed_process, hanging
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
LARGER = "Free /dev/shm, start the container with a larger one (--shm-size=8g, or --ipc=host), or use fewer workers."
NO_MEMORY = re.compile(r"out of shared memory|shared memory.*No space left|unable to (?:write|resize).*/torch_\d")
"""Errors of torch, of a worker or about it, for want of shared memory."""
FULL_BYTES = 1 << 20
"""Free shared memory below which a batch does not fit."""
STACK = re.compile(rf"{STANDS}: (?P<batches>\d+) batches, (?P<steps>\d+) steps\n(?P<stack>.*)", re.DOTALL)
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)(?:\n    (?P<code>.*))?')
PROBE, FETCH = "/headrace/doctor/probe/", "/utils/data/_utils/fetch.py"
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
class StandingRank:
    """Training thread that stands still."""

    process: ProbedProcess
    name: str
    batches: int
    frames: Sequence[Frame]

    @property
    def where(self) -> str:
        """The user's line, and the library's function that it waits in."""
        own = max((at for at, one in enumerate(self.frames) if one.is_users), default=0)
        inside = [one.name for one in self.frames[own + 1 :] if one.name not in WRAPPERS and one.name[0] != "_"]
        return f"{self.name} waits{f' in {inside[0]}' if inside else ''} at {self.frames[own]}"

    @property
    def is_in_collective(self) -> bool:
        return any(COLLECTIVE.search(one.file) for one in self.frames if not one.is_users)


def frames_of(stack: str) -> list[Frame]:
    """Parse a stack as the probe writes it, innermost last, without the probe's own frames."""
    found = [Frame(one["file"], one["line"], one["name"], one["code"] or "") for one in FRAME.finditer(stack)]
    return [one for one in found if PROBE not in one.file]


def standing_ranks(session: Session) -> list[StandingRank]:
    """Return the training threads whose last report says that they stand still, by rank."""
    found = []
    for process in session.processes:
        told = [one for one in process.stacks if one.startswith((STANDS, MOVES))]
        match = STACK.fullmatch(told[-1]) if told else None
        frames = [] if match is None else frames_of(match["stack"])
        if match is not None and frames:
            ranks = (process.facts.get(kind, {}).get("rank") for kind in ("facts", "process"))
            rank = next((each for each in ranks if each is not None), None)
            name = "The training thread" if rank is None else f"Rank {rank}"
            found.append((rank or 0, StandingRank(process, name, int(match["batches"]), frames)))
    return [one for _, one in sorted(found, key=lambda each: each[0])]


def stalled_findings(run: Run) -> Iterator[Finding]:
    session, standstill = run.session, run.session.outcome.standstill
    if (full := _failed_without_memory(session)) is not None:
        yield full
        return
    ranks = [] if standstill is None else standing_ranks(session)
    if not ranks or session.outcome.why not in ("stalled", "interrupted"):
        return
    causes = (_unsent_batch, _lost_worker, _slow_sample, _uneven_ranks)
    cause = next((found for each in causes if (found := each(session, ranks)) is not None), None)
    code, text, advice = cause or (
        ELSEWHERE,
        "The run stands still.",
        f"Look at {ranks[0].frames[-1]}: nothing there has returned. A timeout makes it an error.",
    )
    yield Finding(code, 1.0, text, "; ".join(f"{one.where}, after {one.batches} batches" for one in ranks), advice)


def _unsent_batch(session: Session, _: Sequence[StandingRank]) -> tuple[str, str, str] | None:
    """Name a batch that a worker could not send, or shared memory without room for one."""
    errors = [(one, text) for one in session.processes for text in one.stacks if text.startswith(f"{LOST}: ")]
    standstill = session.outcome.standstill
    free = None if standstill is None else standstill.shared_memory_free
    if free is not None and (free < FULL_BYTES or any(NO_MEMORY.search(text) for _, text in errors)):
        return (
            MEMORY_FULL,
            f"The run stands still: /dev/shm is full ({size(free)} free), so workers cannot hand over batches.",
            LARGER,
        )
    for worker, text in errors:
        return (
            WORKER,
            f"The run stands still: {who(session, worker)} cannot send a batch: {text.partition(': ')[2]}.",
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


def _lost_worker(session: Session, ranks: Sequence[StandingRank]) -> tuple[str, str, str] | None:
    assert session.outcome.standstill is not None
    states, parents = session.outcome.standstill.states, {one.process.pid for one in ranks}
    for worker in session.processes:
        if worker.role != "worker" or worker.parent not in parents or worker.ended is not None:
            continue
        state = states.get(worker.pid, psutil.STATUS_ZOMBIE)
        if state == psutil.STATUS_STOPPED:
            return (
                WORKER,
                f"The run stands still: {who(session, worker)} is stopped (SIGSTOP), and its batches are missing.",
                f"Continue it with kill -CONT {worker.pid}, and find out what stops it: a debugger, or job control.",
            )
        if state == psutil.STATUS_ZOMBIE:
            return (
                WORKER,
                f"The run stands still: {who(session, worker)} has died, and its batches are missing.",
                "Look at dmesg for the OOM killer, and at what the worker prints; set the DataLoader's timeout=60 to "
                "get an error instead.",
            )
    return None


def _slow_sample(session: Session, ranks: Sequence[StandingRank]) -> tuple[str, str, str] | None:
    """Name the line of a sample that does not come: a lock, a server, or the dataset itself."""
    parents = {one.process.pid for one in ranks}
    hung: list[tuple[str, Sequence[Frame]]] = [
        (who(session, one), frames)
        for one, stack in hanging(session)
        if one.parent in parents and (frames := frames_of(stack))
    ]
    alone = [(one.name, one.frames) for one in ranks if any(FETCH in each.file for each in one.frames)]
    for name, calls in hung or alone:
        own = next((each for each in reversed(calls) if each.is_users), calls[-1])
        inner = calls[calls.index(own) :]
        is_fork = any("/multiprocessing/popen_fork.py" in each.file for each in calls)
        is_awaiting = any(each.name in AWAITED for each in inner[1:])
        if not is_awaiting and any(LOCK.search(f"{each.name} {each.code}") for each in inner):
            fork = ", which a thread of the parent held at the fork" if is_fork else ""
            return (
                LOCK_HELD,
                f"The run stands still: {name} waits for a lock{fork}, at {own}.",
                'Make the lock, or what holds it, in the worker; or start workers by multiprocessing_context="spawn".',
            )
        if any(SERVER.search(f"{each.file} {each.code}") for each in inner):
            return (
                SERVER_SILENT,
                f"The run stands still: {name} waits for a server's answer at {own}.",
                "Set a timeout and retries for the request; look at whether the store answers at all.",
            )
        return (
            SAMPLE,
            f"The run stands still: {name} does not return from {own}.",
            f"Look at {own}: the sample that is made there never comes.",
        )
    return None


def _uneven_ranks(session: Session, ranks: Sequence[StandingRank]) -> tuple[str, str, str] | None:
    """Name the rank that has no more batches while others wait for it in a collective."""
    waiting = [one for one in ranks if one.is_in_collective]
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
        f"The run stands still: {least} ended after {counted(counts[least], 'batch')}, and {most.name.lower()} waits "
        f"for it after {most.batches}, at {most.where.rpartition(' at ')[2]}.",
        "Give all ranks equally many batches: DistributedSampler, drop_last=True, equal shards; or train within "
        "torch.distributed.algorithms.join.Join.",
    )


_STANDS = "No step ended and no batch arrived for 30 s, and 20 times as long as usual"
CAUSE = Cause(
    findings={
        RANKS: f"{_STANDS}; ranks wait in a collective for one that had fewer batches.",
        WORKER: f"{_STANDS}; a worker is stopped, has died, or cannot send a batch.",
        LOCK_HELD: f"{_STANDS}; a sample waits for a lock.",
        SERVER_SILENT: f"{_STANDS}; a sample waits for a server.",
        SAMPLE: f"{_STANDS}; a sample is not returned.",
        MEMORY_FULL: f"{_STANDS}; or the run failed; /dev/shm is full.",
        ELSEWHERE: f"{_STANDS}.",
    },
    find=stalled_findings,
    order=LEADS,
)
