"""What the probe itself cost, as it measured in this run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ..session.model import Session
from .diagnosis import Cost
from .join import Join
from .slow import busy_us
from .view import View


def cost(session: Session, views: Sequence[View], join: Join) -> Cost:
    """Makers whose batches were thinned do not tell how long they were busy, and are left out of `worker_share`."""
    probed = [
        (us, step.duration)
        for view in views
        for step in view.training.steps
        if (us := _probe(view, step.row)) is not None
    ]
    told = [maker for maker in session.makers if maker.probe is not None and not join.is_thinned(maker)]
    busy = sum(busy_us(maker) for maker in told)
    return Cost(
        step_us=fmean(us for us, _ in probed) if probed else None,
        step_share=sum(us for us, _ in probed) / sum(duration for _, duration in probed) if probed else None,
        worker_share=sum(maker.probe or 0 for maker in told) / busy if busy else None,
        evidence_bytes=sum(process.evidence_bytes for process in session.processes),
    )


def _probe(view: View, row: int | None) -> float | None:
    return None if row is None else view.trainer.steps.probe[row]
