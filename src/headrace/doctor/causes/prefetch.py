"""Late batches: what the loop waits for most, batches that arrive out of order, and a longer prefetch queue."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ..edits import WantedEdit
from ..measure import HELD_UP, MADE_HERE, WAIT_ORDER, Finding, TimePart, TimeSpan, TrainerView
from ..quantities import counted, duration, percent, size
from ..session.model import Trainer
from .case import MEDIUM, Case, Proposal, setting, tried, would_not
from .stage_names import by_category, look, named

PREFETCH = "prefetch"
WORTH_SAYING = 0.01
"""Share of a step."""
EVEN = 0.01
"""Share of a step within which a shorter queue counts as equally good."""
MOST_TIMES = 8
"""Longest queue to try, by the present one."""


def wait_findings(view: TrainerView) -> Iterator[Finding]:
    """Yield what the loop waits for. A weight is the wait's share of a step by the cause's share of the wait.

    Times are the CPU's, of which a GPU that was still behind did not wait for all.
    """
    share = view.wait_share or 0.0
    each = f"of each {view.training.unit}{' as the CPU sees it' if view.has_gpu else ''}"
    for cause in by_category(view.causes):
        if cause.share * share >= WORTH_SAYING:
            yield _cause(cause, share, each)
    yield from _evaluation(view)
    for part in view.split.parts if view.split is not None else []:
        if part.share * share < WORTH_SAYING:
            continue
        if part.name == HELD_UP:
            yield Finding(
                code="out-of-order",
                weight=part.share * share,
                text=f"{percent(part.share)} of the wait passes while a later batch is ready and the next in order is "
                "not.",
                evidence=f"{duration(part.us)} {each}",
                advice="Look at the slow samples: one slow batch holds up those made after it. Where order does not "
                "matter, in_order=False (torch 2.6 on) hands out what is ready; a longer prefetch evens out what is "
                "rarely slow.",
            )
        if part.name == MADE_HERE:
            yield Finding(
                code="no-workers",
                weight=part.share * share,
                text="Batches are made in the training thread (num_workers=0), so nothing is trained meanwhile.",
                evidence=f"{duration(part.us)} {each}",
                advice="Look at num_workers: with workers, batches are made while the device computes.",
            )


def _cause(cause: TimePart, wait: float, each: str) -> Finding:
    head = cause.name.partition(":")[0]
    by = ", by the stages of the very batches that were waited for" if head not in WAIT_ORDER else ""
    return Finding(
        code=f"stage-{head}" if head not in WAIT_ORDER else head.replace(" ", "-"),
        weight=cause.share * wait,
        text=f"{percent(cause.share)} of the wait for data is {named(cause.name)}.",
        evidence=f"{duration(cause.us)} {each}{by}",
        advice=look(cause.name),
    )


def _evaluation(view: TrainerView) -> Iterator[Finding]:
    """Find what evaluations take of the time between steps, and how much of that waits for their data."""
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
        evidence=f"{counted(len(spans), 'evaluation')}, {duration(spent / len(spans))} each; "
        "counted as `other` in a step",
        advice="Look at the loader that evaluates: its workers, and whether they persist between evaluations.",
    )


def _waited_within(trainer: Trainer, evaluations: list[TimeSpan]) -> float:
    """Sum what blocked the loop in evaluations, which are in order: batches, and workers that start and end."""
    waits: list[tuple[float, float]] = [
        *zip(trainer.fetches.start, trainer.fetches.duration, strict=True),
        *((one.start, one.ready - one.start) for one in trainer.passes),
        *((one.last_start, one.last) for one in trainer.passes if one.last is not None and one.last_start is not None),
    ]
    waited = 0.0
    for start, blocked in waits:
        row = bisect_right(evaluations, start, key=lambda span: span.start) - 1
        waited += blocked if row >= 0 and start < evaluations[row].end else 0
    return waited


def prefetch(case: Case) -> Proposal | None:
    """Propose a longer queue of batches before the training thread."""
    title = "a longer queue"
    if not case.workers:
        return would_not(PREFETCH, title, "There are no workers (num_workers=0), and so no queue.")
    now = max(1, case.recorded.setup.prefetch if case.recorded is not None else 1)
    free = None if case.host is None else case.host.free_shared_bytes

    def more_bytes(factor: int) -> float | None:
        return None if case.batch_bytes is None else case.batch_bytes * case.workers * (factor - now)

    def fits(factor: int) -> bool:
        more = more_bytes(factor)
        return more is None or free is None or more <= free

    factors = [now * times for times in (2, 4, MOST_TIMES) if fits(now * times)]
    tries = {factor: one for factor in factors if (one := case.predict(setting(prefetch=factor))) is not None}
    if not tries:
        why = "No batch's making was recorded, so that it cannot be computed."
        if not fits(2 * now):
            twice = size(more_bytes(2 * now) or 0)
            why = f"Twice as many batches need {twice} more of /dev/shm, and {size(free or 0)} are free."
        return would_not(PREFETCH, title, why)
    best = min(one.step_us for one in tries.values())
    factor = min(factor for factor, one in tries.items() if one.step_us <= (1 + EVEN) * best)
    if not case.is_faster(tries[factor]):
        takes = f"a step takes {duration(tries[factor].step_us)}, and {duration(case.step_us)} now"
        ahead = f"With {factor} batches ahead for each of {counted(case.workers, 'worker')}"
        return would_not(PREFETCH, title, f"{ahead} {takes}: a longer queue makes no batch faster.")
    more = more_bytes(factor)
    return tried(
        case,
        tries[factor],
        code=PREFETCH,
        title=f"{factor} batches ahead for each worker in place of {now}",
        why=f"Single slow batches hold up the others: {counted(case.workers * now, 'batch')} ahead do not bridge them.",
        confidence=MEDIUM,
        change=setting(prefetch=factor),
        costs=[] if more is None else [f"{size(more)} of shared memory for the batches that wait"],
        wanted=WantedEdit({"prefetch_factor": str(factor)}),
        hint=f"DataLoader(…, prefetch_factor={factor})",
        changes=case.injected(prefetch_factor=factor),
    )
