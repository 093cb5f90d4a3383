"""How the batches of each DataLoader were made: by which stages, how busily, on how many cores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from headrace.doctor.measure.batches import (
    Finder,
    Join,
    MadeBatch,
    costs,
    line_parts,
    made_us,
    slow_samples,
    stage_parts,
)
from headrace.doctor.measure.diagnosis import LoaderProduction
from headrace.doctor.measure.own_loaders import feed_makings, threads_of
from headrace.doctor.measure.steps import MeasuredTraining, TimeSpan, pass_of, whole_fact
from headrace.doctor.measure.waits import is_here
from headrace.doctor.session.model import LoaderFacts, Trainer, TrainerPass


def makings(training: MeasuredTraining, join: Join) -> list[LoaderProduction]:
    """Of the loaders that made batches in the measured steps: those that steps waited for first, and the busiest first
    of these."""
    ends = _last_ends(training.trainer)
    found = [_production(training, join, loader, ends) for loader in training.trainer.loaders]
    fed = fed_loaders(training)
    made = [*(one for one in found if one is not None), *feed_makings(training)]
    return sorted(made, key=lambda one: (one.loader not in fed, -one.batches * one.batch_us))


def fed_loaders(training: MeasuredTraining) -> set[int]:
    """Loaders whose batches measured steps waited for, and not only an evaluation."""
    passes, numbers = pass_of(training.trainer), training.trainer.gets.pass_
    return {one.loader for row in training.gets if (one := passes.get(numbers[row])) is not None}


def _production(
    training: MeasuredTraining, join: Join, loader: LoaderFacts, ends: dict[int, int]
) -> LoaderProduction | None:
    trainer = training.trainer
    passes = [one for one in trainer.passes if one.loader == loader.number and one.start < training.until]
    finders = {one.number: join.finder(trainer, one) for one in passes}
    stretches = {one.number: stretch for one in passes if (stretch := _stretch(training, one, ends)) is not None}
    made = {number: _made_in(stretch, finders[number]) for number, stretch in stretches.items()}
    all_made = [one for of_pass in made.values() for one in of_pass]
    if not all_made:
        return None
    makers = list({id(one.maker): one.maker for one in all_made}.values())
    size = whole_fact(loader.facts, "batch_size")
    sums = costs(all_made, size)
    batch_us = fmean(made_us(maker, row) for maker, row in all_made)
    time = sum(stretch.end - stretch.start for stretch in stretches.values())
    threads = threads_of(loader)
    workers = threads or max(len(one.workers) for one in passes)
    in_all = sum(_in_all(of_pass, finders[number]) for number, of_pass in made.items())
    return LoaderProduction(
        trainer=trainer.pid,
        loader=loader.number,
        workers=0 if is_here(trainer, passes[-1]) and not threads else workers,
        batches=len(all_made),
        busy=min(1.0, in_all * batch_us / (time * workers)),
        cores=in_all * sums.cpu / sums.batches / time,
        batch_us=batch_us,
        stages=stage_parts(sums),
        lines=line_parts(makers),
        slow=slow_samples(makers, all_made, size),
        start_up_us=fmean(one.ready - one.start for one in passes),
        first_batch_us=_first_batch_us(trainer, passes),
        passes=len(passes),
        respawned=not is_here(trainer, passes[0]) and any(one.workers != passes[0].workers for one in passes),
        threads=threads > 0,
    )


def _last_ends(trainer: Trainer) -> dict[int, int]:
    """When the last batch of each pass was received."""
    ends: dict[int, int] = {}
    for gets in (trainer.gets, trainer.fetches):
        for number, start, duration in zip(gets.pass_, gets.start, gets.duration, strict=True):
            ends[number] = max(ends.get(number, 0), start + duration)
    return ends


def _stretch(training: MeasuredTraining, one: TrainerPass, ends: dict[int, int]) -> TimeSpan | None:
    """When a pass's makers had work to do, within the measured steps: from its start to its last batch's arrival."""
    if one.number not in ends or not training.steps:
        return None
    start, end = max(one.start, training.steps[0].start), min(ends[one.number], training.steps[-1].end)
    return TimeSpan("pass", start, end) if end > start else None


def _made_in(stretch: TimeSpan, finder: Finder) -> list[MadeBatch]:
    return [made for made in finder.batches() if stretch.start <= made.maker.batches.fetched[made.row] <= stretch.end]


def _in_all(made: Sequence[MadeBatch], finder: Finder) -> int:
    """Batches that were made, those that were thinned out included: indices follow one another."""
    if not finder.is_thinned or not made:
        return len(made)
    indices = [maker.batches.index[row] for maker, row in made]
    return max(indices) - min(indices) + 1


def _first_batch_us(trainer: Trainer, passes: Iterable[TrainerPass]) -> float | None:
    """Mean duration of the next() that gave a pass's first batch."""
    numbers = {one.number for one in passes}
    first = [
        duration
        for gets in (trainer.gets, trainer.fetches)
        for number, index, duration in zip(gets.pass_, gets.index, gets.duration, strict=True)
        if index == 0 and number in numbers
    ]
    return fmean(first) if first else None
