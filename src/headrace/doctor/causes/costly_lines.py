"""Costly lines of the script in batch production, by stack samples."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..measure import BOUND, Finding, TrainerView
from ..quantities import percent
from ..session.model import Session

COSTLY_LINE = "costly-line"
OF_A_BATCH = " of making a batch"
MOST = 4
"""Maximum number of findings."""


def line_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the lines in which the loader that steps wait for most spends its time, heaviest first.

    The weight is the line's share of making a batch, times the share of a step that waits for data: 5 % or more.
    """
    wait = view.wait_share or 0.0
    making = next((one for one in view.batch_production if one.loader in view.training.fed), None)
    for line in [] if making is None or wait < BOUND else making.lines[:MOST]:
        if line.share * wait < BOUND:
            return
        file, number, function = line.place.rsplit(":", 2)
        yield Finding(
            code=COSTLY_LINE,
            weight=line.share * wait,
            text=f"{os.path.basename(file)}:{number} ({function}) is {percent(line.share)}{OF_A_BATCH}.",
            evidence="by stack samples, with the library calls that the line makes",
            advice=_advice(session, f"{file}:{number}"),
        )


def _advice(session: Session, place: str) -> str:
    """Return what the Loader does in place of a line, if its trial knows; else empty."""
    trial = session.loader_trial
    parts = [] if trial is None else [one for one in trial.parts if one.place and place.endswith(f"/{one.place}")]
    becomes = ", ".join(dict.fromkeys(one.becomes for one in parts if one.becomes))
    return f"The remedy `loader` has {becomes} in its place." if becomes else ""
