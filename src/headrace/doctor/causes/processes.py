"""Processes that die, and handles that workers share across a fork."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.doctor.causes.cause import APART, Cause, Run, of_steps
from headrace.doctor.causes.stages import who
from headrace.doctor.measure import Finding, TrainerView, whole_fact
from headrace.doctor.quantities import counted
from headrace.doctor.session.model import ProbedProcess, Session

DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
"""Error text in which torch names missing workers."""
LOST = re.compile(r"^(?:Connection\w*Error|BrokenPipeError|EOFError)\b", re.MULTILINE)
"""Errors of a trainer that lost a worker before torch noticed."""
RAISED = "in DataLoader worker process"
"""Error text in which torch reports a worker's exception. This worker lives until its trainer ends."""
EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Iteration|Warning)(?:: |$)")
"""Traceback line that names the exception. Lines of its message may follow."""
KILLED = "killed"
LAUNCHERS = re.compile(
    r"^(?:[\w.]*\.)?(?:ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException)\b",
    re.MULTILINE,
)
"""Exceptions that a launcher raises for a failed child: torchrun, accelerate, torch.multiprocessing."""
PEER_LOST = re.compile(r"closed by peer|reset by peer|remote process exited|remote worker|peer.* (?:crash|terminat)")
"""Errors of collectives in a rank that lost a peer."""


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
    """Return a clause on the rank that left first, without an error of its own; empty if unknown."""
    processes = ((one, session.process_of(one)) for one in session.trainers)
    silent = [(one, process) for one, process in processes if process is not None and process.error is None]
    if not silent:
        return ""
    trainer, process = min(silent, key=lambda one: max(one[0].steps.end, default=0))
    how = "was killed, or crashed in native code" if process.ended is None else "ended by itself (sys.exit, say)"
    return f"rank {trainer.rank} (process {trainer.pid}) {how}, and the other ranks lost it"


def killed_workers(run: Run) -> Iterator[Finding]:
    """Find workers that stopped in the middle of a run and so made it fail.

    The trainer ends all remaining workers, so each stopped worker is a suspect unless torch names one. If the trainer
    failed for another reason, the workers only ended with it.
    """
    session = run.session
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
                KILLED,
                1.0,
                f"{whose} died: something killed it, or it crashed in native code.",
                trainer.error.strip().splitlines()[-1],
                "Look at memory and /dev/shm: the system kills what takes too much.",
            )


PROCESSES = Cause(
    findings={KILLED: "Something killed a worker, or it crashed in native code."},
    find=killed_workers,
    order=APART,
)


SHARED_HANDLE = "shared-handle"
LIBRARIES = {
    "zipfile": r"BadZipFile|zlib\.error|struct\.error|zipfile",
    "tarfile": r"ReadError|tarfile",
    "h5py": r"h5py|Unable to (?:synchronously )?(?:read|open)|OSError",
    "sqlite3": r"sqlite3|DatabaseError",
    "lmdb": r"lmdb|MDB_",
    "builtins": r"lmdb|MDB_",
    "_io": r"UnidentifiedImageError|struct\.error|EOFError|OSError|DecodeError|zlib\.error|UnpicklingError",
}
"""Pattern of the errors of wrong bytes, by the module of a handle's class. A damaged picture may follow from any."""
DAMAGED = re.compile(r"UnidentifiedImageError|image file is truncated|broken data stream")


def handle_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Explain a worker's error by a handle that forked workers share."""
    process = session.process_of(view.trainer)
    error = "" if process is None else process.error or ""
    if RAISED not in error:
        return
    for loader in view.trainer.loaders:
        workers = whole_fact(loader.facts, "num_workers") or 0
        handles = (loader.facts.get("described") or {}).get("handles") or []
        found = [name for name in dict.fromkeys(handles) if _explains(name, error)]
        if workers > 1 and loader.facts.get("start_method") == "fork" and found:
            name = found[0].replace("builtins.", "lmdb.").replace("_hl.", "").removeprefix("_io.")
            yield Finding(
                SHARED_HANDLE,
                1.0,
                f"The {counted(workers, 'worker')} share one open {name}, so its reads collide: the error need not "
                "mean damaged data.",
                f"the dataset of {loader.facts.get('dataset')} was opened before the fork",
                f"Open the {name} on first use in each worker: keep its path in __init__, and open it in __getitem__ "
                "if this process has not, or in worker_init_fn.",
            )


def _explains(handle: str, error: str) -> bool:
    pattern = LIBRARIES.get(handle.partition(".")[0])
    return pattern is not None and (re.search(pattern, error) is not None or DAMAGED.search(error) is not None)


HANDLES = Cause(
    findings={SHARED_HANDLE: "A worker failed on wrong bytes, and its dataset held an open handle before the fork."},
    find=of_steps(handle_findings),
    order=APART,
)
