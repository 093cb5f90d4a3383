"""Index batches of one epoch, drawn as DataLoader draws them, and how many the consumer has received."""

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
    """One batch's indices, or the one index of batch_size=None; and the sampler's own mark of it."""

    indices: Any
    mark: Any


class EpochOrder:
    """Draws from the samplers in the consumer's thread, at the moments at which DataLoader does.

    So a seed, or a generator, gives the order that it gives under DataLoader, and what the training code draws from
    torch's default generator comes out the same.
    """

    def __init__(self, loader: DataLoader[Any], start: ThreadLoaderPosition) -> None:
        """Resume at `start`: batches received before are drawn once more and not loaded.

        Raises StateError where the sampler now draws others.
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
        """The epoch that it is in, or the next one once the consumer has all of it."""
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
        """Note that the consumer has this batch, or its error; an error counts once a later batch has been received."""
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
            self._finished = False  # a length that promised less

    def end(self) -> None:
        """End the epoch, as the consumer has asked for a batch after the last, unless the sampler failed."""
        if self._exhausted:
            self.finish()

    def finish(self) -> None:
        """Note that the consumer has all of the epoch."""
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
        elif seed is None:  # what a generator drew for it can be drawn again, and torch's default one is not ours
            return begun
        return replace(begun, base_seed=self.base_seed, order_seed=seed)

    def next_start(self) -> ThreadLoaderPosition:
        """Return where the next pass of this process starts: a pass that was broken off begins its epoch again."""
        start = ThreadLoaderPosition(epoch=self._start.epoch + self._finished, sampler_epoch=self._start.sampler_epoch)
        # As DataLoader, whose persistent workers are seeded once.
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
    """RandomSampler without a generator, which draws the seed of each epoch's order and records it."""

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
    # Only torch's own: a subclass may draw otherwise.
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
    """Draw the base seed, in a resumed epoch as well: later draws of the generator depend on it."""
    if start.seeded_epochs > 0 and start.base_seed is not None:
        return start.base_seed
    drawn = _random_seed(loader.generator)
    return drawn if start.base_seed is None else start.base_seed


def _random_seed(generator: torch.Generator | None) -> int:
    """Draw a seed as torch's own DataLoader and RandomSampler do."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _length(loader: DataLoader[Any]) -> int | None:
    """Return the loader's length; None where it has none: an epoch then ends when the sampler has no more."""
    try:
        return len(loader)
    except Exception:  # what DataLoader never asks for must not fail here
        return None


def _crc(indices: Any, before: int) -> int:
    """Sum up indices that are numbers or text, or lists, tuples, arrays or tensors of these.

    Of other indices, whose text may hold an address, only the number counts.
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
    """Return plain numbers and text, in lists; None for anything else."""
    value = index.tolist() if hasattr(index, "tolist") else index
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    if isinstance(value, str | float):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return None
