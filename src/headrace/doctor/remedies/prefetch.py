"""A longer queue of batches before the training thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.causes.case import Case, Change
from headrace.doctor.edits.changes import Wanted
from headrace.doctor.predict.setup import Setup
from headrace.doctor.quantities import counted, number, size, time
from headrace.doctor.remedies.proposal import MEDIUM, Proposal, tried, would_not
from headrace.doctor.remedies.workers import of_loaders

CODE = "prefetch"
EVEN = 0.01
"""Share of a step within which a shorter queue counts as equally good."""
MOST_TIMES = 8
"""Of the present length."""


def prefetch(case: Case) -> Iterator[Proposal]:
    if not case.workers:
        yield would_not(CODE, "a longer queue", "There are no workers (num_workers=0), and so no queue.")
        return
    now = _now(case)
    factors = [now * times for times in (2, 4, MOST_TIMES) if _fits(case, now * times)]
    tries = {factor: one for factor in factors if (one := case.predict(_with(factor))) is not None}
    if not tries:
        yield would_not(CODE, "a longer queue", _no_room(case, now))
        return
    best = min(one.step_us for one in tries.values())
    factor = min(factor for factor, one in tries.items() if one.step_us <= (1 + EVEN) * best)
    if not case.is_faster(tries[factor]):
        yield would_not(CODE, "a longer queue", _why_not(case, factor, tries[factor].step_us))
        return
    more = _bytes(case, factor)
    yield tried(
        case,
        tries[factor],
        code=CODE,
        title=f"{factor} batches ahead for each worker in place of {now}",
        why=f"Single slow batches hold up the others: {counted(case.workers * now, 'batch')} ahead do not bridge them.",
        confidence=MEDIUM,
        change=_with(factor),
        costs=[] if more is None else [f"{size(more)} of shared memory for the batches that wait"],
        wanted=Wanted({"prefetch_factor": str(factor)}),
        hint=f"DataLoader(…, prefetch_factor={factor})",
        changes=of_loaders(case, prefetch_factor=factor),
    )


def _now(case: Case) -> int:
    return max(1, case.recorded.setup.prefetch if case.recorded is not None else 1)


def _with(factor: int) -> Change:
    def change(setup: Setup) -> Setup:
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
