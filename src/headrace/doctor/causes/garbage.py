"""Full garbage collections: pauses in which a process only traverses its Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..measure import Finding, TrainerView
from ..quantities import percent
from ..session.model import GarbageCollections, Session
from ..session.trainers import Trainer
from ..simulate import FeedSetup
from .case import MEDIUM, WORTH, Case, scaled
from .proposals import Proposal, RemedyKind
from .training_kinds import TRAINING

HINT = "gc.collect(); gc.freeze() once the dataset is built, before the loader is iterated: workers start with it"


def garbage_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield full collections in workers and in the training process, if they take long."""
    trainer = view.trainer
    of_workers, share = _of_workers(session, trainer)
    if share >= WORTH:
        yield _finding(of_workers, share * (view.wait_share or 0.0), f"{percent(share)} of batch production in workers")
    of_trainer, share = _of_trainer(session, view)
    if share >= WORTH:
        yield _finding(of_trainer, share, f"{percent(share)} of each {view.training.unit} in the training process")


def gc_freeze(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to exclude the dataset's objects from full collections, if these take long."""
    _, making = _of_workers(case.session, case.view.trainer)
    _, training = _of_trainer(case.session, case.view)
    if max(making, training) < WORTH:
        return None

    def change(setup: FeedSetup) -> FeedSetup:
        after = scaled(case.making.stages)(max(1 - making, 0.0))(setup)
        return replace(after, step=after.step * max(1 - training, 0.0))

    taken = f"{percent(making)} of batch production in workers" if making >= WORTH else f"{percent(training)} of a step"
    return kind.tried(
        case,
        change,
        why=f"Full garbage collections take {taken}: Python goes through all objects of the dataset each time.",
        confidence=MEDIUM,
    )


def _finding(found: Sequence[GarbageCollections], weight: float, where: str) -> Finding:
    count, spent = sum(one.count for one in found), sum(one.spent for one in found)
    longest = max(one.longest for one in found)
    return TRAINING["full-gc"].found(weight, where=where, many=count, each=spent / count, longest=longest, hint=HINT)


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
