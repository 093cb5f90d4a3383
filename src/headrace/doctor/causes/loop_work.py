"""Data work in the training loop: what the training thread does with a batch before the model receives it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..measure import BOUND, DATA_WORK, UNSEEN, WAIT, Finding, TrainerView
from ..quantities import duration, percent
from ..simulate import FeedSetup, StageChange
from .case import MEDIUM, WORTH, Case, name_of
from .proposals import Proposal, RemedyKind
from .training_kinds import TRAINING

MOST_LINES = 3
WORTH_A_LINE = 0.1
"""Minimum share of the samples for a line to be named."""


def loop_findings(view: TrainerView) -> Iterator[Finding]:
    """Yield the training thread's work on batches, if it is worth naming."""
    share, unit = view.share(DATA_WORK), view.training.unit
    if share >= WORTH:
        evidence = _evidence(view, DATA_WORK)
        yield TRAINING["data-work"].found(share, share=share, unit=unit, line=at_line(view), evidence=evidence)
    share = view.share(UNSEEN)
    if share >= WORTH and view.trainer.lines:
        evidence = _evidence(view, UNSEEN)
        yield TRAINING["before-model"].found(share, share=share, unit=unit, line=at_line(view), evidence=evidence)


def data_work(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose that workers do the loop's data work, if there is any."""
    us = case.part_us(DATA_WORK)
    if case.step_share(us) < WORTH:
        return None
    taken = f"Data work in the loop takes {duration(us)} of a step{at_line(case.view)}."
    if not case.workers:
        return kind.would_not(f"{taken} There are no workers that could do it (num_workers=0).")
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
        why=f"{taken} Workers could do it while the model trains.",
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


def place_words(place: str) -> str:
    """Format `/home/ada/train.py:31:normalise` as `train.py:31 (normalise)`."""
    name, number, qualified = place.rpartition("/")[2].rsplit(":", 2)
    function = ".".join(part for part in qualified.split(".") if not part.startswith("<"))
    return f"{name}:{number} ({function})" if function else f"{name}:{number}"


def _evidence(view: TrainerView, part: str) -> str:
    us = 0.0 if view.budget is None else next((one.us for one in view.budget.parts if one.name == part), 0.0)
    seen = [f"{percent(share)} at {place}" for place, share in _lines(view) if share >= WORTH_A_LINE]
    return "; ".join([f"{duration(us)} a {view.training.unit} on the training thread", *seen])
