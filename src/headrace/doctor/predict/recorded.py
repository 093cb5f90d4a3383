"""Finds the recorded work in a session."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np

from ..analyse.diagnosis import Diagnosis
from ..analyse.join import Join, Made
from ..analyse.loaders import with_loaders_as_one
from ..analyse.steps import PREFETCH, Training, training, whole_fact
from ..session.model import Loader, Session, Trainer
from .assumed import PASSES
from .columns import Column
from .computing import computing, replay_us
from .fit import UNFITTED
from .fitting import fitted
from .host_cores import HostCores
from .making import batch_columns, first_extra, making_threads, speed
from .passes import draw_us, pass_costs
from .received import Received, main_loader, received
from .record import Recorded
from .setup import Setup

__all__ = ["Recorded", "recorded"]


def recorded(session: Session, diagnosis: Diagnosis) -> Recorded | None:
    """None where there is nothing to simulate: no measured step, no DataLoader that it waited for, or no record of the
    batches' making."""
    trainer = _main(session, diagnosis)
    if trainer is None:
        return None
    measured = training(session, with_loaders_as_one(trainer))
    loader = main_loader(measured)
    if loader is None:
        return None
    batches = received(measured, Join(session), loader)
    if not any(one.made is not None for one in batches):
        return None
    return _recorded(session, measured, loader, batches, _peers_us(diagnosis, trainer))


def _main(session: Session, diagnosis: Diagnosis) -> Trainer | None:
    """The one that waited longest, of those of which there is a budget."""
    budgets = [one for one in diagnosis.budgets if one.unit == "step"] or diagnosis.budgets
    longest = max(budgets, key=lambda one: one.share("data wait") * one.mean_us * one.steps, default=None)
    if longest is None:
        return None
    return next((one for one in session.trainers if (one.pid, one.rank) == (longest.pid, longest.rank)), None)


def _peers_us(diagnosis: Diagnosis, trainer: Trainer) -> float:
    """How long a step waits for other ranks, as far as those wait for data themselves: they are fed faster, too."""
    own = next((one for one in diagnosis.ranks if (one.pid, one.rank) == (trainer.pid, trainer.rank)), None)
    others = [one.data_wait_us for one in diagnosis.ranks if one is not own]
    if own is None or own.peer_wait_us is None:
        return 0.0
    return min(own.peer_wait_us, max(others, default=0.0))


def _recorded(
    session: Session, measured: Training, loader: Loader, batches: list[Received], peers_us: float
) -> Recorded:
    trainer = measured.trainer
    cores = HostCores.of(session, trainer)
    columns = batch_columns(trainer, batches, cores)
    own = computing(measured, loader, _made_here(measured, batches), peers_us)
    passes = pass_costs(session, trainer, loader, first_extra(batches, columns, cores))
    assumed = set() if own.is_measured else {"cores"}
    if passes is None:
        assumed |= {"sending", "start-up"}
    setup = _setup(measured, loader, cores, making_threads(batches))
    found = Recorded(
        pid=trainer.pid,
        loader=loader.number,
        setup=setup,
        observed_us=measured.total_us / len(measured.steps),
        batches_a_step=float(own.steps.gets.mean()),
        batches=columns,
        steps=own.steps,
        passes=PASSES if passes is None else passes,
        draw=draw_us(trainer, batches),
        training_threads=own.threads,
        first=trainer.gets.index[batches[0].row],
        replay_us=replay_us(measured),
        batch_bytes=_mean([trainer.gets.bytes[one.row] for one in batches]),
        fit=UNFITTED,
        assumed=frozenset(assumed),
    )
    found = replace(found, setup=replace(setup, others=_others(found, speed(batches, cores), cores)))
    return fitted(found)


def _others(found: Recorded, speed: float, cores: HostCores) -> float:
    """Threads of other programs. Whenever one of ours is ready to run, so are others of ours, in the mean as many as
    there are of all the time."""
    threads = found.setup.workers + 1
    ready = found.cores_of_work_at(found.observed_us) / speed
    return cores.others(speed, 1 + ready * (threads - 1) / threads)


def _setup(measured: Training, loader: Loader, cores: HostCores, threads: float) -> Setup:
    facts = loader.facts
    return Setup(
        workers=whole_fact(facts, "num_workers") or 0,
        prefetch=whole_fact(facts, "prefetch_factor") or PREFETCH,
        persistent=facts.get("persistent_workers") is True,
        pinned=any(measured.trainer.gets.pin[row] is not None for row in measured.gets),
        in_order=facts.get("in_order") is not False,
        cores=cores.share(),
        others=0.0,
        worker_threads=threads,
        pass_batches=_pass_batches(measured.trainer, loader),
    )


def _mean(values: list[int | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0


def _pass_batches(trainer: Trainer, loader: Loader) -> int | None:
    """By what the loader says of itself, or as many as its longest pass that came to its end."""
    length = whole_fact(loader.facts, "length")
    if length is not None:
        return length
    ended = {one.number for one in trainer.passes if one.loader == loader.number and one.last is not None}
    gets = zip(trainer.gets.pass_, trainer.gets.index, strict=True)
    return max((index + 1 for number, index in gets if number in ended), default=None)


def _made_here(measured: Training, batches: list[Received]) -> Column:
    """CPU time, by step, of the batches that the trainer made itself, and of unpickling those that it received."""
    made = {one.row: one.made for one in batches}
    trainer = measured.trainer
    return np.array(
        [sum(_cpu_here(trainer, row, made.get(row)) for row in step.gets) for step in measured.steps], float
    )


def _cpu_here(trainer: Trainer, row: int, made: Made | None) -> float:
    if made is not None and made.maker.worker is None:
        cpu = made.maker.batches.cpu
        return float((cpu[made.row] if cpu else None) or 0)
    return float((trainer.gets.unpickle[row] or 0) + (trainer.gets.pin[row] or 0))
