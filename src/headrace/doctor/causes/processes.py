"""What became of processes, and what the doctor could not see."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.doctor.causes.stage_names import who
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.quantities import counted
from headrace.doctor.session.model import Process, Session

DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
"""How torch names workers that it misses."""
LOST = re.compile(r"^(?:Connection\w*Error|BrokenPipeError|EOFError)\b", re.MULTILINE)
"""What a trainer fails with where a worker is gone before torch has missed it."""
RAISED = "in DataLoader worker process"
"""How torch says that a worker raised: one that lives, until its trainer ends."""
AT_BATCH = re.compile(r"batch (?P<index>-?\d+) of epoch (?P<epoch>-?\d+) has been in the making")
"""How the probe begins the text of such a stack."""
LAST_LINES = 3
"""Of a stack, innermost last."""


def process_findings(session: Session) -> Iterator[Finding]:
    yield from _hung(session)
    yield from _killed(session)
    yield from _unreached(session)
    yield from _cut(session)


def hanging(session: Session) -> Iterator[tuple[Process, str]]:
    """Processes with the stacks of batches that took far longer than any before and were never done: neither they nor
    a later one of that process."""
    for process in session.processes:
        batches = [one.batches for one in session.makers if (one.host, one.pid) == (process.host, process.pid)]
        last = max((pair for one in batches for pair in zip(one.epoch, one.index, strict=True)), default=None)
        for stack in process.stacks:
            batch = _batch(stack)
            if batch is None or last is None or last < batch:
                yield process, stack


def _batch(stack: str) -> tuple[int, int] | None:
    """Epoch and index of the batch that such a stack is of."""
    found = AT_BATCH.search(stack)
    return None if found is None else (int(found["epoch"]), int(found["index"]))


def _hung(session: Session) -> Iterator[Finding]:
    for process, stack in hanging(session):
        yield Finding(
            code="hung",
            weight=1.0,
            text=f"{who(session, process)} hangs: it has been at one batch far longer than at any before.",
            evidence=" | ".join(line.strip() for line in stack.strip().splitlines()[-LAST_LINES:]),
            advice="Look at where its stack stands: a lock held across a fork, a connection without a timeout, a "
            "library's threads after a fork.",
        )


def _killed(session: Session) -> Iterator[Finding]:
    """Workers that stopped in the middle of a run which failed for it. Their trainer ends those that are left, so where
    torch does not name the one that it misses, any of them may be it. Where the trainer failed for something else, they
    only ended with it."""
    for trainer in session.processes:
        if trainer.role != "trainer" or trainer.error is None:
            continue
        theirs = [one for one in session.processes if (one.host, one.parent) == (trainer.host, trainer.pid)]
        stopped = [one for one in theirs if _just_stopped(one)]
        named = {int(pid) for pids in DIED.findall(trainer.error) for pid in pids.split(",")}
        is_lost = LOST.search(trainer.error) is not None and RAISED not in trainer.error
        dead = [one for one in stopped if one.pid in named] or (stopped if named or is_lost else [])
        if dead:
            whose = " or ".join(who(session, one) for one in dead)
            yield Finding(
                code="killed",
                weight=1.0,
                text=f"{whose} died: something killed it, or it crashed in native code.",
                evidence=trainer.error.strip().splitlines()[-1],
                advice="Look at memory and /dev/shm: the system kills what takes too much.",
            )


def _just_stopped(process: Process) -> bool:
    return process.role == "worker" and process.ended is None


def _unreached(session: Session) -> Iterator[Finding]:
    for process in session.unreached:
        yield Finding(
            code="unreached",
            weight=0.0,
            text=f"Process {process.pid} could not be observed: {process.why}",
            evidence=process.command,
            advice="Start it in a way that keeps PYTHONPATH and HEADRACE_DOCTOR, without -I and -E.",
        )


def _cut(session: Session) -> Iterator[Finding]:
    cut = [process for process in session.processes if process.cut]
    if cut:
        yield Finding(
            code="cut",
            weight=0.0,
            text=f"The evidence of {counted(len(cut), 'process')} is a sample, or ends in the middle.",
            evidence=", ".join(str(process.pid) for process in cut[:10]),
            advice="Shares are those of the steps and batches that were written.",
        )
