"""Faults of whole passes, by their keys: what ranks, workers and epochs read, whatever augmentation makes of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

from headrace.doctor.faults.evaluation_faults import LEAKED_SPLIT
from headrace.doctor.faults.fault_kinds import INTENDED, FaultKind
from headrace.doctor.faults.process_faults import (
    FIRST_BATCHES,
    SHARED_SAMPLES,
    FirstOfPass,
    files_of_samples,
    first_of_passes,
    loader_facts,
    loader_place,
)
from headrace.doctor.faults.sample_faults import CLASS_ORDER, class_runs
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import PassKeys, Trainer, TrainerPass, order_described, short_class

_LEAST_KEYS = 8
"""Minimum number of samples whose order or set means anything: 8 have 40,320 orders."""
_LEAST_ROWS = 16
"""The same for digested rows of a stream."""
_SHARED = 0.9
"""Minimum share of common samples; DistributedSampler repeats fewer to fill up its ranks."""
_PLAIN = ("RandomSampler", "SequentialSampler")
"""Samplers that know nothing of ranks."""
_DISTINCT = 0.5
"""Minimum share of different rows that tell samples apart."""


class KeyedPass(NamedTuple):
    """Pass of a rank, and its keys."""

    trainer: Trainer
    pass_: TrainerPass
    keys: PassKeys

    @property
    def facts(self) -> Mapping[str, Any]:
        return loader_facts(self.trainer, self.pass_.loader)

    @property
    def described(self) -> Mapping[str, Any]:
        """Description of its loader."""
        return self.facts.get("described") or {}

    @property
    def made(self) -> str:
        """Line that makes its loader; scripts may make one in each epoch."""
        return str(self.facts.get("made"))

    @property
    def ordinal(self) -> int | None:
        """Number of its loader among all that the process made."""
        return self.facts.get("ordinal")

    @property
    def place(self) -> str:
        """Line of the script that iterates over its loader."""
        return loader_place(self.trainer, self.pass_.loader)


def keyed_passes(session: Session) -> list[KeyedPass]:
    """Return the passes whose keys were followed, by rank and time."""
    found = []
    for trainer in session.trainers:
        passes = {one.number: one for one in trainer.passes}
        found += [KeyedPass(trainer, passes[keys.pass_], keys) for keys in trainer.keys if keys.pass_ in passes]
    return found


SAME_ORDER = FaultKind(
    "same-order",
    "{what}: epochs have the same order.",
    "Call loader.sampler.set_epoch(epoch) at the start of each epoch; seed generators once, before the first.",
    "two passes of a sampler that draws its order have the same keys in the same order; `unless intended` unless it is "
    "a DistributedSampler",
)


def same_order(session: Session) -> Iterator[DataFault]:
    """Yield loaders that draw their order, and draw the same whole one in two passes."""
    found: set[str] = set()
    for one, other in combinations(keyed_passes(session), 2):
        is_again = one.trainer is other.trainer and one.made == other.made and one.keys.feeds and other.keys.feeds
        if not is_again or one.made in found or min(one.keys.count, other.keys.count) < _LEAST_KEYS:
            continue
        if one.keys.order == other.keys.order and _draws_order(one.described):
            found.add(one.made)
            numbers = f"{one.pass_.number} and {other.pass_.number}"
            what = f"All {one.keys.count:,} samples of passes {numbers} come in the same random order"
            is_forgotten = short_class(order_described(one.described)) == "DistributedSampler"
            certainty = "certain" if is_forgotten else INTENDED
            yield SAME_ORDER.found(certainty=certainty, what=what, place=one.place)


def _draws_order(described: Mapping[str, Any]) -> bool:
    """Return True for a described sampler that draws an order without repeating samples."""
    sampler = order_described(described)
    name, options = short_class(sampler), sampler.get("attributes") or {}
    if name in ("RandomSampler", "SubsetRandomSampler"):
        return not options.get("replacement")
    return options.get("shuffle") is True


def shared_keys(session: Session) -> Iterator[DataFault]:
    """Yield ranks of one data-parallel model whose passes hold the same samples, by keys or by the rows of streams."""
    for one, other in combinations(_firsts_of_replicas(session), 2):
        what = ""
        if min(one.keys.count, other.keys.count) >= _LEAST_KEYS:
            is_told = one.keys.is_distinct and not _knows_ranks(one, other)
            share = _common(one.keys.least, other.keys.least) if is_told else 0.0
            what = f"{one.keys.count:,} keys of a pass"
        else:
            rows = [rows_of(each.trainer, each.pass_.number) for each in (one, other)]
            share = _shared_rows(*rows)
            what = f"{max(map(len, rows[0].values()), default=0):,} rows of a pass"
            sides = [_firsts_of(session, each) for each in (one, other)]
            if share < _SHARED and _read_alike(*sides, is_whole=bool(one.keys.is_whole and other.keys.is_whole)):
                share, what = 1.0, "files of a pass"
        if share >= _SHARED:
            who = f"{one.trainer.rank}, {other.trainer.rank}"
            how = f"{share:.0%} of the {what} are the same"
            yield SHARED_SAMPLES.found(who=who, how=how, place=one.place)
            return


def _knows_ranks(one: KeyedPass, other: KeyedPass) -> bool:
    """Return True if the order of two ranks may depend on their rank."""
    samplers = [order_described(each.described) for each in (one, other)]
    if short_class(samplers[0]) == "DistributedSampler":
        first, second = (dict(each.get("attributes") or {}).get("rank") for each in samplers)
        return first != second
    return short_class(samplers[0]) not in _PLAIN


def _firsts_of_replicas(session: Session) -> list[KeyedPass]:
    """Return the first pass that feeds training of each rank of a DistributedDataParallel model."""
    firsts: dict[int, KeyedPass] = {}
    for one in keyed_passes(session):
        if one.keys.feeds and "replica_inputs" in session.process_facts(one.trainer).get("facts", {}):
            firsts.setdefault(one.trainer.rank, one)
    return list(firsts.values())


UNEQUAL_RANKS = FaultKind(
    "unequal-ranks",
    "Ranks have unequal numbers of batches in a pass ({some}): without its join(), the longer ones wait "
    "for ever in a backward that the others do not take.",
    "Give all ranks equally many batches: DistributedSampler, drop_last=True, or equal shards.",
    "lengths of the loaders of two ranks, or whole streams of theirs, that are unequal. Always `unless intended`",
)


def unequal_ranks(session: Session) -> Iterator[DataFault]:
    """Yield ranks of one data-parallel model that take unequal numbers of batches."""
    firsts = _firsts_of_replicas(session)
    counts = {one.trainer.rank: _batches_of(one) for one in firsts}
    if len({count for count in counts.values() if count is not None}) > 1:
        some = [f"rank {rank}: {count:,}" for rank, count in counts.items() if count is not None]
        yield UNEQUAL_RANKS.found(certainty=INTENDED, some=some, place=firsts[0].place)


def _batches_of(one: KeyedPass) -> int | None:
    """Return the number of batches of a whole pass; None if unknown."""
    if one.keys.count:
        length = one.facts.get("length")
        return length if isinstance(length, int) else None
    batches = [batch for batch in one.trainer.rows if batch.pass_ == one.pass_.number]
    return len(batches) if one.keys.is_whole and batches else None


def _common(one: Collection[Hashable], other: Collection[Hashable]) -> float:
    """Return the share of common members among those of the smaller set."""
    return len(set(one) & set(other)) / max(min(len(set(one)), len(set(other))), 1)


def rows_of(trainer: Trainer, number: int) -> dict[str, list[str]]:
    """Return the digests of a pass's rows, by leaf."""
    found: dict[str, list[str]] = defaultdict(list)
    for batch in trainer.rows:
        if batch.pass_ == number:
            for path, rows in batch.leaves:
                found[path] += rows
    return found


def _shared_rows(one: Mapping[str, list[str]], other: Mapping[str, list[str]]) -> float:
    """Return the share of the rows of two sides that are the same; zero if these do not tell samples apart.

    Augmentation changes some leaves: all others, whose values both sides have, have to be the same in the same row.
    """
    most = 0.0
    both = [path for path in one.keys() & other.keys() if _common(one[path], other[path]) >= _SHARED]
    for length in {(len(one[path]), len(other[path])) for path in both}:
        joined = [path for path in both if (len(one[path]), len(other[path])) == length]
        sides = [list(zip(*(each[path] for path in joined), strict=True)) for each in (one, other)]
        if min(length) >= _LEAST_ROWS and all(len(set(rows)) >= _DISTINCT * len(rows) for rows in sides):
            most = max(most, _common(*sides))
    return most


WORKER_DUPLICATES = FaultKind(
    "worker-duplicates",
    "Workers {who} of pass {number} made the same samples of an iterable dataset: {how}.",
    "Split the samples in __iter__: islice(samples, info.id, None, info.num_workers), with "
    "info = torch.utils.data.get_worker_info().",
    "nine in ten rows of a pass over an iterable dataset come from two workers, by all leaves whose values both make, "
    "if these tell samples apart, whatever their order; or nine in ten files, each of which is read for one sample",
)


def worker_duplicates(session: Session) -> Iterator[DataFault]:
    """Yield a pass over a stream in which two workers make the same rows, in whatever order."""
    for one in keyed_passes(session):
        by_worker = _rows_by_worker(session, one)
        for (first, rows), (second, others) in combinations(sorted(by_worker.items()), 2):
            share = _shared_rows(rows, others)
            if share >= _SHARED:
                count = max(map(len, rows.values()))
                how = f"{share:.0%} of the {count:,} rows of one are among those of the other"
                who = f"{first} and {second}"
                yield WORKER_DUPLICATES.found(who=who, number=one.pass_.number, how=how, place=one.place)
                return
        for former, latter in combinations(_firsts_of(session, one), 2):
            if _read_alike([former], [latter], is_whole=bool(one.keys.is_whole)):
                who = f"{former.maker.worker} and {latter.maker.worker}"
                how = "they read the same files, one for each sample"
                yield WORKER_DUPLICATES.found(who=who, number=one.pass_.number, how=how, place=one.place)
                return


def _firsts_of(session: Session, one: KeyedPass) -> list[FirstOfPass]:
    """Return the first batches of each process in a pass over a stream."""
    firsts = first_of_passes(session, feeds=bool(one.keys.feeds))
    return [each for each in firsts if each.pass_ is one.pass_ and each.batches[0].keys is None]


def _read_alike(ones: Sequence[FirstOfPass], others: Sequence[FirstOfPass], *, is_whole: bool) -> bool:
    """Return True if two sides of a pass read the same files, one or more for each sample of the first batches.

    In a whole pass, their order may differ: then each file has to be that of one sample.
    """
    if is_whole:
        files = [files_of_samples(side) for side in (ones, others)]
        kinds = [(files[0][kind], files[1][kind]) for kind in files[0].keys() & files[1].keys()]
        if any(min(map(len, pair)) >= _LEAST_ROWS and _common(*pair) >= _SHARED for pair in kinds):
            return True
    for one, other in product(ones, others):
        firsts = [[batch.files for batch in each.batches[:FIRST_BATCHES]] for each in (one, other)]
        counted = one.counted[:FIRST_BATCHES]
        if firsts[0] == firsts[1] and all(len(set(batch.files)) >= count > 1 for count, batch in counted):
            return True
    return False


def _rows_by_worker(session: Session, one: KeyedPass) -> dict[int, dict[str, list[str]]]:
    """Return the digests of a pass's rows by worker and leaf."""
    workers = {
        (maker.pid, index): maker.worker
        for maker in session.makers
        if maker.host == one.trainer.host and maker.worker is not None and maker.pid in one.pass_.workers
        for epoch, index in zip(maker.batches.epoch, maker.batches.index, strict=True)
        if epoch == one.pass_.epoch
    }
    by_index = {index: worker for (_, index), worker in workers.items()}
    found: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for batch in one.trainer.rows:
        if batch.pass_ == one.pass_.number and batch.index in by_index:
            for path, rows in batch.leaves:
                found[by_index[batch.index] or 0][path] += rows
    return found


_MOST_CLASSES = 100


def class_order_of_streams(session: Session) -> Iterator[DataFault]:
    """Yield streams that give one class after the other: long runs of equal values in each worker's rows."""
    for one in keyed_passes(session):
        if not one.keys.feeds or one.keys.count:
            continue
        by_worker = list(_rows_by_worker(session, one).values()) or [rows_of(one.trainer, one.pass_.number)]
        for path in sorted(set().union(*by_worker)):
            rows = [each[path] for each in by_worker if path in each]
            runs = class_runs(rows)
            if runs is not None and runs.classes <= min(_MOST_CLASSES, runs.looked / 8):
                leaf = tuple(path.split("."))
                yield CLASS_ORDER.found(leaf, place=one.place, order="a stream's order", **runs._asdict())
                return


STALE_STATE = FaultKind(
    "stale-state",
    "The script changes {names} of its dataset between passes, and {who} keep the value of their first pass: {some}.",
    "Leave out persistent_workers=True, or share the number with the workers by torch.tensor(0).share_memory_().",
    "a number among the dataset's attributes differs between two passes in the training process, and stays the first "
    "one in its persistent workers. `unless intended` but for an epoch",
)


def stale_state(session: Session) -> Iterator[DataFault]:
    """Yield datasets whose state persistent workers never learn."""
    firsts = {(maker.host, maker.pid): maker for maker in session.makers if maker.worker is not None}
    found: set[str] = set()
    for one, other in combinations(keyed_passes(session), 2):
        is_again = one.trainer is other.trainer and one.pass_.loader == other.pass_.loader
        if not is_again or one.made in found or one.pass_.workers != other.pass_.workers:
            continue
        before, after = one.pass_.state, other.pass_.state
        changed = [name for name in before if name in after and before[name] != after[name]]
        makers = [firsts[key] for pid in other.pass_.workers if (key := (one.trainer.host, pid)) in firsts]
        held = [each.state for maker in makers for each in maker.first if each.epoch == other.pass_.epoch]
        stale = [name for name in changed if held and all(state.get(name) == before[name] for state in held)]
        if stale:
            found.add(one.made)
            some = [f"{name} is {after[name]:g} in the script and {before[name]:g} in workers" for name in stale]
            is_epoch = any("epoch" in name.lower() for name in stale)
            certainty = "certain" if is_epoch else INTENDED
            who = "the persistent workers"
            yield STALE_STATE.found(certainty=certainty, names=", ".join(stale), who=who, some=some, place=one.place)


def evaluating_loaders(passes: Sequence[KeyedPass]) -> set[int | None]:
    """Return the loaders, by the order of their making, whose passes feed no step."""
    return {one.ordinal for one in passes if not one.keys.feeds}


def leaked_keys(session: Session) -> Iterator[DataFault]:
    """Yield evaluations that take samples of the latest training from the same dataset, by their indices."""
    passes = [one for one in keyed_passes(session) if one.keys.count]
    is_only = len(evaluating_loaders(passes)) == 1
    found: set[str] = set()
    for one in (each for each in passes if not each.keys.feeds and each.pass_.with_grad is False):
        before = [each for each in passes if each.trainer is one.trainer and each.pass_.start < one.pass_.start]
        trained = next((each for each in reversed(before) if each.keys.feeds), None)
        if trained is None or trained.keys.base != one.keys.base or trained.pass_.loader == one.pass_.loader:
            continue
        common = set(one.keys.least) & set(trained.keys.least)
        is_all = len(common) == len(one.keys.least)
        if common and (is_only or not is_all) and one.made not in found:
            found.add(one.made)
            share, dataset = len(common) / len(one.keys.least), one.keys.base.partition(" ")[0]
            yield LEAKED_SPLIT.found(
                certainty=INTENDED if is_all else "certain",
                who=f"The evaluation at {one.place}",
                what=f"takes {share:.0%} of its samples from those of the training, by their indices in {dataset}",
                some=[f"{len(common):,} indices"],
                place=one.place,
            )
