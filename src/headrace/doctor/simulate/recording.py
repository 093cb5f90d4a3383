"""The recorded work of a session: what is left of its steps without waiting for batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from statistics import fmean, median

import numpy as np

from ..measure import (
    PREFETCH,
    REPLAY,
    WAIT,
    Diagnosis,
    HostCores,
    Join,
    MadeBatch,
    MeasuredStep,
    MeasuredTraining,
    device_parts,
    evaluation_us,
    is_here,
    training,
    whole_fact,
    window_steps,
    window_us,
    with_loaders_as_one,
)
from ..session.model import BatchProducer, LoaderFacts, Session, Trainer, TrainerPass
from .batch_work import (
    SEVERAL,
    FirstBatches,
    ReceivedBatch,
    Receiving,
    batch_columns,
    cores_asked,
    first_batch,
    main_loader,
    making_threads,
    received,
    without_barriers,
)
from .prediction import fitted
from .work import PASSES, UNFITTED, Column, FeedSetup, PassCosts, RecordedRun, StepColumns

__all__ = ["RecordedRun", "recorded"]


NOISE = 0.1
"""Threads, by which the noise of two clocks makes one of them more than it is."""


@dataclass(frozen=True)
class Computing:
    """Work of the training thread."""

    steps: StepColumns
    team: int
    """Threads that compute together."""
    is_measured: bool
    """Whether its CPU time was; else all its time counts as computing."""


@dataclass(frozen=True)
class MadeHere:
    """Work of the training thread for batches, by step, which is no part of computing."""

    cpu: Column
    delay: Column
    """Time that it waited for a core meanwhile."""


def replay_us(training: MeasuredTraining) -> float | None:
    """Return the mean step on cached batches; None where nothing was replayed."""
    evaluation = fmean(evaluation_us(step) for step in training.steps)
    return window_us(training.trainer, REPLAY, evaluation)


def computing(
    training: MeasuredTraining, loader: LoaderFacts, making: MadeHere, peers_us: float, *, pool: int
) -> Computing:
    """Return what is left of the steps without waiting for batches.

    Args:
        training: The measured trainer.
        loader: The loader that its steps wait for.
        making: What the trainer spent on batches that it made itself, and on unpickling.
        peers_us: How long it waits in a step for other ranks that wait for data themselves.
        pool: Threads of the trainer that share what it computes, where no device does that.
    """
    busy = np.array([_busy(training.trainer, step, loader) for step in training.steps], dtype=np.float64)
    gets = np.array([len(_own_gets(training.trainer, step, loader)) for step in training.steps])
    busy = np.maximum(busy - peers_us, 0.0)
    used, device = _used(training, making.cpu), np.full_like(busy, _device_us(training))
    if used is None:
        return Computing(_as_replayed(training, StepColumns(gets, busy, np.zeros_like(busy), device)), 1, False)
    delays = np.array([float(_cell(training.trainer.steps.delay, step) or 0) for step in training.steps])
    busy = np.maximum(busy - np.maximum(delays - making.delay, 0.0), np.minimum(used, busy))
    threads = _threads(training, float(used.sum()), float(busy.sum()))
    team = max(pool, ceil(threads - NOISE), 1)
    compute = np.minimum(busy * min(threads / team, 1.0) if team > 1 else used, busy)
    return Computing(_as_replayed(training, StepColumns(gets, compute, busy - compute, device)), team, True)


def _threads(training: MeasuredTraining, used_us: float, busy_us: float) -> float:
    """Return the threads that compute at once.

    They are those of the median replayed step, which nothing took cores from, else of the mean observed one.
    """
    replayed = [
        cpu / step.duration
        for step in window_steps(training.trainer, REPLAY)
        if not step.gets and step.duration and (cpu := _cell(training.trainer.steps.cpu, step)) is not None
    ]
    if replayed:
        return median(replayed)
    return used_us / busy_us if busy_us > 0 else 1.0


def _as_replayed(training: MeasuredTraining, steps: StepColumns) -> StepColumns:
    """Scale steps to those that were replayed, which nothing kept from their cores; not where a device runs on."""
    replayed, own = replay_us(training), float((steps.compute + steps.wait).mean())
    if replayed is None or steps.device.any() or own <= 0:
        return steps
    return replace(steps, compute=steps.compute * replayed / own, wait=steps.wait * replayed / own)


def _device_us(training: MeasuredTraining) -> float:
    """Return a step of the device's, where that was measured, and so may run on while the training thread does; else 0.

    It is that of the replayed steps, else of the observed ones less the time for which it stood still for want of a
    batch.
    """
    parts = device_parts(training)
    if parts is None:
        return 0.0
    replayed = replay_us(training)
    return sum(part.us for part in parts if part.name != WAIT) if replayed is None else replayed


def _own_gets(trainer: Trainer, step: MeasuredStep, loader: LoaderFacts) -> list[int]:
    numbers = {one.number for one in trainer.passes if one.loader == loader.number}
    return [row for row in step.gets if trainer.gets.pass_[row] in numbers]


def _busy(trainer: Trainer, step: MeasuredStep, loader: LoaderFacts) -> int:
    """Return a step's time without its waits for the loader."""
    waited = sum(trainer.gets.duration[row] for row in _own_gets(trainer, step, loader))
    for one in trainer.passes:
        if one.loader != loader.number:
            continue
        if step.start <= one.start < step.end:
            waited += one.ready - one.start
        if one.last is not None and one.last_start is not None and step.start <= one.last_start < step.end:
            waited += one.last
    return max(step.duration - waited, 0)


def _used(training: MeasuredTraining, making: Column) -> Column | None:
    """Return the CPU time of steps without making batches; None where it was not measured in all of them."""
    used = [_cell(training.trainer.steps.cpu, step) for step in training.steps]
    known = [us for us in used if us is not None]
    return np.maximum(np.array(known) - making, 0.0) if known and len(known) == len(used) else None


def _cell(column: Sequence[int | None], step: MeasuredStep) -> int | None:
    """Return a step's cell. Columns are empty where an earlier doctor, or one that only observed, measured none."""
    return column[step.row] if column and step.row is not None else None


def pass_costs(session: Session, trainer: Trainer, loader: LoaderFacts) -> PassCosts | None:
    """Return what beginning and ending a pass costs; None without workers.

    What the first batch of a worker takes more is not known here.
    """
    passes = [one for one in trainer.passes if one.loader == loader.number and not is_here(trainer, one)]
    if not passes:
        return None
    new = [one for one in passes if one.epoch == 0]
    new = new[1:] or new  # the very first loads and compiles what the later ones find
    fork = fmean((one.ready - one.start) / len(one.workers) for one in new) if new else 0.0
    return PassCosts(
        fork=fork,
        begin=_mean(_begins(session, trainer, new, fork)),
        resume=_mean(one.ready - one.start for one in passes if one.epoch > 0),
        shut_down=_mean(_shut_downs(passes)),
        first_wait=0.0,
        first_compute=0.0,
        iterates=loader.facts.get("iterable") is True,
    )


def draw_us(trainer: Trainer, batches: Sequence[ReceivedBatch]) -> float:
    """Return what `next()` takes besides waiting, unpickling and pinning.

    It is the median, since a wait for the interpreter's lock may fall into it.
    """
    return median(max(us, 0) for us in _draws(trainer, batches)) if batches else 0.0


def _draws(trainer: Trainer, batches: Iterable[ReceivedBatch]) -> Iterator[float]:
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
    """Yield the time from each worker's start until it took its first batch up.

    Workers are started one after another. The index lies there by then, and worker_init_fn, or the copy of a large
    dataset, comes before that.
    """
    makers = {(one.host, one.pid): one for one in session.makers if one.worker is not None}
    for one in new:
        for place, pid in enumerate(one.workers):
            maker: BatchProducer | None = makers.get((trainer.host, pid))
            begun = None if maker is None else min(maker.batches.start, default=maker.begun)
            if begun is not None:
                yield max(begun - one.start - (place + 1) * fork, 0.0)


def _shut_downs(passes: Sequence[TrainerPass]) -> Iterator[float]:
    """Yield the time to end each worker, of the passes whose workers ended with them."""
    for one, following in pairwise(passes):
        if one.last is not None and following.epoch == 0:
            yield one.last / len(one.workers)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else 0.0


def recorded(session: Session, diagnosis: Diagnosis) -> RecordedRun | None:
    """Return the recorded work of a session.

    None where there is nothing to simulate: no measured step, no DataLoader that it waited for, or no record of the
    batches' making.
    """
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
    return _run_of(session, measured, loader, batches, _peers_us(diagnosis, trainer))


def _main(session: Session, diagnosis: Diagnosis) -> Trainer | None:
    """Return the trainer that waited longest, of those of which there is a budget."""
    budgets = [one for one in diagnosis.budgets if one.unit == "step"] or diagnosis.budgets
    longest = max(budgets, key=lambda one: one.share("data wait") * one.mean_us * one.steps, default=None)
    if longest is None:
        return None
    return next((one for one in session.trainers if (one.pid, one.rank) == (longest.pid, longest.rank)), None)


def _peers_us(diagnosis: Diagnosis, trainer: Trainer) -> float:
    """Return how long a step waits for other ranks that wait for data themselves: they are fed faster, too."""
    own = next((one for one in diagnosis.ranks if (one.pid, one.rank) == (trainer.pid, trainer.rank)), None)
    others = [one.data_wait_us for one in diagnosis.ranks if one is not own]
    if own is None or own.peer_wait_us is None:
        return 0.0
    return min(own.peer_wait_us, max(others, default=0.0))


def _run_of(
    session: Session, measured: MeasuredTraining, loader: LoaderFacts, batches: list[ReceivedBatch], peers_us: float
) -> RecordedRun:
    trainer = measured.trainer
    cores = HostCores.of(session, trainer)
    receiving = Receiving(trainer, batches)
    is_iterable = loader.facts.get("iterable") is True
    makers = whole_fact(loader.facts, "num_workers") or 0
    apart = FirstBatches.of(batches, workers=makers, iterates=is_iterable)
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
    found = RecordedRun(
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
        batch_bytes=_mean(size for one in batches if (size := trainer.gets.bytes[one.row]) is not None),
        fit=UNFITTED,
        assumed=frozenset(assumed),
    )
    return fitted(found)


def _setup(measured: MeasuredTraining, loader: LoaderFacts, cores: HostCores, threads: float) -> FeedSetup:
    facts = loader.facts
    return FeedSetup(
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


def _pass_batches(trainer: Trainer, loader: LoaderFacts) -> int | None:
    """Return the batches of a pass: the loader's length, else those of its longest pass that came to its end."""
    length = whole_fact(loader.facts, "length")
    if length is not None and length > 0:
        return length
    ended = {one.number for one in trainer.passes if one.loader == loader.number and one.last is not None}
    gets = zip(trainer.gets.pass_, trainer.gets.index, strict=True)
    return max((index + 1 for number, index in gets if number in ended), default=None)


def _made_here(measured: MeasuredTraining, batches: list[ReceivedBatch], receiving: Receiving) -> MadeHere:
    made = {one.row: one.made for one in batches}
    rows = [
        [_used_here(measured.trainer, row, made.get(row), receiving) for row in step.gets] for step in measured.steps
    ]
    cpu, delay = ([float(sum(row[place] for row in step)) for step in rows] for place in (0, 1))
    return MadeHere(np.array(cpu), np.array(delay))


def _used_here(trainer: Trainer, row: int, made: MadeBatch | None, receiving: Receiving) -> tuple[float, float]:
    """Return CPU time and delay of a batch in the trainer: of unpickling where it came from elsewhere."""
    if made is None or made.maker.worker is not None:
        return receiving.computing(row) + float(trainer.gets.pin[row] or 0), receiving.delay(row)
    cpu, delay = made.maker.batches.cpu, made.maker.batches.delay
    return float((cpu[made.row] if cpu else None) or 0), float((delay[made.row] if delay else None) or 0)
