"""Processes that hang, die or cannot be observed, and notes of the probes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.doctor.causes.cause import APART, Cause, Run
from headrace.doctor.causes.stage_names import who
from headrace.doctor.measure import FORWARD, Finding
from headrace.doctor.quantities import counted, percent
from headrace.doctor.session.model import ProbedProcess, Session

DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
"""Error text in which torch names missing workers."""
LOST = re.compile(r"^(?:Connection\w*Error|BrokenPipeError|EOFError)\b", re.MULTILINE)
"""Errors of a trainer that lost a worker before torch noticed."""
RAISED = "in DataLoader worker process"
"""Error text in which torch reports a worker's exception. This worker lives until its trainer ends."""
AT_BATCH = re.compile(r"batch (?P<index>-?\d+) of epoch (?P<epoch>-?\d+) has been in the making")
"""Start of a hung batch's stack text, as the probe writes it."""
LAST_LINES = 3
"""Number of stack lines to show, innermost last."""
EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Iteration|Warning)(?:: |$)")
"""Traceback line that names the exception. Lines of its message may follow."""
LAUNCHERS = re.compile(
    r"^(?:[\w.]*\.)?(?:ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException)\b",
    re.MULTILINE,
)
"""Exceptions that a launcher raises for a failed child: torchrun, accelerate, torch.multiprocessing."""
PEER_LOST = re.compile(r"closed by peer|reset by peer|remote process exited|remote worker|peer.* (?:crash|terminat)")
"""Errors of collectives in a rank that lost a peer."""
NOTES = {
    "hook-off": ("A hook of the doctor failed and was removed", "What it measures is missing from this report."),
    "not-known": ("A library is of a version that the doctor does not know", "Look for a newer Headrace."),
    "engine": ("The training engine is not understood", "Steps may be counted otherwise than the engine does."),
    "no-optimizer": ("No optimizer stepped", "Look at the figures by batch; there are none by step."),
    "optimizers": ("Optimizers step several times an iteration", "A step is one iteration of the loop."),
    "scaler": ("GradScaler skipped steps", "Look at the loss scale: skipped steps train nothing."),
    "capture": ("CUDA graphs are captured", "Work inside a graph is not told apart on the GPU."),
    "data-parallel": (
        "nn.DataParallel is used",
        "Look at DistributedDataParallel: DataParallel copies the model at each step, and one process feeds all GPUs.",
    ),
    "compile": ("torch.compile is used", "Compilation falls into the first steps; a longer warm-up leaves it out."),
    "thread": (
        "Batches are fetched in a thread",
        "The loop waits for that thread, and not for the DataLoader: its wait is not seen as data wait.",
    ),
    "disk": ("Evidence could not be written", "Look at the space on the disk of the session's folder."),
    "thread-died": ("An exception ended a thread", "Look at its traceback, among the notes."),
    "no-replay": (
        "The same batches were not trained on again",
        "The time that a step takes without waiting for data was not measured.",
    ),
    "no-look": (
        "What the samples hold is not known",
        "Headrace's Loader was not tried. Look at what the dataset does in the training process, in a thread.",
    ),
    "replay-failed": (
        "The script failed while its steps were repeated",
        "Look at what it counts on at the end of an epoch: a short first epoch goes on with a few cached batches.",
    ),
    "leftover": ("A process outlived the command", "Look at what starts it: the doctor has ended it."),
    "empty": ("An evidence file could not be read", "Look at the space on the disk of the session's folder."),
}
"""Meaning of a note and advice, by code."""
PLAIN = frozenset(("scratch-saves", "enough", "long-enough"))
"""Codes of notes that need no action."""


def failed_process(session: Session) -> ProbedProcess | None:
    """Return the process with the error that ended the command; None if no process raised.

    Trainers precede other processes, and a process precedes the launcher that reports its failure. A rank that lost a
    peer follows the peer. Workers pass their errors to their trainer.
    """
    failed = [one for one in session.processes if one.error is not None and one.role != "worker"]
    parents = {(one.host, one.parent) for one in failed}

    def order(one: ProbedProcess) -> tuple[bool, bool, bool, bool, int]:
        is_launcher = LAUNCHERS.search(one.error or "") is not None
        is_parent = (one.host, one.pid) in parents
        return is_launcher, lost_peer(one), one.role != "trainer", is_parent, one.end or one.start

    return min(failed, key=order, default=None)


def lost_peer(process: ProbedProcess) -> bool:
    """Return True if the process failed because another rank was gone. A missing worker causes other errors."""
    error = process.error or ""
    return PEER_LOST.search(error) is not None and LOST.search(error) is None


def gone_first(session: Session) -> str:
    """Return a clause on the rank that left the others without an error of its own; empty if unknown.

    A launcher ends all remaining ranks, so the first rank to leave is the one with the earliest last step.
    """
    processes = ((one, session.process_of(one)) for one in session.trainers)
    silent = [(one, process) for one, process in processes if process is not None and process.error is None]
    if not silent:
        return ""
    trainer, process = min(silent, key=lambda one: max(one[0].steps.end, default=0))
    how = "was killed, or crashed in native code" if process.ended is None else "ended by itself (sys.exit, say)"
    return f"rank {trainer.rank} (process {trainer.pid}) {how}, and the other ranks lost it"


def process_findings(run: Run) -> Iterator[Finding]:
    """Yield processes that hang, died, or were not fully observed."""
    session = run.session
    for hung, stack in hanging(session):
        lines = [line.strip() for line in stack.strip().splitlines()[-LAST_LINES:]]
        yield Finding(
            "hung",
            1.0,
            f"{who(session, hung)} hangs: it has spent far longer on one batch than on any before.",
            " | ".join(lines),
            "Look at its stack: a lock held across a fork, a connection without a timeout, a library's threads after "
            "a fork.",
        )
    yield from _killed(session)
    cut = [process for process in session.processes if process.cut]
    if cut:
        yield Finding(
            "cut",
            0.0,
            f"The evidence of {counted(len(cut), 'process')} is a sample, or ends in the middle.",
            ", ".join(str(process.pid) for process in cut[:10]),
            "Shares are those of the steps and batches that were written.",
        )


def hanging(session: Session) -> Iterator[tuple[ProbedProcess, str]]:
    """Yield processes and stacks of batches that took much longer than any before and never finished.

    A process is skipped if it finished that batch or a later batch.
    """
    for process in session.processes:
        batches = [one.batches for one in session.makers if (one.host, one.pid) == (process.host, process.pid)]
        last = max((pair for one in batches for pair in zip(one.epoch, one.index, strict=True)), default=None)
        for stack in process.stacks:
            found = AT_BATCH.search(stack)
            if found is None or last is None or last < (int(found["epoch"]), int(found["index"])):
                yield process, stack


def _killed(session: Session) -> Iterator[Finding]:
    """Find workers that stopped in the middle of a run and so made it fail.

    The trainer ends all remaining workers, so each stopped worker is a suspect unless torch names one. If the trainer
    failed for another reason, the workers only ended with it.
    """
    for trainer in session.processes:
        if trainer.role != "trainer" or trainer.error is None:
            continue
        theirs = [one for one in session.processes if (one.host, one.parent) == (trainer.host, trainer.pid)]
        stopped = [one for one in theirs if one.role == "worker" and one.ended is None]
        named = {int(pid) for pids in DIED.findall(trainer.error) for pid in pids.split(",")}
        is_lost = LOST.search(trainer.error) is not None and RAISED not in trainer.error
        dead = [one for one in stopped if one.pid in named] or (stopped if named or is_lost else [])
        if dead:
            whose = " or ".join(who(session, one) for one in dead)
            yield Finding(
                "killed",
                1.0,
                f"{whose} died: something killed it, or it crashed in native code.",
                trainer.error.strip().splitlines()[-1],
                "Look at memory and /dev/shm: the system kills what takes too much.",
            )


def note_findings(run: Run) -> Iterator[Finding]:
    """Yield one finding for each code and text, no matter how many processes report it.

    The weight is the share of a step that the note concerns; 0 if no step was measured or no part is concerned.
    """
    view = run.view
    seen: dict[tuple[str, str], list[int]] = {}
    for note in run.session.notes:
        if note.code not in PLAIN:
            seen.setdefault((note.code, note.text), []).append(note.pid or 0)
    for (code, text), pids in seen.items():
        meaning, advice = NOTES.get(code, (f"The probe notes {code!r}", ""))
        where = f"process {pids[0]}" if pids[0] else ""
        where += f" and {counted(len(set(pids)) - 1, 'other')}" if len(set(pids)) > 1 else ""
        share = view.share(FORWARD) if code == "data-parallel" and view is not None else 0.0
        if share and view is not None:
            where += f"; copies are made within {FORWARD}, {percent(share)} of each {view.training.unit}"
        yield Finding(code, share, f"{meaning}: {text}", where, advice)


PROCESSES = Cause(
    findings={
        "hung": "A process has spent far longer on one batch than on any before.",
        "killed": "Something killed a worker, or it crashed in native code.",
        "cut": "The evidence of a process is a sample, or ends in the middle.",
    },
    find=process_findings,
    order=APART,
)
NOTED = Cause(
    findings={code: f"{meaning}." for code, (meaning, _) in NOTES.items()},
    find=note_findings,
    explains=("data-parallel",),
)
