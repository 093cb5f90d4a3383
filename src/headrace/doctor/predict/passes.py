"""What beginning and ending a pass costs, and drawing indices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median

from headrace.doctor.measure.waits import is_here
from headrace.doctor.predict.received import Received
from headrace.doctor.predict.work import PassCosts
from headrace.doctor.session.model import Loader, Maker, Pass, Session, Trainer


def pass_costs(session: Session, trainer: Trainer, loader: Loader) -> PassCosts | None:
    """Of a loader with workers; None without. What the first batch of a worker takes more is not known here."""
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


def draw_us(trainer: Trainer, batches: Sequence[Received]) -> float:
    """What `next()` takes beside waiting, unpickling and pinning: the median, since a wait for the interpreter's lock
    may fall into it."""
    return median(max(us, 0) for us in _draws(trainer, batches)) if batches else 0.0


def _draws(trainer: Trainer, batches: Iterable[Received]) -> Iterator[float]:
    gets = trainer.gets
    for row, made in batches:
        start, end = gets.start[row], gets.start[row] + gets.duration[row]
        if made is not None and made.maker.worker is None:
            yield made.maker.batches.start[made.row] - start
            continue
        pin_start, pin = gets.pin_start[row], gets.pin[row]
        pinned = start if pin_start is None or pin is None else pin_start + pin
        yield end - max(start, pinned, gets.arrived[row] or start)


def _begins(session: Session, trainer: Trainer, new: Sequence[Pass], fork: float) -> Iterator[float]:
    """From when each worker had been started, which they are one after another, until it took its first batch up: its
    index lies there by then, and worker_init_fn, or the copy of a large dataset, comes before that."""
    makers = {(one.host, one.pid): one for one in session.makers if one.worker is not None}
    for one in new:
        for place, pid in enumerate(one.workers):
            maker: Maker | None = makers.get((trainer.host, pid))
            begun = None if maker is None else min(maker.batches.start, default=maker.begun)
            if begun is not None:
                yield max(begun - one.start - (place + 1) * fork, 0.0)


def _shut_downs(passes: Sequence[Pass]) -> Iterator[float]:
    """For each worker, of the passes whose workers ended with them."""
    for one, following in pairwise(passes):
        if one.last is not None and following.epoch == 0:
            yield one.last / len(one.workers)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else 0.0
