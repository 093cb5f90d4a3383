"""Evaluations between the steps, and their wait for data."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from headrace.doctor.causes.case import WORTH_SAYING
from headrace.doctor.causes.cause import APART, Cause, of_steps
from headrace.doctor.causes.stages import place_words
from headrace.doctor.measure import Finding, TrainerView, pass_of, whole_fact
from headrace.doctor.quantities import counted, duration, percent
from headrace.doctor.session.model import Session

EVALUATION_WAITS = "evaluation"


def evaluation_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
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


def _loader_words(view: TrainerView, number: int) -> str:
    """Return text such as `the loader at train.py:31 (Unlabelled)`."""
    loader = view.loader(number)
    facts = {} if loader is None else loader.facts
    dataset = str(facts.get("dataset", "")).rpartition(".")[2]
    if facts.get("made"):
        return f"the loader at {place_words('{}:{}'.format(facts['made'], dataset))}"
    return f"the loader of {dataset}" if dataset else f"loader {number}"


CAUSE = Cause(
    findings={EVALUATION_WAITS: "Evaluations take 1 % of the time or more."},
    find=of_steps(evaluation_findings),
    order=APART,
    explains=(EVALUATION_WAITS,),
)
