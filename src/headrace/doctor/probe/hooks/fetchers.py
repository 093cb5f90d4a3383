"""Hooks on DataLoader's fetchers: the dataset's time, sample by sample, and collate's."""

from __future__ import annotations

import functools
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..batch_production import ProducedBatch, SlowestSamples
from ..overhead import NOBODY, PRICED_CALLS, price_ns, raise_
from ..sample_digests import FIRST_COMPARED, LAST_COMPARED
from ..stages import Stages, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..probe import Probe
    from ..sample_digests import SampleStages


def install_fetchers(probe: Probe, fetch: ModuleType) -> None:
    """Hooks torch.utils.data._utils.fetch, which workers and num_workers=0 share."""
    hook = _FetchHook(probe)
    probe.batches.price_sample = lambda: _sample_price_ns(probe)
    probe.hook(fetch, "_BaseDatasetFetcher.__init__", hook.new_fetcher, "the making of batches was")
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        probe.hook(fetch, f"{name}.fetch", hook.fetching, "the making of batches was")


FETCHES = "_headrace_fetches"
"""Attribute of a fetcher: its `_Fetches`."""


class _Fetches:
    """What is known of one fetcher, by one hook: its pass, how many batches it made in a process without a worker loop,
    and in all, its collate_fn, and what times that."""

    __slots__ = ("collate", "collate_fn", "fetched", "hook", "made", "pass_")

    def __init__(self, hook: _FetchHook, pass_: int) -> None:
        self.hook = hook
        self.pass_ = pass_
        self.made = 0
        self.fetched = 0
        self.collate_fn: Callable[..., Any] | None = None
        self.collate: Callable[..., Any] | None = None


class _FetchHook:
    """Times every fetch of a process."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._unknown = 0
        guard = probe.batches.guard
        self._count, self._begin, self._end = guard(self._count_pass), guard(self._begin_fetch), guard(self._end_fetch)

    def new_fetcher(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(fetcher: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            self._count(fetcher)
            original(fetcher, *args, **kwargs)

        return __init__

    def fetching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        training = self._probe.training

        @functools.wraps(original)
        def fetch(fetcher: Any, index: Any) -> Any:
            if training.resting != NOBODY:
                known = getattr(fetcher, FETCHES, None)
                if known is not None:
                    known.made += 1
                return original(fetcher, index)
            under_way: _Fetch | None = self._begin(fetcher)
            if under_way is None:
                return original(fetcher, index)
            try:
                data = original(under_way.stand_in, index)
                under_way.batch.is_done = True
                return data
            finally:
                under_way.keep_changes()
                self._end(under_way)

        return fetch

    def _count_pass(self, fetcher: Any) -> None:
        """A pass that the training thread does not begin has no number of its own: it gets one below 0."""
        number = self._probe.training.opening
        if number is None:
            self._unknown -= 1
            number = self._unknown
        setattr(fetcher, FETCHES, _Fetches(self, number))

    def _begin_fetch(self, fetcher: Any) -> _Fetch | None:
        batch = self._probe.batches.current()
        if batch is not None and batch.is_fetching:
            # The dataset itself runs a loader: a part of the dataset's own code.
            return None
        is_here = batch is None
        if batch is None:
            batch = self._probe.batches.begin(*self._next_of(fetcher))  # which counts its own cost
        begun = time.monotonic_ns()
        batch.is_fetching = True
        collate, known = self._collate(fetcher), self._known(fetcher)
        fetch = _Fetch(self._probe, fetcher, batch, is_here, collate, FIRST_COMPARED <= known.fetched <= LAST_COMPARED)
        known.fetched += 1
        self._probe.batches.cost.add_ns(time.monotonic_ns() - begun)
        return fetch

    def _collate(self, fetcher: Any) -> Callable[..., Any]:
        known = self._known(fetcher)
        if known.collate is None or known.collate_fn is not fetcher.collate_fn:
            stage = self._probe.stage("collate", _name(fetcher.collate_fn))
            known.collate_fn = fetcher.collate_fn
            known.collate = timed(self._probe.stages, stage)(fetcher.collate_fn)
        return known.collate

    def _known(self, fetcher: Any) -> _Fetches:
        known: _Fetches | None = getattr(fetcher, FETCHES, None)
        if known is None or known.hook is not self:  # it was there before the probe
            self._count_pass(fetcher)
            known = getattr(fetcher, FETCHES)
        assert known is not None
        return known

    def _next_of(self, fetcher: Any) -> tuple[int, int]:
        """Pass, and number in it, of the batch that a fetcher makes in a process without a worker loop."""
        known = self._known(fetcher)
        known.made += 1
        return known.pass_, known.made - 1

    def _end_fetch(self, fetch: _Fetch) -> None:
        fetch.batch.is_fetching = False
        if fetch.is_here and fetch.batch.is_done:
            self._probe.batches.end(fetch.batch)
            self._probe.batches.write(fetch.batch)
        elif fetch.is_here:
            self._probe.batches.drop(fetch.batch)


class _Fetch:
    """One fetch, by a stand-in for the fetcher that has timed ones for the dataset and collate_fn. The fetcher keeps
    its own, whoever else looks at it meanwhile: another thread that reads the same iterator, or a state that is saved.
    """

    def __init__(
        self,
        probe: Probe,
        fetcher: Any,
        batch: ProducedBatch,
        is_here: bool,
        collate: Callable[..., Any],
        is_looked_at: bool = False,
    ) -> None:
        self.batch = batch
        self.is_here = is_here
        self._fetcher = fetcher
        samples = _Samples(probe, batch, fetcher.auto_collation, is_looked_at)
        name, stand_in = ("dataset_iter", _Iterator) if hasattr(fetcher, "dataset_iter") else ("dataset", _Dataset)
        data = getattr(fetcher, name)
        if fetcher.auto_collation and not probe.batches.pace.is_due():
            samples.begin()
            collate = _whole(samples, collate)
        else:
            data = stand_in(data, samples)
        self._given = {**vars(fetcher), "collate_fn": collate, name: data}
        self.stand_in = object.__new__(type(fetcher))
        vars(self.stand_in).update(self._given)

    def keep_changes(self) -> None:
        """What the fetcher has noted of itself: that its data have ended."""
        for name, value in vars(self.stand_in).items():
            if value is not self._given.get(name, self):
                setattr(self._fetcher, name, value)


class _Samples:
    """Times what the dataset does for one batch."""

    def __init__(self, probe: Probe, batch: ProducedBatch, auto_collation: bool, is_looked_at: bool = False) -> None:
        self.batch = batch
        self.auto_collation = auto_collation
        self._rest = probe.stage("getitem", "rest")
        self._account = batch.account
        self._slow = probe.batches.slow
        self._twice = probe.batches.made_twice if is_looked_at else None
        guard = probe.batches.guard
        self.begin, self.end, self.end_together = guard(self._begin), guard(self._end), guard(self._end_together)

    def keep_none(self) -> None:
        """However slow, none is one of the process's slow samples: they are nobody's."""
        self._slow = SlowestSamples()
        self._slow.least_ns = 1 << 62

    def _begin(self) -> None:
        """The dataset's own code runs from now on."""
        self._account.begin_part(self._rest)

    def _end(self, key: Any, samples: int | None) -> None:
        """It has given as many samples at once, each of which is taken to have cost the same; None for something of
        which nobody knows whether it is one, 0 where it raised."""
        wall, totals = self._account.end_part()
        if samples:
            self.batch.samples = (self.batch.samples or 0) + samples
            wall //= samples
        if samples != 0 and wall > self._slow.least_ns:
            self._slow.offer(self.batch.epoch, self.batch.index, key, wall, totals)

    def look(self, dataset: Any) -> SampleStages | None:
        """Begin to look at a sample before it is made; None where it is not looked at."""
        return None if self._twice is None else self._twice.begin(dataset, self._account)

    def looked(self, look: SampleStages, sample: Any, again: Callable[[], Any] | None) -> None:
        """Take `sample` for what `look` saw being made."""
        assert self._twice is not None
        self._twice.end(look, self.batch, sample, again)

    def look_at(self, dataset: Any, make: Callable[[], Any]) -> None:
        """Look at a sample that `make` makes for this alone."""
        if self._twice is not None:
            self._twice.look_at(dataset, self.batch, make)

    def _end_together(self, samples: int) -> None:
        """It has given all of a batch's, of which none was timed by itself."""
        self._account.end_part()
        self._account.totals[self._rest][0] += samples - 1
        self.batch.samples, self.batch.together = samples, samples - 1


def _whole(samples: _Samples, collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A collate_fn that ends the samples' time, which began with the fetch."""
    end = samples.end_together

    def call(data: Any) -> Any:
        end(len(data))
        return collate(data)

    return call


def _sample_price_ns(probe: Probe) -> int:
    """Of timing a sample."""
    stages = Stages(raise_)
    stages.categories = probe.stages.categories
    samples = _Samples(probe, ProducedBatch(0, 0, stages.open()), True)
    samples.keep_none()
    data = [0]
    stand_in = _Dataset(data, samples)
    return int(price_ns(lambda: stand_in[0], lambda: data[0], PRICED_CALLS))


class _Dataset:
    """What a fetcher uses of a map-style dataset."""

    def __init__(self, dataset: Any, samples: _Samples) -> None:
        self._dataset = dataset
        self._samples = samples

    def __getitem__(self, key: Any) -> Any:
        count: int | None = 0
        self._samples.begin()
        look = self._samples.look(self._dataset)
        try:
            sample = self._dataset[key]
            count = 1 if self._samples.auto_collation else _length(key, 1)
        finally:
            self._samples.end(key, count)
        if look is not None:
            self._samples.looked(look, sample, lambda: self._dataset[key])
        return sample

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._dataset, name)
        return self._timed(value) if name == "__getitems__" and value else value

    def _timed(self, getitems: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def __getitems__(keys: Any) -> Any:  # noqa: N807
            count: int | None = 0
            self._samples.begin()
            try:
                data = getitems(keys)
                count = _length(keys, None)
            finally:
                self._samples.end(keys, count)
            self._look_at_some(getitems, keys)
            return data

        return __getitems__

    def _look_at_some(self, getitems: Callable[[Any], Any], keys: Any) -> None:
        """Look at each by itself of samples that came together, once they are there."""
        for key in keys if isinstance(keys, list) else ():
            self._samples.look_at(self._dataset, functools.partial(getitems, [key]))


class _Iterator:
    """What a fetcher uses of an iterable dataset's iterator."""

    def __init__(self, iterator: Iterator[Any], samples: _Samples) -> None:
        self._iterator = iterator
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        key: Any = None
        count: int | None = 0
        self._samples.begin()
        look = self._samples.look(self._iterator)
        try:
            sample = next(self._iterator)
            key, count = _key(sample, self._samples.batch), 1 if self._samples.auto_collation else None
        finally:
            self._samples.end(key, count)
        if look is not None:
            self._samples.looked(look, sample, None)
        return sample


def _key(sample: Any, batch: ProducedBatch) -> Any:
    """An iterable dataset gives no keys, except in the WebDataset convention; otherwise the place in its batch stands
    for one."""
    if type(sample) is dict and "__key__" in sample:
        return sample["__key__"]
    return ("sample", batch.samples or 0)


def _length(keys: Any, otherwise: int | None) -> int | None:
    return len(keys) if isinstance(keys, (list, tuple)) else otherwise


def _name(function: Any) -> str:
    function = getattr(function, "func", function)
    return str(getattr(function, "__qualname__", type(function).__qualname__))
