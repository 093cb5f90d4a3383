"""What the probe itself cost, as it measured in this run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from headrace.doctor.analyse.join import Join
from headrace.doctor.analyse.slow import busy_us
from headrace.doctor.measure.diagnosis import Cost
from headrace.doctor.measure.view import View
from headrace.doctor.session.model import Rest, Session


def cost(session: Session, views: Sequence[View], join: Join) -> Cost:
    """Makers whose batches were thinned do not tell how long they were busy, and are left out of `worker_share`.

    The cost of a step that was measured is the median: the first one also pays for what is done once. Those that were
    let pass cost less, and count as they are.
    """
    probed = [
        (us, step.duration)
        for view in views
        for step in view.training.steps
        if (us := _probe(view, step.row)) is not None
    ]
    step_us = _of_a_step([us for us, _ in probed], [rest for view in views for rest in view.trainer.rests])
    told = [maker for maker in session.makers if maker.probe is not None and not join.is_thinned(maker)]
    busy = sum(busy_us(maker) for maker in told)
    return Cost(
        step_us=step_us,
        step_share=None if step_us is None else step_us / fmean(duration for _, duration in probed),
        worker_share=sum(maker.probe or 0 for maker in told) / busy if busy else None,
        evidence_bytes=sum(process.evidence_bytes for process in session.processes),
    )


def _of_a_step(measured: Sequence[float], rests: Sequence[Rest]) -> float | None:
    if not measured:
        return None
    spent = median(measured) * len(measured) + sum(rest.probe for rest in rests)
    return spent / (len(measured) + sum(rest.steps for rest in rests))


def _probe(view: View, row: int | None) -> float | None:
    return None if row is None else view.trainer.steps.probe[row]
