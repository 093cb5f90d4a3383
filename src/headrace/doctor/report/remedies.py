"""What to do about it, on a page: the floors, what helps, and what would not."""

from __future__ import annotations

from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.remedies.model import Outcome, Prescription, Remedy

from .detail import Detail
from .figures import ABSENT, duration
from .gains import (
    floor_rows,
    helping,
    idle,
    interval,
    is_refused,
    outcome_of,
    predicted,
    proved,
    samples,
    times,
    title,
    together,
)
from .page import Page, Row

REFUSED = "refused"
"""In place of a gain that a proof spoke against: what stands behind it may have no room."""
TITLE = 0.36
"""Share of the page's width that a title may take where figures and costs stand beside it."""


def put_remedies(page: Page, prescription: Prescription | None, detail: Detail) -> None:
    """Those that help, the most gain first, then those that would not, each with its number."""
    if prescription is None or (prescription.floors is None and not prescription.remedies):
        return
    page.heading("What to do", _floors(prescription))
    helps = helping(prescription)
    if detail.reasons:
        for place, remedy in enumerate(helps, start=1):
            _put_whole(page, prescription, remedy, place)
        _put_together(page, prescription)
    else:
        _put_rows(page, prescription, helps, most=detail.remedies)
    _put_idle(page, idle(prescription), most=detail.idle_remedies)


def _floors(prescription: Prescription) -> str:
    """A line: what the step is, and what it would be at best. Why there is none, where there is none."""
    if prescription.floors is None:
        why = prescription.why_no_windows
        return f"no floors were measured: {why}" if why else ""
    rows = [(name, us) for name, us in floor_rows(prescription.floors) if us is not None]
    return " · ".join(f"{name} {duration(us)}" for name, us in rows)


def _put_rows(page: Page, prescription: Prescription, helps: list[Remedy], *, most: int) -> None:
    room = round(page.width * TITLE)
    rows = [
        _row(
            page.shorten(title(remedy), room), remedy.prediction, outcome_of(prescription, [remedy.code]), remedy.costs
        )
        for remedy in helps[:most]
    ]
    if len(helps) > 1:
        rows.append(_row(_all(helps, most), prescription.best, together(prescription), []))
    page.rows(rows)


def _all(helps: list[Remedy], shown: int) -> str:
    left = len(helps) - shown
    return f"Together with {left} more" if left > 0 else "Together"


def _row(label: str, gain: Prediction | None, outcome: Outcome | None, costs: list[str]) -> Row:
    """What a proof said says more than what it costs, which then waits for the whole report."""
    remark = proved(outcome) if outcome is not None else f"costs {', '.join(costs)}" if costs else ""
    if gain is None:
        return Row(label, (ABSENT, "", ""), remark=remark)
    gained = REFUSED if is_refused(outcome) else times(gain.speedup)
    figures = (duration(gain.step_us), f"({interval(gain.low_us, gain.high_us)})", gained)
    return Row(label, figures, remark=remark)


def _put_whole(page: Page, prescription: Prescription, remedy: Remedy, place: int) -> None:
    gain = predicted(remedy.prediction) if remedy.prediction is not None else "what it gains is not known"
    page.sentence(f"{title(remedy)}: {gain}", lead=f"  {place}. ")
    outcome = outcome_of(prescription, [remedy.code])
    if outcome is not None:
        page.sentence("; ".join(filter(None, (proved(outcome), samples(outcome)))), lead="     ")
    page.sentence(f"{remedy.why} (confidence {remedy.confidence})", lead="     ", style="dim")
    if remedy.costs:
        page.sentence(f"costs {', '.join(remedy.costs)}", lead="     ", style="dim")
    if remedy.edit is not None:
        for line in remedy.edit.diff.expandtabs().splitlines():
            page.quote(line, indent=5)
    elif remedy.hint:
        page.sentence(remedy.hint, lead="     → ")


def _put_together(page: Page, prescription: Prescription) -> None:
    """All that go together, where that is more than one."""
    outcome, best = together(prescription), prescription.best
    gain = predicted(best) if best is not None and len(helping(prescription)) > 1 else ""
    said = "; ".join(filter(None, (gain, proved(outcome), samples(outcome)) if outcome is not None else (gain,)))
    if said:
        page.sentence(said, lead="  together: ")


def _put_idle(page: Page, remedies: list[Remedy], *, most: int) -> None:
    for place, remedy in enumerate(remedies[:most], start=1):
        left = len(remedies) - place if place == most else 0
        more = f" · and {left} more: --verbose" if left > 0 else ""
        page.sentence(f"{title(remedy)} – {remedy.why}{more}", lead="  would not help: ")
