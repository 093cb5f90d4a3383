"""Work before the first step, such as a dataset that decodes everything when it is made."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.cause import APART, Cause, of_steps
from headrace.doctor.causes.stages import place_words
from headrace.doctor.measure import Finding, TrainerView
from headrace.doctor.quantities import duration, percent
from headrace.doctor.session.model import Session

SLOW_START = "slow-start"
LEAST_US = 5e6
"""Reporting threshold: time before the first pass over a loader."""
MUCH = 0.5
"""Reporting threshold: share of that time which one line takes."""


def start_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find a line of the script that takes most of the time before the first step."""
    process = session.process_of(view.trainer)
    before_us = min((one.start for one in view.trainer.passes), default=0) - (0 if process is None else process.start)
    line = next(iter(view.trainer.before), None)
    if line is None or before_us < LEAST_US or line.us < MUCH * before_us:
        return
    yield Finding(
        SLOW_START,
        0.0,
        f"{duration(before_us)} pass before the first step, {percent(min(line.us / before_us, 1.0))} of it at "
        f"{place_words(line.place)}.",
        "by stack samples of the training process, with the library calls that the line makes",
        "Where it reads or decodes samples, do it in __getitem__, so that workers do it while the model trains, or "
        "once, into a file that each start maps.",
    )


CAUSE = Cause(
    findings={SLOW_START: "5 s or more pass before the first step, half of it at one line of the script."},
    find=of_steps(start_findings),
    order=APART,
)
