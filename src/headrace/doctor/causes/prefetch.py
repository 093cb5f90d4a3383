"""Batches that are late: what the loop waits for most, and a longer prefetch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.causes.case import MEDIUM, Case, Change, Proposal, tried, would_not
from headrace.doctor.causes.stage_names import look, named
from headrace.doctor.causes.verdict import by_category
from headrace.doctor.causes.workers import of_loaders
from headrace.doctor.edits.changes import WantedEdit
from headrace.doctor.measure import waits
from headrace.doctor.measure.diagnosis import Finding, TimePart
from headrace.doctor.measure.steps import TimeSpan
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.quantities import counted, number, percent, size, time
from headrace.doctor.session.model import Trainer
from headrace.doctor.simulate.work import FeedSetup

# -- from doctor/analyse/find_waits.py: What the loop waits for most.


WORTH_SAYING = 0.01
"""Share of a step."""
ORDER_ADVICE = (
    "Look at the slow samples: one slow batch holds up those made after it. Where order does not matter, "
    "in_order=False (torch 2.6 on) hands out what is ready; a longer prefetch evens out what is rarely slow."
)
HERE_ADVICE = "Look at num_workers: with workers, batches are made while the device computes."


def wait_findings(view: TrainerView) -> Iterator[Finding]:
    """Weights are shares of a step: the wait's, by the cause's share of it. Times are the CPU's, of which a GPU that
    was still behind did not wait for all."""
    share = view.wait_share or 0.0
    each = f"of each {view.training.unit}{' as the CPU sees it' if view.has_gpu else ''}"
    for cause in by_category(view.causes):
        if cause.share * share >= WORTH_SAYING:
            yield _cause(cause, share, each)
    yield from _evaluation(view)
    for part in view.split.parts if view.split is not None else []:
        if part.share * share >= WORTH_SAYING and part.name in (waits.HELD_UP, waits.MADE_HERE):
            yield _order(part, share, each) if part.name == waits.HELD_UP else _here(part, share, each)


def _evaluation(view: TrainerView) -> Iterator[Finding]:
    """What evaluations take of the time between steps, and what of that is waiting for their data."""
    spans = [span for step in view.training.steps for span in step.evaluations]
    spent = sum(span.end - span.start for span in spans)
    share = spent / view.training.total_us if view.training.total_us else 0.0
    if share < WORTH_SAYING:
        return
    waited = _waited_within(view.trainer, spans)
    yield Finding(
        code="evaluation",
        weight=waited / view.training.total_us,
        text=f"Evaluation takes {percent(share)} of the time, {percent(waited / spent)} of which it waits for data.",
        evidence=f"{counted(len(spans), 'evaluation')}, {time(spent / len(spans))} each; counted as `other` in a step",
        advice="Look at the loader that evaluates: its workers, and whether they are kept between evaluations.",
    )


def _waited_within(trainer: Trainer, evaluations: list[TimeSpan]) -> float:
    """Whatever of the loaders blocked the loop in evaluations, which are in order: batches, and workers that start and
    end."""
    waits: list[tuple[float, float]] = [
        *zip(trainer.fetches.start, trainer.fetches.duration, strict=True),
        *((one.start, one.ready - one.start) for one in trainer.passes),
        *((one.last_start, one.last) for one in trainer.passes if one.last is not None and one.last_start is not None),
    ]
    waited = 0.0
    for start, duration in waits:
        row = bisect_right(evaluations, start, key=lambda span: span.start) - 1
        waited += duration if row >= 0 and start < evaluations[row].end else 0
    return waited


def _cause(cause: TimePart, wait: float, each: str) -> Finding:
    head = cause.name.partition(":")[0]
    by = ", by the stages of the very batches that were waited for" if head not in waits.WAIT_ORDER else ""
    return Finding(
        code=f"stage-{head}" if head not in waits.WAIT_ORDER else head.replace(" ", "-"),
        weight=cause.share * wait,
        text=f"{percent(cause.share)} of the wait for data is {named(cause.name)}.",
        evidence=f"{time(cause.us)} {each}{by}",
        advice=look(cause.name),
    )


def _order(part: TimePart, wait: float, each: str) -> Finding:
    return Finding(
        code="out-of-order",
        weight=part.share * wait,
        text=f"{percent(part.share)} of the wait passes while a later batch is ready and the next in order is not.",
        evidence=f"{time(part.us)} {each}",
        advice=ORDER_ADVICE,
    )


def _here(part: TimePart, wait: float, each: str) -> Finding:
    return Finding(
        code="no-workers",
        weight=part.share * wait,
        text="Batches are made in the training thread (num_workers=0), so nothing is trained meanwhile.",
        evidence=f"{time(part.us)} {each}",
        advice=HERE_ADVICE,
    )


# -- from doctor/remedies/prefetch.py: A longer queue of batches before the training thread.


PREFETCH_FACTOR = "prefetch"
EVEN = 0.01
"""Share of a step within which a shorter queue counts as equally good."""
MOST_TIMES = 8
"""Of the present length."""


def prefetch(case: Case) -> Iterator[Proposal]:
    if not case.workers:
        yield would_not(PREFETCH_FACTOR, "a longer queue", "There are no workers (num_workers=0), and so no queue.")
        return
    now = _now(case)
    factors = [now * times for times in (2, 4, MOST_TIMES) if _fits(case, now * times)]
    tries = {factor: one for factor in factors if (one := case.predict(_with(factor))) is not None}
    if not tries:
        yield would_not(PREFETCH_FACTOR, "a longer queue", _no_room(case, now))
        return
    best = min(one.step_us for one in tries.values())
    factor = min(factor for factor, one in tries.items() if one.step_us <= (1 + EVEN) * best)
    if not case.is_faster(tries[factor]):
        yield would_not(PREFETCH_FACTOR, "a longer queue", _why_not(case, factor, tries[factor].step_us))
        return
    more = _bytes(case, factor)
    yield tried(
        case,
        tries[factor],
        code=PREFETCH_FACTOR,
        title=f"{factor} batches ahead for each worker in place of {now}",
        why=f"Single slow batches hold up the others: {counted(case.workers * now, 'batch')} ahead do not bridge them.",
        confidence=MEDIUM,
        change=_with(factor),
        costs=[] if more is None else [f"{size(more)} of shared memory for the batches that wait"],
        wanted=WantedEdit({"prefetch_factor": str(factor)}),
        hint=f"DataLoader(…, prefetch_factor={factor})",
        changes=of_loaders(case, prefetch_factor=factor),
    )


def _now(case: Case) -> int:
    return max(1, case.recorded.setup.prefetch if case.recorded is not None else 1)


def _with(factor: int) -> Change:
    def change(setup: FeedSetup) -> FeedSetup:
        return replace(setup, prefetch=factor)

    return change


def _bytes(case: Case, factor: int) -> float | None:
    """More than now, of all workers' batches."""
    each = case.batch_bytes
    return None if each is None else each * case.workers * (factor - _now(case))


def _free_bytes(case: Case) -> float | None:
    """In /dev/shm, at the fullest reading."""
    if case.host is None:
        return None
    total, used = case.host.fact("shm_bytes"), case.host.peak("shm_used_bytes")
    return None if total is None else total - (used or 0)


def _fits(case: Case, factor: int) -> bool:
    more, free = _bytes(case, factor), _free_bytes(case)
    return more is None or free is None or more <= free


def _no_room(case: Case, now: int) -> str:
    more, free = _bytes(case, 2 * now), _free_bytes(case)
    if more is not None and free is not None and more > free:
        return f"Twice as many batches need {size(more)} more of /dev/shm, and {size(free)} are free."
    return "No batch's making was recorded, so that it cannot be computed."


def _why_not(case: Case, factor: int, step_us: float) -> str:
    return (
        f"With {number(factor)} batches ahead for each of {counted(case.workers, 'worker')} a step takes "
        f"{time(step_us)}, and {time(case.step_us)} now: a longer queue makes no batch faster."
    )
