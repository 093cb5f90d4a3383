"""Parts of a run that differ: its first steps, and its evaluations."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from headrace.doctor.causes.case import WORTH_SAYING
from headrace.doctor.causes.cause import APART, Cause, of_steps
from headrace.doctor.causes.stage_names import place_words
from headrace.doctor.measure import (
    BOUND,
    WAIT,
    Finding,
    MeasuredStep,
    MeasuredTraining,
    TrainerView,
    pass_of,
    step_parts,
    whole_fact,
)
from headrace.doctor.quantities import counted, duration, percent, times
from headrace.doctor.session.model import Session

EVALUATION_WAITS = "evaluation"
LEAST_TREND = 32
"""Minimum number of steps that can show a trend."""
BLOCKS = 16
"""Number of blocks into which the measured steps are divided."""
SLOWER = 1.3
"""Ratio of a block's mean step to the mean of the second half, from which the block counts as slow."""


def epoch_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield differences between steps, and between training and evaluation."""
    yield from _first_steps(view)
    yield from _evaluation(view)


def first_steps(training: MeasuredTraining) -> int:
    """Count the measured steps before the steady state; 0 without such a trend.

    These are the leading blocks of steps that are each slower than every block of the second half.
    """
    steps = training.steps
    if len(steps) < LEAST_TREND:
        return 0
    size = len(steps) // BLOCKS
    means = [_mean_us(steps[at : at + size]) for at in range(0, size * BLOCKS, size)]
    steady = means[BLOCKS // 2 :]
    bound = max(SLOWER * fmean(steady), max(steady))
    lead = next((at for at, us in enumerate(means) if us <= bound), BLOCKS)
    return lead * size if lead < BLOCKS else 0


def _first_steps(view: TrainerView) -> Iterator[Finding]:
    steps, count = view.training.steps, first_steps(view.training)
    if not count:
        return
    before, after = steps[:count], steps[count:]
    first_us, steady_us = _mean_us(before), _mean_us(after)
    share = 1 - steady_us / _mean_us(steps)
    if share < BOUND:
        return
    unit, reached = view.training.unit, steps[count].number
    first_wait, steady_wait = (percent(_wait_share(view.training, some)) for some in (before, after))
    yield Finding(
        "first-steps",
        share,
        f"The first {counted(reached, unit)} take {times(first_us / steady_us)} as long as the rest: in the steady "
        f"state a {unit} takes {duration(steady_us)}, and waits {steady_wait} of it for data.",
        f"{duration(first_us)} a {unit} at first, {first_wait} of it data wait; {duration(steady_us)} after that, "
        f"{steady_wait}",
        "A long run is faster than its first steps: measure more of it with --steps. At first the page cache is "
        "cold, caches fill, and torch.compile and cuDNN choose their kernels.",
    )


def _evaluation(view: TrainerView) -> Iterator[Finding]:
    """Find the share of time that evaluations take, the share that waits for their data, and the slowest loader."""
    spans = [span for step in view.training.steps for span in step.evaluations]
    spent = sum(span.end - span.start for span in spans)
    whole = view.training.total_us + spent
    share = spent / whole if whole else 0.0
    if share < WORTH_SAYING:
        return
    fetches, passes = view.trainer.fetches, pass_of(view.trainer)
    # The loop blocks on batches, and on workers that start and shut down.
    waits: list[tuple[float, float, int]] = [
        *zip(fetches.start, fetches.duration, fetches.pass_, strict=True),
        *((one.start, one.ready - one.start, one.number) for one in view.trainer.passes),
        *(
            (one.last_start, one.last, one.number)
            for one in view.trainer.passes
            if one.last is not None and one.last_start is not None
        ),
    ]
    waited: Counter[int] = Counter()
    for start, blocked, pass_ in waits:
        row = bisect_right(spans, start, key=lambda span: span.start) - 1
        if row >= 0 and start < spans[row].end and pass_ in passes:
            waited[passes[pass_].loader] += round(blocked)
    us = sum(waited.values())
    loader = max(waited, key=lambda one: waited[one], default=None)
    facts = view.loader(loader) if loader is not None else None
    workers = None if facts is None else whole_fact(facts.facts, "num_workers")
    its = "" if loader is None else f" of {_loader_words(view, loader)}"
    have = "" if workers is None else f" ({counted(workers, 'worker') if workers else 'num_workers=0'})"
    yield Finding(
        EVALUATION_WAITS,
        us / whole,
        f"Evaluation takes {percent(share)} of the time, {percent(us / spent)} of which it waits for data.",
        f"{counted(len(spans), 'evaluation')}, {duration(spent / len(spans))} each, no part of a "
        f"{view.training.unit}; batches{its}{have}",
        "Look at the loader that evaluates: its workers, and whether they persist between evaluations.",
    )


def _mean_us(steps: Sequence[MeasuredStep]) -> float:
    return fmean(step.duration for step in steps)


def _wait_share(training: MeasuredTraining, steps: Sequence[MeasuredStep]) -> float:
    waited = sum(step_parts(training, step).get(WAIT, 0.0) for step in steps)
    return waited / max(sum(step.duration for step in steps), 1)


def _loader_words(view: TrainerView, number: int) -> str:
    """Return text such as `the loader at train.py:31 (Unlabelled)`."""
    loader = view.loader(number)
    facts = {} if loader is None else loader.facts
    dataset = str(facts.get("dataset", "")).rpartition(".")[2]
    if not facts.get("file"):
        return f"the loader of {dataset}" if dataset else f"loader {number}"
    return f"the loader at {place_words('{}:{}:{}'.format(facts['file'], facts.get('line'), dataset))}"


CAUSE = Cause(
    findings={
        "first-steps": "The first steps take 1.3 times as long as the steady state, or longer.",
        EVALUATION_WAITS: "Evaluations take 1 % of the time or more.",
    },
    find=of_steps(epoch_findings),
    order=APART,
    explains=("first-steps", EVALUATION_WAITS),
)
