"""The training loop itself: its work on batches, and its reads of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from headrace.doctor.causes.case import MEDIUM, WORTH, Case
from headrace.doctor.causes.cause import LEADS, Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import FEW_LINES
from headrace.doctor.causes.stage_names import place_words
from headrace.doctor.measure import (
    BOUND,
    DATA_WORK,
    UNSEEN,
    WAIT,
    Finding,
    TrainerView,
)
from headrace.doctor.quantities import duration, number, percent
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import FeedSetup, StageChange, name_of

MOST_LINES = 3
WORTH_A_LINE = 0.1
"""Minimum share of the samples for a line to be named."""
READS = "loop-reads"
"""Code of the finding and of the remedy."""
MOST_PLACES = 3
HINT = (
    "add up on the device (total += loss.detach()), and call .item() once in N steps; read a whole tensor with one "
    ".tolist() in place of a call for each number"
)


def loop_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the training thread's work on batches, then the reads of tensors that take long."""
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
    yield from _call_findings(session, view)


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


@dataclass(frozen=True)
class CallsFromPlace:
    """Calls of one kind from one line, per step."""

    what: str
    place: str | None
    waits: bool
    """True if the call waits for the device."""
    calls: float
    us: float


def _call_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the cost per step of reading tensors, if it is large."""
    found = loop_calls(session, view)
    us, share = sum(one.us for one in found), _gain(view, found)
    if share < WORTH or view.budget is None:
        return
    first, unit, waits = found[0], view.training.unit, any(one.waits for one in found)
    takes = f"takes {percent(min(us / view.budget.mean_us, 1.0))} of each {unit}"
    bound = f"waits for the device; that costs up to {percent(share)} of each {unit}" if waits else takes
    most = "most" if first.us >= us / 2 else percent(first.us / us)
    yield Finding(
        READS,
        share,
        f"Reading tensors in the training loop {bound}, {most} of it by {first.what}{_at(first)}.",
        _calls_evidence(found, us, unit, waits),
        f"Look at how often it reads: {HINT}.",
    )


def loop_calls(session: Session, view: TrainerView) -> list[CallsFromPlace]:
    """Return the reads of tensors in a mean step by callee and line, slowest first.

    The calls come from the watched steps since the first measured one, within the observed window if there is one.
    """
    trainer, steps = view.trainer, view.training.steps
    processes = [one for one in session.processes if (one.host, one.pid) == (trainer.host, trainer.pid)]
    told = [one for process in processes for one in process.facts.get("calls", ())]
    since, until = steps[0].start if steps else inf, view.training.until
    chosen = [one for one in told if since < one["time"] <= until]
    count = sum(one["steps"] for one in chosen)
    sums: dict[tuple[str, str | None, bool], tuple[int, int]] = {}
    for one in chosen:
        for what, place, waits, calls, us in one["calls"]:
            before = sums.get((what, place, bool(waits)), (0, 0))
            sums[what, place, bool(waits)] = before[0] + calls, before[1] + us
    found = [CallsFromPlace(*key, calls / count, us / count) for key, (calls, us) in sums.items() if count]
    return sorted(found, key=lambda one: -one.us)


def _gain(view: TrainerView, found: Sequence[CallsFromPlace]) -> float:
    """Return the maximum share of a step that is saved without these calls.

    While a call waits, the device does work that remains. A step is never shorter than that work, nor than the training
    thread's other work.
    """
    if view.budget is None or not view.budget.mean_us:
        return 0.0
    step_us, waiting = view.budget.mean_us, sum(one.us for one in found if one.waits)
    other = sum(one.us for one in found if not one.waits)
    return min(other + min(waiting, max(step_us - waiting, 0.0)), step_us) / step_us


def fewer(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to read tensors less often, if this takes long."""
    found = loop_calls(case.session, case.view)
    share = _gain(case.view, found)
    if share < WORTH:
        return None
    own_us = case.step_us - case.part_us(WAIT)

    def change(setup: FeedSetup) -> FeedSetup:
        return replace(setup, step=setup.step * max(1 - share * case.step_us / max(own_us, 1.0), 0.0))

    first, us = found[0], sum(one.us for one in found)
    return kind.tried(
        case,
        change,
        why=f"{number(round(first.calls, 1))} × {first.what} a step{_at(first)}: such calls take {duration(us)} of it.",
        confidence=MEDIUM,
    )


def _at(one: CallsFromPlace) -> str:
    return "" if one.place is None else f" at {place_words(one.place)}"


def _calls_evidence(found: Sequence[CallsFromPlace], us: float, unit: str, waits: bool) -> str:
    said = [f"{duration(us)} a {unit}{', most of it the device at work' if waits else ''}"]
    said += [
        f"{number(round(one.calls, 1))} × {one.what}{_at(one)}: {duration(one.us)}"
        for one in found[:MOST_PLACES]
        if one.us >= WORTH_A_LINE * us
    ]
    return "; ".join(said)


CAUSE = Cause(
    findings={
        "data-work": "The training loop itself works on batches for 2 % of a step or more.",
        "before-model": "2 % of a step or more passes before the model is called, where no source of batches was seen.",
        READS: "The training loop reads tensors, and so waits for the device, for 2 % of a step or more.",
    },
    find=of_steps(loop_findings),
    order=LEADS,
    explains=(READS,),
    remedies=[
        RemedyKind(
            "data-work",
            "Data work of the training loop done by the workers",
            "Let workers do what the training loop itself does with batches, where that takes 2 % of a step",
            FEW_LINES,
            data_work,
            hint="do it in __getitem__, in collate_fn, or before the loader in a pipeline",
            costs=("the same work for each worker's batches",),
        ),
        RemedyKind(
            READS,
            "Tensors read in one step of many, or all at once",
            "Read tensors (`.item()`) in one step of many, where reading takes 2 % of a step",
            FEW_LINES,
            fewer,
            hint=HINT,
            costs=("figures come later",),
        ),
    ],
)
