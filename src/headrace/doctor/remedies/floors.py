"""What bounds the step, from the windows of a measured run: the loop without its loader, and the reverse."""

from __future__ import annotations

from statistics import fmean

from headrace.doctor.analyse.join import Join
from headrace.doctor.analyse.replayed import evaluation_us, window_us
from headrace.doctor.causes.remedy import Floors
from headrace.doctor.measure.steps import DRAIN, LOAD, OBSERVE, REPLAY, pass_of, queue_of, window
from headrace.doctor.measure.view import View
from headrace.doctor.session.model import Session, Trainer, Window


def floors(session: Session, view: View) -> Floors | None:
    """Of one trainer. None where it has shown nothing but how the run is: `why_no_floors` says why."""
    trainer = view.trainer
    if view.budget is None or window(trainer, REPLAY) is None:
        return None
    evaluation = fmean(evaluation_us(step) for step in view.training.steps)
    return Floors(
        observed_us=view.budget.mean_us,
        replay_us=window_us(trainer, REPLAY, evaluation),
        load_us=window_us(trainer, LOAD, evaluation),
        drain_us=_drain_us(session, view),
    )


def why_no_floors(session: Session, view: View | None) -> str:
    """A sentence where there are none, else empty."""
    if session.mode != "measure":
        return "The run was only observed, as it was asked to be."
    said = next((note.text for note in session.notes if note.code == "no-replay"), "")
    if said:
        return said
    if view is None or window(view.trainer, OBSERVE) is None:
        return "The run ended before all steps that were asked for had been observed."
    return "" if window(view.trainer, REPLAY) is not None else "The run ended before anything was replayed."


def _drain_us(session: Session, view: View) -> float | None:
    """From the batches that were not ready when it began, since those that were show nothing of the workers' pace.
    None where there were fewer than one a worker."""
    drained, began = view.trainer.drained, window(view.trainer, DRAIN)
    if began is None or not drained.start or not view.training.steps:
        return None
    made = _made_meanwhile(session, view.trainer, began)
    workers = [len(one.workers) for number, one in pass_of(view.trainer).items() if number in drained.pass_]
    if made < max([1, *workers]):
        return None
    taken = drained.start[-1] + drained.duration[-1] - began.start
    return taken / made * len(view.training.gets) / len(view.training.steps)


def _made_meanwhile(session: Session, trainer: Trainer, began: Window) -> int:
    """Batches that came out of their makers since the window began; of those whose making is not in the evidence, such
    as did not fit into the queue."""
    join, passes, drained = Join(session), pass_of(trainer), trainer.drained
    finders = {number: join.finder(trainer, one) for number, one in passes.items() if number in drained.pass_}
    made = 0
    for position, (number, index) in enumerate(zip(drained.pass_, drained.index, strict=True)):
        if number not in finders:
            continue
        found = finders[number].batch(index)
        if found is None:
            made += position >= queue_of(trainer, passes[number].loader)
        else:
            sent = found.maker.batches.sent[found.row]
            made += sent is None or sent > began.start
    return made
