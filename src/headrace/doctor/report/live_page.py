"""What a live view shows of a pace."""

from __future__ import annotations

from headrace.doctor.report.escaping import counted, number, share
from headrace.doctor.report.live import DRAIN, LOAD, OBSERVE, OVER, REPLAY, WARM_UP, CurrentWindow
from headrace.doctor.report.pace import Pace
from headrace.doctor.report.step import heat
from headrace.doctor.report.terminal_layout import Page, Row

STAGES = 3
_DOING = {
    WARM_UP: "warming up",
    OBSERVE: "observing",
    REPLAY: "replaying",
    LOAD: "replaying beside the workers",
    DRAIN: "draining the loader",
    OVER: "ending the run",
}


def live_page(pace: Pace, window: CurrentWindow | None, gpu: float | None, *, width: int, ascii_only: bool) -> Page:
    """A few rows: how far the run is, what is waited for, how busy the workers are and with what, the GPU."""
    page = Page(width, ascii_only=ascii_only)
    if pace.step is None:
        page.line("headrace doctor: no step yet", indent=0, style="dim")
        return page
    page.sentence(_position(pace, window), lead="doctor  ", lead_style="bold")
    rows = [
        ("waits for data", pace.wait_share),
        (f"{counted(pace.workers, 'worker')} busy", pace.busy),
        ("GPU busy", gpu),
    ]
    page.rows([_row(name, value, hot=name == "waits for data") for name, value in rows])
    page.rows([_row(name.replace(":", " ", 1), value, hot=True) for name, value in pace.stages[:STAGES]], indent=4)
    return page


def live_line(pace: Pace, window: CurrentWindow | None, gpu: float | None, *, ascii_only: bool) -> str:
    """The same for where no view can be drawn."""
    stage = f", most in {pace.stages[0][0].replace(':', ' ', 1)} {share(pace.stages[0][1])}" if pace.stages else ""
    text = (
        f"headrace doctor: {_position(pace, window)}, "
        f"waits for data {share(pace.wait_share)}, {counted(pace.workers, 'worker')} busy {share(pace.busy)}{stage}, "
        f"GPU busy {share(gpu)}"
    )
    return Page(ascii_only=ascii_only).shown(text)


def _position(pace: Pace, window: CurrentWindow | None) -> str:
    """`step 1,204, 8.1 steps/s, replaying 14 of 40 steps`."""
    at = f"step {pace.step:,}, {number(pace.steps_per_s)} steps/s"
    return at if window is None else f"{at}, {_words(window)}"


def _words(window: CurrentWindow) -> str:
    doing = _DOING[window.name]
    return doing if window.steps is None else f"{doing} {window.done} of {counted(window.steps, 'step')}"


def _row(name: str, value: float | None, *, hot: bool) -> Row:
    style = heat(value) if hot and value is not None else "cyan"
    return Row(name, (share(value),), value, style)
