"""Position of a ThreadDataLoader as JSON, and the states of its samplers and generators."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any, TypeAlias, get_type_hints

import torch
from torch.utils.data import BatchSampler, DataLoader

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


class TrackedSampler:
    """State of Headrace's samplers, which count drawn and received batches separately."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._pass = sampler.begin_tracked(self)

    def mark(self) -> int:
        """Return the sampler's position after a draw, for `receive`."""
        return int(self._pass.drawn)

    def receive(self, mark: Any) -> None:
        """Record that the consumer has received the batch with this mark."""
        self._pass.received = mark

    def finish(self, mark: Any) -> None:
        """Record that the consumer has received the whole epoch."""
        self._pass.ended = True

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._sampler.state_dict()
        return state


class SavedSampler:
    """State of samplers whose `state_dict` counts draws, as in torchdata. A state is saved with every batch."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._state = sampler.state_dict()

    def mark(self) -> dict[str, Any]:
        state: dict[str, Any] = self._sampler.state_dict()
        return state

    def receive(self, mark: Any) -> None:
        self._state = mark

    finish = receive

    def state(self) -> dict[str, Any]:
        return dict(self._state)


SamplerState: TypeAlias = TrackedSampler | SavedSampler
"""State of a stateful sampler at the consumer's position."""


def begin_sampler(loader: DataLoader[Any]) -> SamplerState | None:
    """Begin a pass over the loader's sampler; return None if the sampler is stateless."""
    sampler = stateful_sampler(loader)
    if sampler is None:
        return None
    return TrackedSampler(sampler) if hasattr(sampler, "begin_tracked") else SavedSampler(sampler)


def stateful_sampler(loader: DataLoader[Any]) -> Any:
    """Return the sampler that draws the indices if it has state_dict and load_state_dict, else None."""
    drawing = drawing_sampler(loader)
    return drawing if hasattr(drawing, "state_dict") and hasattr(drawing, "load_state_dict") else None


def drawing_sampler(loader: DataLoader[Any]) -> Any:
    """Return the object that draws the indices: a sampler, or a batch sampler other than torch's."""
    batches = loader.batch_sampler
    return loader.sampler if batches is None or is_plain(loader) else batches


def is_plain(loader: DataLoader[Any]) -> bool:
    """Return True if torch's own BatchSampler groups the indices of the loader's sampler."""
    batches = loader.batch_sampler
    return type(batches) is BatchSampler and batches.sampler is loader.sampler


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
    if len(found) != len(states):
        raise StateError(
            f"state: expected the states of {len(found)} generators as in this loader and its sampler, got "
            f"{len(states)}; make the loader as the one that saved was made, with generator= where that had one"
        )
    for generator, state in zip(found, states, strict=True):
        try:
            generator.set_state(torch.frombuffer(bytearray(base64.b64decode(state)), dtype=torch.uint8))
        except (ValueError, RuntimeError) as error:
            raise StateError(
                f"state['generators']: expected the state of a {generator.device} generator, got {len(state)} "
                f"characters that are none ({error}); pass the saved dict unchanged"
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
