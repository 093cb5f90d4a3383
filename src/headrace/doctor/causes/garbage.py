"""Full garbage collections in workers and in the training process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.doctor.causes.case import WORTH
from headrace.doctor.causes.cause import Cause, of_steps
from headrace.doctor.measure import Finding, TrainerView
from headrace.doctor.quantities import counted, duration, percent
from headrace.doctor.session.model import GarbageCollections, ProbedProcess, Session
from headrace.doctor.session.trainers import Trainer

Collected = tuple[list[GarbageCollections], float]


def garbage_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield full collections in workers and in the training process, if they take long."""
    trainer, steps = view.trainer, view.training.steps
    if not steps:
        return
    start, end = steps[0].start, steps[-1].end

    def within(time: float) -> bool:
        return start <= time <= end

    of_workers, share = _of_workers(session, trainer, within)
    if share >= WORTH:
        weight = share * (view.wait_share or 0.0)
        yield _collected(of_workers, weight, f"{percent(share)} of batch production in workers")
    process = session.process_of(trainer)
    of_trainer, share = _within([] if process is None else [process], within, end - start)
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


def _of_workers(session: Session, trainer: Trainer, within: Callable[[float], bool]) -> Collected:
    """Return the workers' collections and their share of batch production in the measured steps."""
    theirs = [one for one in session.makers if (one.host, one.trainer) == (trainer.host, trainer.pid)]
    batches = [one.batches for one in theirs if one.worker is not None]
    pids = {one.pid for one in theirs if one.worker is not None}
    processes = [one for one in session.processes if one.host == trainer.host and one.pid in pids]
    spans = (span for one in batches for span in zip(one.start, one.fetched, strict=True))
    return _within(processes, within, sum(end - start for start, end in spans if within(start) and within(end)))


def _within(processes: Iterable[ProbedProcess], within: Callable[[float], bool], whole_us: float) -> Collected:
    """Return the collections that began and ended in the measured steps, and their share of a time in these."""
    collected = (one for process in processes for one in process.collections)
    found = [one for one in collected if within(one.time if one.since is None else one.since) and within(one.time)]
    return found, min(sum(one.spent for one in found) / whole_us, 1.0) if whole_us > 0 else 0.0


CAUSE = Cause(
    findings={"full-gc": "Full garbage collections take 2 % of batch production or of the steps."},
    find=of_steps(garbage_findings),
    explains=("full-gc",),
)
