"""Costly lines of the script in batch production, by stack samples."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.loop_work import place_words
from headrace.doctor.measure import BOUND, Finding, TrainerView
from headrace.doctor.quantities import percent

COSTLY_LINE = "costly-line"
MOST = 4
"""Maximum number of findings."""


def line_findings(view: TrainerView) -> Iterator[Finding]:
    """Yield the lines in which the loader that steps wait for most spends its time, heaviest first.

    The weight is the line's share of making a batch, times the share of a step that waits for data: 5 % or more.
    """
    wait = view.wait_share or 0.0
    making = next((one for one in view.batch_production if one.loader in view.training.fed), None)
    for line in [] if making is None or wait < BOUND else making.lines[:MOST]:
        if line.share * wait < BOUND:
            return
        yield Finding(
            code=COSTLY_LINE,
            weight=line.share * wait,
            text=f"{place_words(line.place)} is {percent(line.share)} of making a batch.",
            evidence="by stack samples, with the library calls that the line makes",
            advice="",
        )
