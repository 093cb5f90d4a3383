"""What to do about it, on a page: the floors, what helps, and what would not."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.report.detail import Detail
from headrace.doctor.report.escaping import duration
from headrace.doctor.report.remedy_rows import RemedyRow, RemedyRows, remedy_rows
from headrace.doctor.report.remedy_text import floor_rows
from headrace.doctor.report.terminal_layout import Page, Row

REFUSED = "refused"
"""In place of a gain that a proof spoke against."""
TITLE = 0.36
"""Share of the page's width that titles may take where figures stand beside them."""


def put_remedies(page: Page, prescription: Prescription | None, detail: Detail) -> None:
    """Those that help, the most gain first, then those that would not, each with its number."""
    if prescription is None or (prescription.floors is None and not prescription.remedies):
        return
    page.heading("What to do", _floors(prescription))
    rows = remedy_rows(prescription)
    if detail.reasons:
        for place, row in _shown(rows.helps, detail.remedies):
            _put_whole(page, row, place)
        _put_left(page, len(rows.helps) - len(_shown(rows.helps, detail.remedies)), detail)
        _put_together(page, rows)
    else:
        _put_rows(page, rows, most=detail.remedies)
    _put_idle(page, rows.idle, detail)


def _floors(prescription: Prescription) -> str:
    """A line: what the step is, and what it would be at best. Why there is none, where there is none."""
    if prescription.floors is None:
        why = prescription.why_no_windows
        return f"no floors were measured: {why}" if why else ""
    observed, *floors = floor_rows(prescription.floors)
    rows = [(name, us) for name, us in (observed, ("again", prescription.again_us), *floors) if us is not None]
    return " · ".join(f"{name} {duration(us)}" for name, us in rows)


def _put_rows(page: Page, rows: RemedyRows, *, most: int) -> None:
    first = _shown(rows.helps, most)
    shown = [_figures(row, row.title) for _, row in first]
    if len(rows.helps) > 1:
        left = len(rows.helps) - len(first)
        shown.append(_figures(rows.together, f"Together with {left} more" if left > 0 else "Together"))
    page.entries(shown, most_label=round(page.width * TITLE))


def _shown(helps: Sequence[RemedyRow], most: int) -> list[tuple[int, RemedyRow]]:
    """The first ones, and all that were tried, each with its number."""
    return [(place, row) for place, row in enumerate(helps, start=1) if place <= most or row.outcome is not None]


def _figures(row: RemedyRow, label: str) -> Row:
    """What a proof said says more than what it costs, which then waits for the whole report."""
    remark = "; ".join(filter(None, (row.proved, row.without))) or (f"costs {row.costs}" if row.costs else "")
    gained = REFUSED if row.is_refused and row.prediction is not None else row.speedup
    interval = f"({row.interval})" if row.interval else ""
    return Row(label, (row.step, interval, gained), remark=remark)


def _put_whole(page: Page, row: RemedyRow, place: int) -> None:
    page.sentence(f"{row.title}: {row.predicted or 'what it gains is not known'}", lead=f"  {place}. ")
    if row.outcome is not None:
        page.sentence("; ".join(filter(None, (row.proved, row.samples))), lead="     ")
    page.sentence(f"{row.why} (confidence {row.confidence})", lead="     ", style="dim")
    if row.costs:
        page.sentence(f"costs {row.costs}", lead="     ", style="dim")
    if row.edit is not None:
        for line in row.edit.diff.expandtabs().splitlines():
            page.code(line, indent=5)
    elif row.hint:
        page.sentence(row.hint, lead="     → ")


def _put_left(page: Page, left: int, detail: Detail) -> None:
    if left > 0:
        page.line(f"and {left} more: {detail.rest}", style="dim")


def _put_together(page: Page, rows: RemedyRows) -> None:
    """All that go together, where that is more than one."""
    row = rows.together
    said = "; ".join(filter(None, (row.predicted, row.proved, row.samples, row.without)))
    if said:
        page.sentence(said, lead="  together: ")


def _put_idle(page: Page, idle: list[tuple[str, str]], detail: Detail) -> None:
    most = detail.idle_remedies
    for place, (title, why) in enumerate(idle[:most], start=1):
        left = len(idle) - place if place == most else 0
        more = f" · and {left} more: {detail.rest}" if left > 0 else ""
        page.sentence(f"{title} – {why}{more}", lead="  would not help: ")
