"""What the probe itself cost, as it measured in this run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from ..session.model import Session
from .diagnosis import Cost
from .join import Join
from .slow import busy_us
from .view import View


def cost(session: Session, views: Sequence[View], join: Join) -> Cost:
    """Makers whose batches were thinned do not tell how long they were busy, and are left out of `worker_share`.

    A step's cost is the median: the first step also pays, once, for finding out what each kind of call costs.
    """
    probed = [
        (us, step.duration)
        for view in views
        for step in view.training.steps
        if (us := _probe(view, step.row)) is not None
    ]
    step_us = median(us for us, _ in probed) if probed else None
    told = [maker for maker in session.makers if maker.probe is not None and not join.is_thinned(maker)]
    busy = sum(busy_us(maker) for maker in told)
    return Cost(
        step_us=step_us,
        step_share=None if step_us is None else step_us / fmean(duration for _, duration in probed),
        worker_share=sum(maker.probe or 0 for maker in told) / busy if busy else None,
        evidence_bytes=sum(process.evidence_bytes for process in session.processes),
    )


def _probe(view: View, row: int | None) -> float | None:
    return None if row is None else view.trainer.steps.probe[row]
