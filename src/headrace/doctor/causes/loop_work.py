"""The training loop's own work on batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.causes.case import MEDIUM, WORTH, Case
from headrace.doctor.causes.cause import LEADS, Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import FEW_LINES
from headrace.doctor.causes.stages import place_words
from headrace.doctor.measure import BOUND, DATA_WORK, UNSEEN, WAIT, Finding, TrainerView
from headrace.doctor.quantities import duration, percent
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import FeedSetup, StageChange, name_of

MOST_LINES = 3
WORTH_A_LINE = 0.1
"""Minimum share of the samples for a line to be named."""


def loop_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the training thread's work on batches, and before the model is called."""
    share, unit = view.share(DATA_WORK), view.training.unit
    if share >= WORTH:
        yield Finding(
            "data-work",
            share,
            f"{percent(share)} of each {unit} is data work in the training loop itself, before the model is called"
            f"{at_line(view)}.",
            _evidence(view, DATA_WORK),
            "Do it in the dataset, in collate_fn or in the loader: workers then do it while the model trains. What a "
            "GPU does faster, such as a cast or a normalisation, belongs after the copy to it.",
        )
    share = view.share(UNSEEN)
    if share >= WORTH and view.trainer.lines:
        yield Finding(
            "before-model",
            share,
            f"{percent(share)} of each {unit} passes before the model is called{at_line(view)}.",
            _evidence(view, UNSEEN),
            "If that line makes batches: a DataLoader with workers makes them while the model trains.",
        )


def data_work(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose that workers do the loop's data work, if there is any."""
    us = case.part_us(DATA_WORK)
    if case.step_share(us) < WORTH or not case.workers:
        return None
    own_us = case.step_us - case.part_us(WAIT)
    computing_us = 0.0 if case.recorded is None else float(case.recorded.batches.compute.mean())
    more = 1 + us / max(case.batches_a_step, 1.0) / max(computing_us, 1.0)

    def change(setup: FeedSetup) -> FeedSetup:
        known = {name_of(one): setup.stages.get(name_of(one), StageChange()) for one in case.making.stages}
        after = {name: replace(one, cpu=one.cpu * more) for name, one in known.items()}
        return replace(setup, stages={**setup.stages, **after}, step=setup.step * max(1 - us / own_us, 0.0))

    return kind.tried(
        case,
        change,
        why=f"Data work in the loop takes {duration(us)} of a step{at_line(case.view)}. Workers could do it while the "
        "model trains.",
        confidence=MEDIUM,
    )


def loop_verdict(view: TrainerView) -> str:
    """Return a sentence on the share of a step that is data work in the loop; empty if it is small."""
    share = view.share(DATA_WORK)
    if view.wait_share is None or share < BOUND:
        return ""
    more = "Another " if view.wait_share >= BOUND else ""
    return (
        f"{more}{percent(share)} of each {view.training.unit} is data work in the training loop itself{at_line(view)}."
    )


def at_line(view: TrainerView) -> str:
    """Return text such as `, most of it at train.py:31 (normalise)`; empty if no line was seen."""
    lines = [line for line in _lines(view) if line[1] >= WORTH_A_LINE]
    if not lines:
        return ""
    return f", {'most' if lines[0][1] >= 1 / 2 else percent(lines[0][1])} of it at {lines[0][0]}"


def _lines(view: TrainerView) -> list[tuple[str, float]]:
    whole = sum(line.us for line in view.trainer.lines)
    return [(place_words(line.place), line.us / whole) for line in view.trainer.lines[:MOST_LINES] if whole]


def _evidence(view: TrainerView, part: str) -> str:
    us = 0.0 if view.budget is None else next((one.us for one in view.budget.parts if one.name == part), 0.0)
    seen = [f"{percent(share)} at {place}" for place, share in _lines(view) if share >= WORTH_A_LINE]
    return "; ".join([f"{duration(us)} a {view.training.unit} on the training thread", *seen])


CAUSE = Cause(
    findings={
        "data-work": "The training loop itself works on batches for 2 % of a step or more.",
        "before-model": "2 % of a step or more passes before the model is called, where no source of batches was seen.",
    },
    find=of_steps(loop_findings),
    order=LEADS,
    remedies=[
        RemedyKind(
            "data-work",
            "Data work of the training loop done by the workers",
            FEW_LINES,
            data_work,
            hint="do it in __getitem__, in collate_fn, or before the loader in a pipeline",
            costs=("the same work for each worker's batches",),
        )
    ],
)
