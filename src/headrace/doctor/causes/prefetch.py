"""What the loop waits for most."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from headrace.doctor.analyse.spans import Span
from headrace.doctor.causes.stage_names import look, named
from headrace.doctor.causes.verdict import by_category
from headrace.doctor.measure import waits
from headrace.doctor.measure.diagnosis import Finding, Part
from headrace.doctor.measure.view import View
from headrace.doctor.quantities import counted, percent, time
from headrace.doctor.session.model import Trainer

WORTH_SAYING = 0.01
"""Share of a step."""
ORDER_ADVICE = (
    "Look at the slow samples: one slow batch holds up those made after it. Where order does not matter, "
    "in_order=False (torch 2.6 on) hands out what is ready; a longer prefetch evens out what is rarely slow."
)
HERE_ADVICE = "Look at num_workers: with workers, batches are made while the device computes."


def wait_findings(view: View) -> Iterator[Finding]:
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


def _evaluation(view: View) -> Iterator[Finding]:
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


def _waited_within(trainer: Trainer, evaluations: list[Span]) -> float:
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


def _cause(cause: Part, wait: float, each: str) -> Finding:
    head = cause.name.partition(":")[0]
    by = ", by the stages of the very batches that were waited for" if head not in waits.ORDER else ""
    return Finding(
        code=f"stage-{head}" if head not in waits.ORDER else head.replace(" ", "-"),
        weight=cause.share * wait,
        text=f"{percent(cause.share)} of the wait for data is {named(cause.name)}.",
        evidence=f"{time(cause.us)} {each}{by}",
        advice=look(cause.name),
    )


def _order(part: Part, wait: float, each: str) -> Finding:
    return Finding(
        code="out-of-order",
        weight=part.share * wait,
        text=f"{percent(part.share)} of the wait passes while a later batch is ready and the next in order is not.",
        evidence=f"{time(part.us)} {each}",
        advice=ORDER_ADVICE,
    )


def _here(part: Part, wait: float, each: str) -> Finding:
    return Finding(
        code="no-workers",
        weight=part.share * wait,
        text="Batches are made in the training thread (num_workers=0), so nothing is trained meanwhile.",
        evidence=f"{time(part.us)} {each}",
        advice=HERE_ADVICE,
    )
