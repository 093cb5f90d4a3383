"""Training loop calls that print, or that read tensors and so wait for the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..measure import OBSERVE, WAIT, Finding, TrainerView, window
from ..quantities import duration, number, percent
from ..session.model import Session
from ..simulate import FeedSetup
from .case import MEDIUM, WORTH, Case
from .loop_work import WORTH_A_LINE, place_words
from .proposals import Proposal, RemedyKind
from .training_kinds import TRAINING

READS, PRINTS = "loop-reads", "loop-prints"
"""Codes of findings and of remedies."""
MOST_PLACES = 3
READ = "Tensor."
"""Prefix of calls that read a tensor; `Tensor.__repr__()` counts as printing."""
TEXT = "Tensor.__repr__()"
HINT = {
    READS: "add up on the device (total += loss.detach()), and call .item() once in N steps; read a whole tensor with "
    "one .tolist() in place of a call for each number",
    PRINTS: "print and log once in N steps, without whole tensors; a progress bar has mininterval= for this",
}


@dataclass(frozen=True)
class CallsFromPlace:
    """Calls of one kind from one line, per step."""

    what: str
    place: str | None
    waits: bool
    """True if the call waits for the device."""
    calls: float
    us: float

    @property
    def code(self) -> str:
        return READS if self.what.startswith(READ) and self.what != TEXT else PRINTS


def call_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the cost per step of reading tensors and of printing, if it is large."""
    for code in (READS, PRINTS):
        found = [one for one in loop_calls(session, view) if one.code == code]
        us = sum(one.us for one in found)
        share = _gain(view, found)
        if share < WORTH or view.budget is None:
            continue
        first, unit = found[0], view.training.unit
        takes = f"{percent(us / view.budget.mean_us)} of each {unit}"
        waits = any(one.waits for one in found)
        bound = (
            f" waits for the device; that costs up to {percent(share)} of each {unit}" if waits else f" takes {takes}"
        )
        most = "most of it by " if first.us >= us / 2 else f"{percent(first.us / us)} of it by "
        evidence = _evidence(found, us, unit, waits)
        most += f"{first.what}{_at(first)}"
        yield TRAINING[code].found(share, bound=bound, most=most, evidence=evidence, hint=HINT[code])


def loop_calls(session: Session, view: TrainerView) -> list[CallsFromPlace]:
    """Return the calls of a mean step by callee and line, slowest first.

    The calls come from the watched steps within the observed window, or from all watched steps if there are none.
    """
    trainer, steps = view.trainer, view.training.steps
    processes = [one for one in session.processes if (one.host, one.pid) == (trainer.host, trainer.pid)]
    told = [one for process in processes for one in process.facts.get("calls", ())]
    observed = window(trainer, OBSERVE)
    since = steps[0].start if steps else 0
    until = max([*trainer.steps.end, 0]) if observed is None else observed.end
    within = [one for one in told if since < one["time"] and one["time"] <= until]
    chosen = within or told
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
    """Propose to read tensors, or to print, less often, if this takes long."""
    found = [one for one in loop_calls(case.session, case.view) if one.code == kind.code]
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


def _evidence(found: Sequence[CallsFromPlace], us: float, unit: str, waits: bool) -> str:
    said = [f"{duration(us)} a {unit}{', most of it the device at work' if waits else ''}"]
    said += [
        f"{number(round(one.calls, 1))} × {one.what}{_at(one)}: {duration(one.us)}"
        for one in found[:MOST_PLACES]
        if one.us >= WORTH_A_LINE * us
    ]
    return "; ".join(said)
