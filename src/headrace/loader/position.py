"""Where a loader's consumer is: which epoch and step the next pass takes, and what moves them."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.errors import UsageError
from headrace.loader import Stats
from headrace.loader.arguments import need_torch
from headrace.loader_iterator import LoaderIterator
from headrace.passes import Pass

if TYPE_CHECKING:
    from headrace.loader.framework_dataloader import LoaderDataLoader


class LoaderPosition(ABC):
    """What every loader has that makes its batches from any step of any epoch on. It counts what the consumer has
    received, not what is prefetched."""

    def __init__(self) -> None:
        self._epoch = 0
        self._restored = 0  # the step at which the next pass starts
        self._positioned = False
        self._received = 0  # batches that the consumer has of epoch _epoch
        self._latest: weakref.ref[LoaderIterator] | None = None
        self._pass: Pass | None = None  # the latest one, for its statistics

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def batch_size(self) -> int: ...

    @property
    @abstractmethod
    def rank(self) -> int: ...

    @property
    @abstractmethod
    def world_size(self) -> int: ...

    @property
    @abstractmethod
    def samples(self) -> int: ...

    @abstractmethod
    def check_place(self) -> None:
        """Raise UsageError where a process group that began later has another place for this process."""

    @abstractmethod
    def begin_pass(self, epoch: int, step: int) -> Pass: ...

    @abstractmethod
    def mind(self, begun: Pass) -> None: ...

    @abstractmethod
    def state_at(self, epoch: int, step: int) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    @property
    def epoch(self) -> int:
        """The epoch that the next pass takes, or that the present one is in."""
        return self._epoch

    @property
    def next_step(self) -> int:
        """The step at which the next pass starts: 0 unless a state was loaded, or `seek` called, since the last."""
        return self._restored

    @property
    def positioned(self) -> bool:
        """Whether `set_epoch`, `seek` or `load_state_dict` has been called since the last pass began."""
        return self._positioned

    def __iter__(self) -> LoaderIterator:
        step, self._restored = self._restored, 0
        self._received = step
        self._positioned = False
        iterator = LoaderIterator(self, epoch=self._epoch, step=step)
        self._latest = weakref.ref(iterator)
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """The next pass takes this epoch. For the current one, a restored position is kept."""
        if type(epoch) is not int or epoch < 0:
            raise UsageError(f"set_epoch: expected an int of at least 0, got {epoch!r}")
        if epoch != self._epoch:
            self._move(epoch, 0)
        self._positioned = True

    def seek(self, epoch: int, step: int) -> None:
        """The next pass takes this epoch from this step on, below `len(self)`. Nothing is read to get there."""
        for name, value, end in (("epoch", epoch, 1 << 64), ("step", step, len(self))):
            if type(value) is not int or not 0 <= value < end:
                raise UsageError(f"seek: expected {name} to be an int from 0 to {end - 1}, got {value!r}")
        self._move(epoch, step)

    def _move(self, epoch: int, step: int) -> None:
        self._epoch, self._restored, self._received = epoch, step, step
        self._positioned = True
        self._latest = None  # a pass still held no longer moves the position

    def as_dataloader(self) -> LoaderDataLoader:
        """A torch DataLoader of these batches, for frameworks that insist on one. It adds no copy, thread or process.

        Raises UsageError where PyTorch is not installed.
        """
        need_torch("as_dataloader()")
        from headrace.loader.framework_dataloader import as_dataloader

        return as_dataloader(self)

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer is: small JSON, the same on every rank.

        It counts batches that the consumer has received, not those that are prefetched.
        """
        return self.state_at(self._epoch, self._received)

    def stats(self) -> Stats | None:
        """What the latest pass has done so far; printed, it says which stage limits.

        None before this process (a fork is another) has begun a pass.
        """
        return None if self._pass is None or self._pass.foreign else self._pass.stats()

    def note_received(self, iterator: LoaderIterator, epoch: int, steps: int) -> None:
        """For an iterator: the consumer has `steps` batches of `epoch`; only the latest one moves the position."""
        if self._latest is None or self._latest() is not iterator or self._epoch != epoch:
            return
        self._received = steps
        if steps == len(self):
            self._epoch, self._received = epoch + 1, 0
