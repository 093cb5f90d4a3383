"""Finds the recorded work in a session."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np

from headrace.doctor.analyse.join import Join, Made
from headrace.doctor.analyse.loaders import with_loaders_as_one
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.measure.steps import PREFETCH, Training, training, whole_fact
from headrace.doctor.predict.assumed import PASSES
from headrace.doctor.predict.computing import MadeHere, computing, replay_us
from headrace.doctor.predict.firsts import Firsts
from headrace.doctor.predict.fit import UNFITTED
from headrace.doctor.predict.fitting import fitted
from headrace.doctor.predict.host_cores import HostCores
from headrace.doctor.predict.passes import draw_us, pass_costs
from headrace.doctor.predict.received import Received, main_loader, received
from headrace.doctor.predict.receiving import Receiving
from headrace.doctor.predict.setup import Setup
from headrace.doctor.session.model import Loader, Session, Trainer
from headrace.doctor.simulate.batch_work import (
    SEVERAL,
    batch_columns,
    cores_asked,
    first_batch,
    making_threads,
    without_barriers,
)
from headrace.doctor.simulate.work import Recorded

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
    receiving = Receiving(trainer, batches)
    is_iterable = loader.facts.get("iterable") is True
    makers = whole_fact(loader.facts, "num_workers") or 0
    apart = Firsts.of(batches, workers=makers, iterates=is_iterable)
    threads = making_threads(batches) if makers or cores.has_pool_of_its_own(trainer.pid) else 1.0
    columns = batch_columns(trainer, apart, receiving, cores)
    if threads >= SEVERAL and cores_asked(columns, threads, makers) > (cores.share() or float("inf")):
        columns = without_barriers(columns)
    pool = cores.pool(trainer.pid)
    own = computing(measured, loader, _made_here(measured, batches, receiving), peers_us, pool=pool)
    passes = pass_costs(session, trainer, loader)
    assumed = set() if own.is_measured else {"cores"}
    if passes is None:
        assumed |= {"sending", "start-up"}
    setup = _setup(measured, loader, cores, threads)
    found = Recorded(
        pid=trainer.pid,
        loader=loader.number,
        setup=setup,
        observed_us=measured.total_us / len(measured.steps),
        batches_a_step=float(own.steps.gets.mean()),
        batches=columns,
        steps=own.steps,
        first_batch=first_batch(apart, columns, cores),
        passes=replace(PASSES, iterates=is_iterable) if passes is None else passes,
        draw=draw_us(trainer, batches),
        team=own.team,
        first=trainer.gets.index[batches[0].row],
        replay_us=replay_us(measured),
        batch_bytes=_mean([trainer.gets.bytes[one.row] for one in batches]),
        fit=UNFITTED,
        assumed=frozenset(assumed),
    )
    return fitted(found)


def _setup(measured: Training, loader: Loader, cores: HostCores, threads: float) -> Setup:
    facts = loader.facts
    return Setup(
        workers=whole_fact(facts, "num_workers") or 0,
        prefetch=whole_fact(facts, "prefetch_factor") or PREFETCH,
        persistent=facts.get("persistent_workers") is True,
        pinned=any(measured.trainer.gets.pin[row] is not None for row in measured.gets),
        in_order=facts.get("in_order") is not False,
        cores=cores.share(),
        others=cores.others(),
        worker_threads=threads,
        pass_batches=_pass_batches(measured.trainer, loader),
    )


def _mean(values: list[int | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0


def _pass_batches(trainer: Trainer, loader: Loader) -> int | None:
    """By what the loader says of itself, or as many as its longest pass that came to its end."""
    length = whole_fact(loader.facts, "length")
    if length is not None and length > 0:
        return length
    ended = {one.number for one in trainer.passes if one.loader == loader.number and one.last is not None}
    gets = zip(trainer.gets.pass_, trainer.gets.index, strict=True)
    return max((index + 1 for number, index in gets if number in ended), default=None)


def _made_here(measured: Training, batches: list[Received], receiving: Receiving) -> MadeHere:
    made = {one.row: one.made for one in batches}
    rows = [
        [_used_here(measured.trainer, row, made.get(row), receiving) for row in step.gets] for step in measured.steps
    ]
    cpu, delay = ([float(sum(row[place] for row in step)) for step in rows] for place in (0, 1))
    return MadeHere(np.array(cpu), np.array(delay))


def _used_here(trainer: Trainer, row: int, made: Made | None, receiving: Receiving) -> tuple[float, float]:
    """CPU time and delay: of unpickling where the batch came from elsewhere."""
    if made is None or made.maker.worker is not None:
        return receiving.computing(row) + float(trainer.gets.pin[row] or 0), receiving.delay(row)
    cpu, delay = made.maker.batches.cpu, made.maker.batches.delay
    return float((cpu[made.row] if cpu else None) or 0), float((delay[made.row] if delay else None) or 0)
