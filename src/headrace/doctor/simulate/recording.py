"""The recorded work of a session: its steps without waits for batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from headrace.doctor.measure import (
    PREFETCH,
    WAIT,
    Host,
    Join,
    MeasuredStep,
    MeasuredTraining,
    RankView,
    TrainerView,
    host_of,
    is_here,
    pass_blocks,
    replayed_threads,
    replayed_us,
    stalls_of_peers_us,
    whole_fact,
)
from headrace.doctor.session.model import Machine, Session
from headrace.doctor.session.trainers import LoaderFacts, Trainer, TrainerPass
from headrace.doctor.simulate.batch_work import (
    ReceivedBatch,
    ReceiveTimes,
    batch_columns,
    first_apart,
    first_batch,
    making_threads,
    receive_times,
    received,
)
from headrace.doctor.simulate.prediction import fitted
from headrace.doctor.simulate.work import PASSES, UNFITTED, Column, FeedSetup, PassCosts, RecordedRun, StepColumns

NOISE = 0.1
"""Overestimate of the number of threads that noise of two clocks can cause."""


def recorded(session: Session, view: TrainerView, ranks: Sequence[RankView] = ()) -> RecordedRun | None:
    """Return the work of a trainer, one of `ranks`; None without a measured step, a wait or batch production."""
    measured, trainer = view.training, view.trainer
    loader = next((view.loader(one.loader) for one in view.batch_production if one.loader in measured.fed), None)
    if view.budget is None or loader is None:
        return None
    batches = received(measured, Join(session), loader)
    if not any(one.made is not None for one in batches):
        return None
    host = host_of(session, trainer) or Host(Machine(trainer.host), [trainer], [], {}, range(0))
    facts, gets, receiving = loader.facts, trainer.gets, receive_times(measured, batches)
    is_iterable, workers = facts.get("iterable") is True, whole_fact(facts, "num_workers") or 0
    apart = first_apart(batches, workers=workers, iterates=is_iterable)
    threads = making_threads(batches) if workers or host.has_pool_of_its_own(trainer.pid) else 1.0
    columns = batch_columns(trainer, apart, receiving, host)
    replay_us = replayed_us(view)
    own = _own_work(
        view, loader, _used_here(measured, batches, receiving), stalls_of_peers_us(ranks, trainer), host, replay_us
    )
    passes = _pass_costs(session, trainer, loader)
    assumed = set() if own.is_measured else {"cores"}
    if passes is None:
        assumed |= {"sending", "start-up"}
    setup = FeedSetup(
        workers=workers,
        prefetch=whole_fact(facts, "prefetch_factor") or PREFETCH,
        persistent=facts.get("persistent_workers") is True,
        pinned=any(gets.pin[row] is not None for row in measured.gets),
        in_order=facts.get("in_order") is not False,
        cores=host.rank_cores,
        others=host.others_cores,
        worker_threads=threads,
        pass_batches=_pass_batches(trainer, loader),
    )
    found = RecordedRun(
        setup=setup,
        observed_us=measured.total_us / len(measured.steps),
        batches_a_step=float(own.steps.gets.mean()),
        batches=columns,
        steps=own.steps,
        first_batch=first_batch(apart, columns, host),
        passes=replace(PASSES, iterates=is_iterable) if passes is None else passes,
        draw=median(max(us, 0) for us in _draws(trainer, batches)),
        team=own.team,
        first=gets.index[batches[0].row],
        replay_us=replay_us,
        batch_bytes=_mean(size for one in batches if (size := gets.bytes[one.row]) is not None),
        fit=UNFITTED,
        assumed=frozenset(assumed),
    )
    return fitted(found)


def _pass_batches(trainer: Trainer, loader: LoaderFacts) -> int | None:
    """Return the batches per pass: the loader's length, or the count in its longest complete pass."""
    length = whole_fact(loader.facts, "length")
    if length is not None and length > 0:
        return length
    ended = {one.number for one in trainer.passes if one.loader == loader.number and one.last is not None}
    gets = zip(trainer.gets.pass_, trainer.gets.index, strict=True)
    return max((index + 1 for number, index in gets if number in ended), default=None)


def _used_here(
    measured: MeasuredTraining, batches: list[ReceivedBatch], receiving: Mapping[int, ReceiveTimes]
) -> tuple[Column, Column]:
    """Return the trainer's CPU time for batches by step (unpickling, with workers), and its wait for a core."""
    made = {one.row: one.made for one in batches}
    cpu, delay = [], []
    for step in measured.steps:
        of_step = [0.0, 0.0]
        for row in step.gets:
            one = made.get(row)
            if one is None or one.maker.worker is not None:
                of_step[0] += receiving[row].computing + float(measured.trainer.gets.pin[row] or 0)
                of_step[1] += receiving[row].delay
            else:
                columns = one.maker.batches
                of_step[0] += (columns.cpu[one.row] if columns.cpu else None) or 0
                of_step[1] += (columns.delay[one.row] if columns.delay else None) or 0
        cpu.append(of_step[0])
        delay.append(of_step[1])
    return np.array(cpu), np.array(delay)


class OwnWork(NamedTuple):
    steps: StepColumns
    team: int
    """Threads that compute together."""
    is_measured: bool
    """True if its CPU time was measured; otherwise all its time counts as computing."""


def _own_work(
    view: TrainerView,
    loader: LoaderFacts,
    making: tuple[Column, Column],
    peers_us: float,
    host: Host,
    replay_us: float | None,
) -> OwnWork:
    """Return the work of the steps without waits for batches.

    Args:
        view: The measured trainer.
        loader: The loader that its steps wait for.
        making: CPU time and delay of batches that the trainer made itself, and of unpickling.
        peers_us: Time per step that it waits for other ranks' data stalls.
        host: The machine that it runs on.
        replay_us: The mean step on cached batches, undisturbed by data loading.
    """
    trainer, steps = view.trainer, view.training.steps
    making_cpu, making_delay = making
    passes = {one.number: one for one in trainer.passes if one.loader == loader.number}
    blocks = [block for one in passes.values() for block in pass_blocks(one)]
    gets, busy_us = [], []
    for step in steps:
        own = [row for row in step.gets if trainer.gets.pass_[row] in passes]
        waited = sum(trainer.gets.duration[row] for row in own)
        waited += sum(us for start, us in blocks if step.start <= start < step.end)
        gets.append(len(own))
        busy_us.append(float(max(step.duration - waited, 0)))
    busy = np.maximum(np.array(busy_us) - peers_us, 0.0)
    device = np.full_like(busy, _device_us(view, replay_us))
    cpu = [_cell(trainer.steps.cpu, step) for step in steps]
    known = [us for us in cpu if us is not None]
    if len(known) < len(cpu):
        wait, team, compute = np.zeros_like(busy), 1, busy
    else:
        used = np.maximum(np.array(known) - making_cpu, 0.0)
        delays = np.array([float(_cell(trainer.steps.delay, step) or 0) for step in steps])
        busy = np.maximum(busy - np.maximum(delays - making_delay, 0.0), np.minimum(used, busy))
        threads = _threads(trainer, float(used.sum()), float(busy.sum()))
        team = max(host.pool(trainer.pid), ceil(threads - NOISE), 1)
        compute = np.minimum(busy * min(threads / team, 1.0) if team > 1 else used, busy)
        wait = busy - compute
    own_us = float((compute + wait).mean())
    if replay_us is not None and not device.any() and own_us > 0:
        compute, wait = compute * replay_us / own_us, wait * replay_us / own_us
    return OwnWork(StepColumns(np.array(gets), compute, wait, device), team, len(known) == len(cpu))


def _threads(trainer: Trainer, used_us: float, busy_us: float) -> float:
    """Return the threads that compute at once, by the median replayed step, which lost no cores, or the mean step."""
    threads = replayed_threads(trainer)
    if threads is not None:
        return threads
    return used_us / busy_us if busy_us > 0 else 1.0


def _device_us(view: TrainerView, replay_us: float | None) -> float:
    """Return the device time of a step that may overlap the training thread; 0 if not measured."""
    parts = None if view.budget is None else view.budget.device
    if parts is None:
        return 0.0
    return sum(part.us for part in parts if part.name != WAIT) if replay_us is None else replay_us


def _cell(column: Sequence[int | None], step: MeasuredStep) -> int | None:
    """Return a step's cell. Columns are empty if an observed run did not measure them."""
    return column[step.row] if column and step.row is not None else None


def _pass_costs(session: Session, trainer: Trainer, loader: LoaderFacts) -> PassCosts | None:
    """Return the cost of beginning and ending a pass, without workers' first batches; None without workers."""
    passes = [one for one in trainer.passes if one.loader == loader.number and not is_here(trainer, one)]
    if not passes:
        return None
    new = [one for one in passes if one.epoch == 0]
    new = new[1:] or new  # the very first pass also loads and compiles code
    fork = _mean((one.ready - one.start) / len(one.workers) for one in new)
    ends = [one for one, following in pairwise(passes) if following.epoch == 0]
    return PassCosts(
        fork=fork,
        begin=_mean(_begins(session, trainer, new, fork)),
        resume=_mean(one.ready - one.start for one in passes if one.epoch > 0),
        shut_down=_mean(one.last / len(one.workers) for one in ends if one.last is not None),
        first_wait=0.0,
        first_compute=0.0,
        iterates=loader.facts.get("iterable") is True,
    )


def _draws(trainer: Trainer, batches: Iterable[ReceivedBatch]) -> Iterator[float]:
    """Yield the time of each `next()` besides waiting, unpickling and pinning. It may include a wait for the GIL."""
    gets = trainer.gets
    for row, made in batches:
        start, end = gets.start[row], gets.start[row] + gets.duration[row]
        if made is not None and made.maker.worker is None:
            yield made.maker.batches.start[made.row] - start
            continue
        pin_start, pin = gets.pin_start[row], gets.pin[row]
        pinned = start if pin_start is None or pin is None else pin_start + pin
        yield end - max(start, pinned, gets.arrived[row] or start)


def _begins(session: Session, trainer: Trainer, new: Sequence[TrainerPass], fork: float) -> Iterator[float]:
    """Yield the time from each worker's start until it took up its first batch.

    Workers are started one after another. The index is available by then, so the time covers worker_init_fn, and the
    copy of a large dataset.
    """
    makers = {(one.host, one.pid): one for one in session.makers if one.worker is not None}
    for one in new:
        for place, pid in enumerate(one.workers):
            maker = makers.get((trainer.host, pid))
            begun = None if maker is None else min(maker.batches.start, default=maker.begun)
            if begun is not None:
                yield max(begun - one.start - (place + 1) * fork, 0.0)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else 0.0
