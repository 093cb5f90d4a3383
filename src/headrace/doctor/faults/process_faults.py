"""Faults of workers and ranks: they draw the same numbers, or use the same samples."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple, TypeAlias

from headrace.doctor.explain.look import Look
from headrace.doctor.faults.fault_kinds import Explained, FaultKind
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import (
    BatchProducer,
    FirstBatch,
    Trainer,
    TrainerPass,
)

FIRST_BATCHES = 2
"""Number of first batches that each process digests, and that a proof needs."""
_LEAST_ROWS = 4
"""Minimum number of distinct rows in each batch: equal constants prove nothing."""


Counted: TypeAlias = tuple[int, FirstBatch]
"""Batch after the number of its samples."""


class FirstOfPass(NamedTuple):
    """First batches that one process made in one pass."""

    trainer: Trainer
    pass_: TrainerPass
    maker: BatchProducer
    batches: list[FirstBatch]

    @property
    def loader(self) -> tuple[int, int]:
        """Rank, and number of the loader there."""
        return self.trainer.rank, self.pass_.loader

    @property
    def place(self) -> str:
        """Line of the script that iterates over the loader."""
        return loader_place(self.trainer, self.pass_.loader)

    @property
    def counted(self) -> list[Counted]:
        """Batches after the number of their samples, which is 0 if unknown."""
        made = self.maker.batches
        known = dict(zip(zip(made.epoch, made.index, strict=True), made.samples, strict=True))
        return [(known.get((batch.epoch, batch.index)) or 0, batch) for batch in self.batches]


SAME_DRAWS = FaultKind(
    "same-draws",
    "{who} drew the same numbers from {generator}: the states before and after their first batches are equal, "
    "and samples differ when they are made again.",
    "Seed it in worker_init_fn by torch.utils.data.get_worker_info().seed, which differs by worker and epoch; "
    "DataLoader itself seeds the global generators of torch, Python, and numpy (since torch 1.9) so.",
    "equal states of a random generator before and after the first batch of two workers, or of one worker in "
    "two passes; each batch moves it, and samples differ when they are made again. Of a stream, the second batch, and "
    "draws after a sample's file is opened, which change a leaf and leave another that tells samples apart",
)


def same_draws(session: Session) -> Iterator[DataFault]:
    """Yield generators that draw the same in two workers of a pass, or in one worker of two passes."""
    yield from _same_draws([one for one in first_of_passes(session) if one.batches[0].keys is not None])


def same_draws_of_streams(session: Session, look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield the same for a stream that was looked at, of generators whose draws change a sample, and not which it is.

    Workers may shuffle alike if each takes its own part: then other draws change all that tells samples apart.
    """
    values = {path: {repr(each.leaves[path].value) for each in look.samples} for path in explained}
    is_told = any(len(values[path]) > 1 and not one.is_random for path, one in explained.items())
    if is_told and any(one.is_random for one in explained.values()):
        firsts = [one for one in first_of_passes(session) if look.loader in (None, one.pass_.loader)]
        yield from _same_draws([one for one in firsts if one.batches[0].keys is None], look.drawn)


def _same_draws(firsts: Sequence[FirstOfPass], names: Container[str] | None = None) -> Iterator[DataFault]:
    found: dict[tuple[int, int], tuple[str, str, list[str]]] = {}
    workers = [each for each in firsts if each.maker.worker is not None]
    for one, other in combinations(workers, 2):
        worker, number = one.maker.worker, one.pass_.number
        is_again = one.pass_ is not other.pass_
        if one.loader != other.loader or (is_again and worker != other.maker.worker):
            continue
        who = f"Workers {worker} and {other.maker.worker} of pass {number}"
        if is_again:
            who = f"Worker {worker} in pass {number} and worker {worker} in pass {other.pass_.number}"
        if alike := list(_generators_alike(one.batches, other.batches, names)):
            drawn = found.setdefault(one.loader, (who, one.place, []))[-1]
            drawn += [name for name in alike if name not in drawn]
    for who, place, drawn in found.values():
        yield SAME_DRAWS.found(who=who, generator=", ".join(drawn), place=place)


def _generators_alike(one: list[FirstBatch], other: list[FirstBatch], names: Container[str] | None) -> Iterator[str]:
    """Yield generators with equal states around a batch of two workers, and which each batch moves.

    Or those of `names`: a stream makes some for its first batch, so that their states are known before its second.
    """
    place = 0 if names is None else 1
    others = {name: (before, after) for name, before, after in other[place].generators}
    seconds = {name: after for name, _, after in one[1].generators}
    for name, before, after in one[place].generators:
        is_drawn = seconds.get(name) not in (None, before, after) if names is None else name in names
        if others.get(name) == (before, after) and before != after and is_drawn:
            yield name


SHARED_SAMPLES = FaultKind(
    "shared-samples",
    "Ranks {who} train on the same samples: {how}.",
    "Pass sampler=DistributedSampler(dataset) to the DataLoader, and call set_epoch; split an iterable dataset "
    "by rank and worker.",
    "two ranks of DistributedDataParallel take the same keys in a pass, from a sampler that knows no ranks, or nine in "
    "ten rows of a stream; or two inputs of their models are equal, and rows differ from each other",
)


def shared_samples(session: Session) -> Iterator[DataFault]:
    """Yield ranks of one data-parallel model that train on the same inputs."""
    facts = {trainer.rank: session.process_facts(trainer).get("facts", {}) for trainer in session.trainers}
    inputs = {rank: one["replica_inputs"] for rank, one in facts.items() if "replica_inputs" in one}
    for first in inputs:
        alike = [rank for rank in inputs if rank >= first and inputs[rank] == inputs[first]]
        if len(alike) > 1 and _is_telling(inputs[first]):
            how = "all values in the first rows of their models' first two inputs are equal"
            yield SHARED_SAMPLES.found(who=", ".join(map(str, alike)), how=how)
            return


def _is_telling(batches: Sequence[Sequence[tuple[str, str, int]]]) -> bool:
    """Return True if the leaves of two batches are complete, and identify their samples."""
    if not all(digest for leaves in batches for _, digest, _ in leaves):
        return False
    first, second = ({path: digest for path, digest, rows in leaves if rows >= _LEAST_ROWS} for leaves in batches)
    return any(second.get(path, digest) != digest for path, digest in first.items())


def first_of_passes(session: Session, least: int = FIRST_BATCHES, *, feeds: bool = True) -> Iterator[FirstOfPass]:
    """Yield the first batches, at least `least`, of each process in each pass that feeds training.

    With `feeds` False, of each evaluation: a pass of the training thread, begun after training, that feeds no step.
    """
    for trainer in session.trainers:
        feeding = passes_that_feed(trainer)
        evaluated = set() if feeds else _evaluations(session, trainer, feeding)
        makers = {maker.pid: maker for maker in session.makers if maker.host == trainer.host}
        for pass_ in trainer.passes:
            is_sought = pass_.number in feeding if feeds else pass_.number in evaluated
            for maker in (makers[pid] for pid in pass_.workers if pid in makers and is_sought):
                batches = [each for each in maker.first if each.epoch == pass_.epoch]
                if len(batches) >= least:
                    yield FirstOfPass(trainer, pass_, maker, batches)


def files_of_samples(firsts: Sequence[FirstOfPass]) -> dict[str, set[str]]:
    """Return the files that processes opened, by suffix, if there are as many as samples: then each has its own."""
    found, count = defaultdict[str, set[str]](set), 0
    for samples, batch in chain.from_iterable(one.counted for one in firsts):
        count += samples
        for path in batch.files:
            found[os.path.splitext(path)[1]].add(path)
    return {suffix: files for suffix, files in found.items() if len(files) == count}


def passes_that_feed(trainer: Trainer) -> set[int]:
    """Return the numbers of the passes that feed optimizer steps. A pass after the last step is an evaluation."""
    last = max(trainer.steps.end, default=0)
    return {number for number, start in zip(trainer.gets.pass_, trainer.gets.start, strict=True) if start < last}


def _evaluations(session: Session, trainer: Trainer, feeding: set[int]) -> set[int]:
    """Return the passes that began after training, and feed no step. Other threads may feed steps unseen."""
    begun = min((one.start for one in trainer.passes if one.number in feeding), default=0)
    is_seen = not any(note.code == "thread" and note.pid == trainer.pid for note in session.notes)
    later = [one for one in trainer.passes if one.start > begun and one.number not in feeding]
    fetched = set(trainer.fetches.pass_)
    return {one.number for one in later if one.with_grad is False or (is_seen and one.number in fetched)}


def loader_place(trainer: Trainer, number: int) -> str:
    """Return where the script iterates over a loader."""
    facts = loader_facts(trainer, number)
    return f"{facts.get('file')}:{facts.get('line')}"


def loader_facts(trainer: Trainer, number: int) -> Mapping[str, Any]:
    """Return the facts of a loader; empty if none are known."""
    return next((loader.facts for loader in trainer.loaders if loader.number == number), {})
