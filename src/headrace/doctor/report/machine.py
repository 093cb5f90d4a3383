"""The machine, on a page: how much of it was used during the run."""

from __future__ import annotations

from statistics import fmean

from headrace.doctor.session.model import Machine, Session

from .figures import counted, number, size
from .page import Page


def put_machines(page: Page, session: Session, *, most: int) -> None:
    """A paragraph for each of the first `most` machines: means, and the most where it is another figure."""
    for machine in session.machines[:most]:
        texts = [text for name, values in machine.columns.items() if (text := _used(name, values))]
        if texts:
            page.heading("Machine", machine.host if len(session.machines) > 1 else "")
            page.sentence(" · ".join(texts), lead="  ")
    if len(session.machines) > most:
        page.line(f"and {counted(len(session.machines) - most, 'machine')} more: --verbose", style="dim")


def _used(name: str, values: list[float | None]) -> str:
    measured = [value for value in values if value is not None]
    if not measured:
        return ""
    words, mean = _in_words(name, fmean(measured))
    peak = _in_words(name, max(measured))[1]
    return f"{words} {mean}" + (f" (at most {peak})" if peak != mean else "")


def _in_words(name: str, value: float) -> tuple[str, str]:
    """A column's name ends in its unit."""
    for ending, shown in (
        ("_bytes_per_s", f"{size(value)}/s"),
        ("_bytes", size(value)),
        ("_percent", f"{value:.0f} %"),
        ("_ms", f"{number(value)} ms"),
        ("_mhz", f"{value:,.0f} MHz"),
    ):
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " "), shown
    return name.replace("_", " "), number(value)
