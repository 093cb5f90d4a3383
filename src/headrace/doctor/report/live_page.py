"""What a live view shows of a pace."""

from __future__ import annotations

from .figures import counted, number, share
from .pace import Pace
from .page import Page, Row
from .step import heat

STAGES = 3


def live_page(pace: Pace, gpu: float | None, *, width: int, ascii_only: bool) -> Page:
    """A few rows: what is waited for, how busy the workers are and with what, the GPU."""
    page = Page(width, ascii_only=ascii_only)
    if pace.step is None:
        page.line("headrace doctor: no step yet", indent=0, style="dim")
        return page
    page.sentence(f"step {pace.step:,}, {number(pace.steps_per_s)} steps/s", lead="doctor  ", lead_style="bold")
    rows = [
        ("waits for data", pace.wait_share),
        (f"{counted(pace.workers, 'worker')} busy", pace.busy),
        ("GPU busy", gpu),
    ]
    page.rows([_row(name, value, hot=name == "waits for data") for name, value in rows])
    page.rows([_row(name.replace(":", " ", 1), value, hot=True) for name, value in pace.stages[:STAGES]], indent=4)
    return page


def live_line(pace: Pace, gpu: float | None, *, ascii_only: bool) -> str:
    """The same for where no view can be drawn."""
    stage = f", most in {pace.stages[0][0].replace(':', ' ', 1)} {share(pace.stages[0][1])}" if pace.stages else ""
    text = (
        f"headrace doctor: step {pace.step}, {number(pace.steps_per_s)} steps/s, "
        f"waits for data {share(pace.wait_share)}, {counted(pace.workers, 'worker')} busy {share(pace.busy)}{stage}, "
        f"GPU busy {share(gpu)}"
    )
    return Page(ascii_only=ascii_only).shown(text)


def _row(name: str, value: float | None, *, hot: bool) -> Row:
    style = heat(value) if hot and value is not None else "cyan"
    return Row(name, (share(value),), value, style)
