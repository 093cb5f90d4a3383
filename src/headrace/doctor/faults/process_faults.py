"""Faults of workers: they draw the same numbers, or make the same samples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from ..session.after_run import DataFault
from ..session.model import Session
from ..session.producers import BatchProducer, FirstBatch
from ..session.trainers import Trainer, TrainerPass
from .fault_kinds import KINDS

_BATCHES = 2
"""Number of first batches that each process digests, and that a proof needs."""
_LEAST_ROWS = 4
"""Minimum number of distinct rows in each batch: equal constants prove nothing."""


class _FirstOfPass(NamedTuple):
    """First batches that one process made in one pass that feeds training."""

    trainer: Trainer
    pass_: TrainerPass
    maker: BatchProducer
    batches: list[FirstBatch]

    @property
    def loader(self) -> tuple[int, int]:
        """Rank, and number of the loader there."""
        return self.trainer.rank, self.pass_.loader


def same_draws(session: Session) -> Iterator[DataFault]:
    """Yield generators that draw the same in two workers of a pass, or in one worker of two passes."""
    found: set[tuple[int, str]] = set()
    firsts = list(_first_of_passes(session))
    random = {each.loader for each in firsts if any(look.same is False for look in each.maker.looks)}
    workers = [each for each in firsts if each.loader in random and each.maker.worker is not None]
    for one, other in combinations(workers, 2):
        worker, number = one.maker.worker, one.pass_.number
        is_again = one.pass_ is not other.pass_
        if one.loader != other.loader or (is_again and worker != other.maker.worker):
            continue
        who = f"Workers {worker} and {other.maker.worker} of pass {number}"
        if is_again:
            who = f"Worker {worker} in pass {number} and worker {worker} in pass {other.pass_.number}"
        for name in _generators_alike(one.batches, other.batches):
            if (one.pass_.loader, name) not in found:
                found.add((one.pass_.loader, name))
                yield KINDS["same-draws"].found(who=who, generator=name)


def _generators_alike(one: list[FirstBatch], other: list[FirstBatch]) -> Iterator[str]:
    """Yield generators with equal states around the first batch of two workers, and which each batch moves."""
    others = {name: (before, after) for name, before, after in other[0].generators}
    seconds = {name: after for name, _, after in one[1].generators}
    for name, before, after in one[0].generators:
        if others.get(name) == (before, after) and before != after and seconds.get(name) not in (None, before, after):
            yield name


def worker_duplicates(session: Session) -> Iterator[DataFault]:
    """Yield a pass over an iterable dataset in which two workers make the same samples."""
    for one, other in combinations(_first_of_passes(session), 2):
        is_stream = all(batch.keys is None for batch in one.batches)
        if is_stream and one.trainer is other.trainer and one.pass_ is other.pass_ and _are_equal(one, other):
            who = f"{one.maker.worker} and {other.maker.worker}"
            yield KINDS["worker-duplicates"].found(who=who, number=one.pass_.number)
            return


def _are_equal(one: _FirstOfPass, other: _FirstOfPass) -> bool:
    """Return True if all values of two processes are equal, and tell their samples apart."""
    pairs = list(zip(one.batches, other.batches, strict=True))
    if not all(digest for each in one.batches for _, digest, _ in each.leaves):
        return False
    digests = [{path: digest for path, digest, rows in each.leaves if rows >= _LEAST_ROWS} for each in one.batches]
    is_telling = any(digests[1].get(path, digest) != digest for path, digest in digests[0].items())
    return is_telling and all((first.keys, first.leaves) == (second.keys, second.leaves) for first, second in pairs)


def _first_of_passes(session: Session) -> Iterator[_FirstOfPass]:
    """Yield the first batches of each process in each pass that feeds training."""
    for trainer in session.trainers:
        feeding = set(trainer.gets.pass_)
        makers = {maker.pid: maker for maker in session.makers if maker.host == trainer.host}
        for pass_ in trainer.passes:
            for maker in (makers[pid] for pid in pass_.workers if pid in makers and pass_.number in feeding):
                batches = [each for each in maker.first if each.epoch == pass_.epoch]
                if len(batches) == _BATCHES:
                    yield _FirstOfPass(trainer, pass_, maker, batches)
