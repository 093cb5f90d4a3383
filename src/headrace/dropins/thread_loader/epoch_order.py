"""Order and position of a ThreadDataLoader: index batches drawn like DataLoader's, and what a state holds of them."""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any, NamedTuple, get_type_hints

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from headrace.dropins.random_sources import random_key
from headrace.errors import StateError
from headrace.plan import check_state

POSITION_VERSION = 1
"""Version of the dict; increment it when a key is added, removed or changes its meaning."""


@dataclass(frozen=True)
class ThreadLoaderPosition:
    """Number of batches that the consumer has received, and everything that determines the rest of the epoch.

    `epoch` is the loader's count; `sampler_epoch` is its sampler's `epoch` attribute, if it has one, which may lag
    behind. `batches` counts the received batches of this epoch. `base_seed` (for random sources) and `order_seed` (for
    a RandomSampler without a generator) were drawn at the start of the epoch, None before. `seeded_epochs` counts the
    earlier epochs with the same `base_seed`. `generators` are the base64 states of the loader's and sampler's
    generators at the start of the epoch. `indices_crc` is a checksum of the received indices, and `sampler` is the
    state of a stateful sampler.
    """

    _: KW_ONLY
    epoch: int = 0
    sampler_epoch: int | None = None
    batches: int = 0
    base_seed: int | None = None
    seeded_epochs: int = 0
    order_seed: int | None = None
    generators: list[str] = field(default_factory=list)
    indices_crc: int = 0
    sampler: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"version": POSITION_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ThreadLoaderPosition:
        """Restore a position from `to_dict`. Raises StateError for anything else.

        Keys with a leading underscore are a wrapper's, such as Accelerate's `_iterator_finished`, and are ignored.
        """
        if not isinstance(data, Mapping):
            raise StateError(f"state: expected the dict that state_dict() gave, got {type(data).__name__}")
        if data.get("version") != POSITION_VERSION:
            raise StateError(
                f"state: expected version {POSITION_VERSION} of a ThreadDataLoader's state, got "
                f"{data.get('version')!r}; resume with the Headrace that saved it, or start the epoch afresh"
            )
        values = {name: value for name, value in data.items() if name != "version" and not name.startswith("_")}
        kinds = {name: kind for name, kind in get_type_hints(cls).items() if name != "_"}
        check_state(values, kinds)
        return cls(**values)


class SamplerState:
    """State of a stateful sampler at the consumer's position.

    Headrace's samplers count drawn and received batches separately. The `state_dict` of others, as in torchdata, counts
    draws, so a state is saved with every batch.
    """

    def __init__(self, sampler: Any) -> None:
        """Begin a pass over the sampler."""
        self._sampler = sampler
        self._pass = sampler.begin_tracked(self) if hasattr(sampler, "begin_tracked") else None
        self._state = self.mark()

    def mark(self) -> Any:
        """Return the sampler's position after a draw, for `receive`."""
        return self._sampler.state_dict() if self._pass is None else self._pass.drawn

    def receive(self, mark: Any) -> None:
        """Record that the consumer has received the batch with this mark."""
        if self._pass is None:
            self._state = mark
        else:
            self._pass.received = mark

    def finish(self) -> None:
        """Record that the consumer has received the whole epoch."""
        if self._pass is None:
            self._state = self.mark()
        else:
            self._pass.ended = True

    def to_dict(self) -> dict[str, Any]:
        return dict(self._state if self._pass is None else self._sampler.state_dict())


class Draw(NamedTuple):
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
        sampler = stateful_sampler(loader)
        self._sampler = None if sampler is None else SamplerState(sampler)
        self._indices = _iterator(loader, self._seeded)
        # Drawn even in a resumed epoch: the generator's later draws depend on it.
        drawn = 0 if start.seeded_epochs else _random_seed(loader.generator)
        self.base_seed = drawn if start.base_seed is None else start.base_seed
        self.key = random_key(self.base_seed, self._start.seeded_epochs)
        """Key of the epoch's random sources."""
        self._length: int | None = None
        with suppress(Exception):  # DataLoader never calls len(), so it must not fail here
            self._length = len(loader)
        self._drawn = self.received = self._handed_out = 0
        self._crc = self._crc_handed_out = 0
        self._finished = False
        self._go_to(start)

    def draw(self) -> Draw:
        """Draw the next batch's indices. Raises StopIteration at the end, and the sampler's errors."""
        try:
            indices = next(self._indices)
        except StopIteration:
            self._length = self._drawn
            raise
        self._drawn += 1
        return Draw(indices, None if self._sampler is None else self._sampler.mark())

    def hand_out(self, draw: Draw, *, failed: bool = False) -> None:
        """Record that the consumer has this batch or its error; an error counts once a later batch is received."""
        self._handed_out += 1
        if self._sampler is None:
            self._crc_handed_out = _crc(draw.indices, self._crc_handed_out)
        if failed:
            return
        self.received, self._crc = self._handed_out, self._crc_handed_out
        self._finished = False  # a length may have been too small
        if self._sampler is not None:
            self._sampler.receive(draw.mark)
        if self.received == self._length:
            self.finish()

    def finish(self) -> None:
        """Record that the consumer has received the whole epoch."""
        self._finished = True
        if self._sampler is not None:
            self._sampler.finish()

    def position(self) -> ThreadLoaderPosition:
        """Return the consumer's position: within the epoch, or at the next one's start."""
        sampler = None if self._sampler is None else self._sampler.to_dict()
        if self._finished:
            return replace(self.next_start(), generators=states_of(self._generators), sampler=sampler)
        begun = replace(self._start, generators=self._at_start, sampler=sampler)
        seed = None if self._seeded is None else self._seeded.seed
        if not self.received and seed is None:  # a generator can draw it again, and torch's default is not restored
            return begun
        return replace(begun, batches=self.received, indices_crc=self._crc, base_seed=self.base_seed, order_seed=seed)

    def next_start(self) -> ThreadLoaderPosition:
        """Return the start of this process's next pass: after an interrupted pass, its epoch begins again."""
        start = ThreadLoaderPosition(epoch=self._start.epoch + self._finished, sampler_epoch=self._start.sampler_epoch)
        # Like DataLoader, which seeds persistent workers once.
        if self._persistent:
            start = replace(start, base_seed=self.base_seed, seeded_epochs=self._start.seeded_epochs + 1)
        return at_epoch_of(self._epoch_sampler, start)

    def _go_to(self, start: ThreadLoaderPosition) -> None:
        if self._sampler is not None:
            self._drawn = self.received = self._handed_out = start.batches
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


class _SeededSampler(RandomSampler):
    """RandomSampler without a generator that records the seed of its epoch's order."""

    def __init__(self, sampler: RandomSampler, seed: int | None) -> None:
        super().__init__(sampler.data_source, sampler.replacement, sampler.num_samples, torch.Generator())
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        drawn = _random_seed(None)
        self.seed = drawn if self.seed is None else self.seed
        self.generator.manual_seed(self.seed)
        yield from super().__iter__()


def _seeded(loader: DataLoader[Any], seed: int | None) -> _SeededSampler | None:
    sampler = drawing_sampler(loader)
    # Only torch's own class: a subclass may draw differently.
    return _SeededSampler(sampler, seed) if type(sampler) is RandomSampler and sampler.generator is None else None


def _iterator(loader: DataLoader[Any], seeded: _SeededSampler | None) -> Iterator[Any]:
    batches: Any = loader.batch_sampler
    if batches is None:
        return iter(loader.sampler if seeded is None else seeded)
    return iter(batches if seeded is None else BatchSampler(seeded, batches.batch_size, batches.drop_last))


def _random_seed(generator: torch.Generator | None) -> int:
    """Draw a seed like torch's DataLoader and RandomSampler."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _crc(indices: Any, before: int) -> int:
    """Update a CRC with indices that are numbers or text, or lists, tuples, arrays or tensors of these.

    Other indices, whose repr may hold an address, contribute only their count.
    """
    indices = indices.tolist() if hasattr(indices, "tolist") else indices
    items = indices if isinstance(indices, list | tuple) else [indices]
    if all(type(item) is int and abs(item) < 1 << 63 for item in items):
        return zlib.crc32(array("q", items).tobytes(), before)
    return zlib.crc32(repr(_known(items)).encode(), before)


def _known(index: Any) -> Any:
    """Convert an index to plain numbers and text in lists; None for anything else."""
    value = index.tolist() if hasattr(index, "tolist") else index
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    if isinstance(value, int):
        return int(value)
    return value if isinstance(value, float | str) else None


def stateful_sampler(loader: DataLoader[Any]) -> Any:
    """Return the sampler that draws the indices if it has state_dict and load_state_dict, else None."""
    drawing = drawing_sampler(loader)
    return drawing if hasattr(drawing, "state_dict") and hasattr(drawing, "load_state_dict") else None


def drawing_sampler(loader: DataLoader[Any]) -> Any:
    """Return the object that draws the indices: a sampler, or a batch sampler other than torch's for that sampler."""
    batches = loader.batch_sampler
    is_plain = batches is None or (type(batches) is BatchSampler and batches.sampler is loader.sampler)
    return loader.sampler if is_plain else batches


def epoch_sampler(loader: DataLoader[Any]) -> Any:
    """Return the outermost sampler with `set_epoch`, or None."""
    return next((sampler for sampler in _samplers(loader) if hasattr(sampler, "set_epoch")), None)


def at_epoch_of(sampler: Any, position: ThreadLoaderPosition) -> ThreadLoaderPosition:
    """Return `position`, moved to the sampler's epoch if that has changed."""
    epoch = getattr(sampler, "epoch", None)
    if type(epoch) is not int or epoch == position.sampler_epoch:
        return position
    return replace(position, epoch=epoch, sampler_epoch=epoch)


def generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    """Return the distinct generators of the loader and its samplers."""
    owners = [loader, *_samplers(loader)]
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def states_of(found: list[torch.Generator]) -> list[str]:
    """Encode states in base64, 7 KB each (the state of a Mersenne Twister)."""
    return [base64.b64encode(one.get_state().numpy().tobytes()).decode() for one in found]


def set_states(found: list[torch.Generator], states: list[str]) -> None:
    """Restore generators. Raises StateError if the number of states differs or a state is invalid."""
    try:
        for generator, state in zip(found, states, strict=True):
            generator.set_state(torch.frombuffer(bytearray(base64.b64decode(state)), dtype=torch.uint8))
    except (ValueError, RuntimeError) as error:
        raise StateError(
            f"state['generators']: expected the states of {len(found)} generators, as in this loader and its sampler, "
            f"got {len(states)} ({error}); make the loader as the one that saved was made, with generator= where that "
            "had one, and pass the saved dict unchanged"
        ) from error


def _samplers(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield the loader's samplers, outermost first, including samplers wrapped by Accelerate or Lightning."""
    waiting, seen = [loader.batch_sampler, loader.sampler], set()
    while waiting:
        sampler = waiting.pop(0)
        if sampler is None or id(sampler) in seen:
            continue
        seen.add(id(sampler))
        yield sampler
        waiting += [getattr(sampler, "batch_sampler", None), getattr(sampler, "sampler", None)]
