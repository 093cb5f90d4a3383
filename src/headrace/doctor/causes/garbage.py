"""Full garbage collections in workers and in the training process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.doctor.causes.case import WORTH
from headrace.doctor.causes.cause import Cause, of_steps
from headrace.doctor.measure import Finding, TrainerView
from headrace.doctor.quantities import counted, duration, percent
from headrace.doctor.session.model import GarbageCollections, Session
from headrace.doctor.session.trainers import Trainer


def garbage_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield full collections in workers and in the training process, if they take long."""
    trainer = view.trainer
    of_workers, share = _of_workers(session, trainer)
    if share >= WORTH:
        yield _collected(
            of_workers, share * (view.wait_share or 0.0), f"{percent(share)} of batch production in workers"
        )
    of_trainer, share = _of_trainer(session, view)
    if share >= WORTH:
        yield _collected(of_trainer, share, f"{percent(share)} of each {view.training.unit} in the training process")


def _collected(found: Sequence[GarbageCollections], weight: float, where: str) -> Finding:
    count, spent = sum(one.count for one in found), sum(one.spent for one in found)
    longest = max(one.longest for one in found)
    return Finding(
        "full-gc",
        weight,
        f"Full garbage collections take {where}: Python goes through all its objects each time.",
        f"{counted(count, 'collection')}, {duration(spent / count)} each, the longest {duration(longest)}",
        "Keep what describes the samples in numpy or Arrow arrays in place of Python objects.",
    )


def _of_workers(session: Session, trainer: Trainer) -> tuple[list[GarbageCollections], float]:
    """Return the workers' collections and their share of batch production time."""
    pids = {
        one.pid
        for one in session.makers
        if one.worker is not None and (one.host, one.trainer) == (trainer.host, trainer.pid)
    }
    found = [
        one
        for process in session.processes
        if process.host == trainer.host and process.pid in pids
        for one in process.collections
    ]
    makers = [one.batches for one in session.makers if one.host == trainer.host and one.pid in pids]
    busy = sum(sum(one.fetched) - sum(one.start) for one in makers)
    return found, min(sum(one.spent for one in found) / busy, 1.0) if busy > 0 else 0.0


def _of_trainer(session: Session, view: TrainerView) -> tuple[list[GarbageCollections], float]:
    """Return the training process's collections since the first measured step, and their share of the time."""
    trainer, steps = view.trainer, view.training.steps
    if not steps:
        return [], 0.0
    process = session.process_of(trainer)
    last = max([steps[-1].end, *trainer.steps.end])
    found = [one for one in ([] if process is None else process.collections) if steps[0].start < one.time]
    taken = sum(one.spent for one in found) / (last - steps[0].start) if last > steps[0].start else 0.0
    return found, min(taken, 1.0)


CAUSE = Cause(
    findings={"full-gc": "Full garbage collections take 2 % of batch production or of the steps."},
    find=of_steps(garbage_findings),
    explains=("full-gc",),
)
