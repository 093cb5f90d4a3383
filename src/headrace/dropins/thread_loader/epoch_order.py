"""Index batches of one epoch, drawn like DataLoader's, and the consumer's position among them."""

from __future__ import annotations

import operator
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

from headrace.dropins.thread_loader.sampler_state import (
    ThreadLoaderPosition,
    at_epoch_of,
    begin_sampler,
    epoch_sampler,
    generators,
    is_plain,
    states_of,
)
from headrace.errors import StateError


@dataclass(frozen=True)
class Draw:
    """Indices of one batch (one index with batch_size=None), and the sampler's mark for it."""

    indices: Any
    mark: Any


class EpochOrder:
    """Order of an epoch, drawn from the samplers in the consumer's thread at the same moments as in DataLoader.

    A seed or generator therefore yields the same order as under DataLoader, and the training code's draws from torch's
    default generator are the same.
    """

    def __init__(self, loader: DataLoader[Any], start: ThreadLoaderPosition) -> None:
        """Resume at `start`: the batches received before it are drawn again but not loaded.

        Raises StateError if the sampler draws different batches.
        """
        self._epoch_sampler = epoch_sampler(loader)
        self._start = at_epoch_of(self._epoch_sampler, start)
        self._persistent = loader.persistent_workers
        self._generators = generators(loader)
        self._at_start = states_of(self._generators)
        self._seeded = _seeded(loader, start.order_seed)
        self._sampler = begin_sampler(loader)
        self._indices = _iterator(loader, self._seeded)
        self.base_seed = _draw_base_seed(loader, start)
        self._length = _length(loader)
        self.received = self._handed_out = 0
        self._crc = self._crc_handed_out = 0
        self._drawn: Draw | None = None  # the latest
        self._exhausted = False
        self._finished = False
        self._go_to(start)

    @property
    def seeded_epochs(self) -> int:
        """Epochs before this one with the same base seed."""
        return self._start.seeded_epochs

    @property
    def epoch(self) -> int:
        """Current epoch, or the next epoch once the consumer has received all of it."""
        return self.next_start().epoch

    def draw(self) -> Draw:
        """Draw the next batch's indices. Raises StopIteration at the end, and the sampler's errors."""
        try:
            indices = next(self._indices)
        except StopIteration:
            self._exhausted = True
            raise
        self._drawn = Draw(indices, None if self._sampler is None else self._sampler.mark())
        return self._drawn

    def hand_out(self, draw: Draw, *, failed: bool = False) -> None:
        """Record that the consumer has this batch or its error; an error counts once a later batch is received."""
        self._handed_out += 1
        if self._sampler is None:
            self._crc_handed_out = _crc(draw.indices, self._crc_handed_out)
        if failed:
            return
        self.received, self._crc = self._handed_out, self._crc_handed_out
        if self._sampler is not None:
            self._sampler.receive(draw.mark)
        if self.received == self._length or (self._exhausted and draw is self._drawn):
            self.finish()
        else:
            self._finished = False  # the length was too small

    def end(self) -> None:
        """End the epoch after a request past its last batch, unless the sampler failed."""
        if self._exhausted:
            self.finish()

    def finish(self) -> None:
        """Record that the consumer has received the whole epoch."""
        self._finished = True
        if self._sampler is not None:
            self._sampler.finish(self._sampler.mark())

    def position(self) -> ThreadLoaderPosition:
        """Return the consumer's position: within the epoch, or at the next one's start."""
        sampler = None if self._sampler is None else self._sampler.state()
        if self._finished:
            return replace(self.next_start(), generators=states_of(self._generators), sampler=sampler)
        begun = replace(self._start, generators=self._at_start, sampler=sampler)
        seed = None if self._seeded is None else self._seeded.seed
        if self.received > 0:
            begun = replace(begun, batches=self.received, indices_crc=self._crc)
        elif seed is None:  # a generator can draw the seed again, and torch's default is not ours to restore
            return begun
        return replace(begun, base_seed=self.base_seed, order_seed=seed)

    def next_start(self) -> ThreadLoaderPosition:
        """Return the start of this process's next pass: after an interrupted pass, its epoch begins again."""
        start = ThreadLoaderPosition(epoch=self._start.epoch + self._finished, sampler_epoch=self._start.sampler_epoch)
        # Like DataLoader, which seeds persistent workers once.
        if self._persistent:
            start = replace(start, base_seed=self.base_seed, seeded_epochs=self.seeded_epochs + 1)
        return at_epoch_of(self._epoch_sampler, start)

    def _go_to(self, start: ThreadLoaderPosition) -> None:
        if self._sampler is not None:
            self.received = self._handed_out = start.batches
            return
        for _ in range(start.batches):
            try:
                self.hand_out(self.draw())
            except StopIteration:
                break
        if (self.received, self._crc) != (start.batches, start.indices_crc):
            raise StateError(
                f"state: expected a sampler that draws the same {start.batches} batches of indices as when the state "
                "was saved, got others; resume with the same dataset, batch size and epoch, and give a sampler that "
                "shuffles a torch.Generator, as its attribute `generator`, or a state_dict of its own"
            )


class _SeededSampler(Sampler[int]):
    """RandomSampler without a generator that records the seed of its epoch's order."""

    def __init__(self, sampler: RandomSampler, seed: int | None) -> None:
        self._sampler = sampler
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        drawn = _random_seed(None)
        self.seed = drawn if self.seed is None else self.seed
        generator = torch.Generator()
        generator.manual_seed(self.seed)
        own = self._sampler
        yield from RandomSampler(own.data_source, own.replacement, own.num_samples, generator=generator)


def _seeded(loader: DataLoader[Any], seed: int | None) -> _SeededSampler | None:
    sampler = loader.sampler
    plain = loader.batch_sampler is None or is_plain(loader)
    # Only torch's own class: a subclass may draw differently.
    if plain and type(sampler) is RandomSampler and sampler.generator is None:
        return _SeededSampler(sampler, seed)
    return None


def _iterator(loader: DataLoader[Any], seeded: _SeededSampler | None) -> Iterator[Any]:
    batches = loader.batch_sampler
    if batches is None:
        return iter(loader.sampler if seeded is None else seeded)
    if seeded is None:
        return iter(batches)
    assert isinstance(batches, BatchSampler)
    return iter(BatchSampler(seeded, batches.batch_size, batches.drop_last))


def _draw_base_seed(loader: DataLoader[Any], start: ThreadLoaderPosition) -> int:
    """Draw the base seed, even in a resumed epoch: the generator's later draws depend on it."""
    if start.seeded_epochs > 0 and start.base_seed is not None:
        return start.base_seed
    drawn = _random_seed(loader.generator)
    return drawn if start.base_seed is None else start.base_seed


def _random_seed(generator: torch.Generator | None) -> int:
    """Draw a seed like torch's DataLoader and RandomSampler."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _length(loader: DataLoader[Any]) -> int | None:
    """Return the loader's length; None if it has none, so that the epoch ends with the sampler."""
    try:
        return len(loader)
    except Exception:  # DataLoader never calls len(), so it must not fail here
        return None


def _crc(indices: Any, before: int) -> int:
    """Update a CRC with indices that are numbers or text, or lists, tuples, arrays or tensors of these.

    Other indices, whose repr may hold an address, contribute only their count.
    """
    indices = indices.tolist() if hasattr(indices, "tolist") else indices
    items = indices if isinstance(indices, list | tuple) else [indices]
    if all(type(item) is int for item in items):
        try:
            return zlib.crc32(array("q", items).tobytes(), before)
        except OverflowError:
            pass
    return zlib.crc32(repr(_known(items)).encode(), before)


def _known(index: Any) -> Any:
    """Convert an index to plain numbers and text in lists; None for anything else."""
    value = index.tolist() if hasattr(index, "tolist") else index
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    if isinstance(value, str | float):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return None
