"""The position of a loader's consumer (epoch and step), its iterator, and the passes that it runs."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import UsageError
from headrace.loader import Batch, Closed, Stats
from headrace.loader.arguments import need_torch

if TYPE_CHECKING:
    from headrace.device import CopyLane
    from headrace.loader.framework_dataloader import LoaderDataLoader


# -- from passes.py: One pass of a Loader over an epoch: batches as the host makes them, or on their way to a device.


DEVICE_DEPTH = 2
"""Batches on the device or on their way beyond the consumer's: one to use next, one to copy meanwhile."""


class LoaderPass(Protocol):
    """What a Loader's iterator runs."""

    @property
    def foreign(self) -> bool:
        """Whether this process is a fork of the one that runs it: its threads are not here."""
        ...

    @property
    def batch_bytes(self) -> int: ...

    @property
    def held_batches(self) -> int | None:
        """How many batches of memory that workers share somebody has; None where there is none."""
        ...

    def take(self) -> tuple[Batch, int]:
        """The next batch, and the steps of the epoch that are done with it. Raises Closed after the last, or what went
        wrong."""
        ...

    def close(self) -> None:
        """Cancels what is under way and joins every thread; may be called twice."""
        ...

    def drop(self) -> None:
        """Closes a pass that nobody refers to any more; the wait is bounded."""
        ...

    def stats(self) -> Stats: ...


class DevicePass:
    """Batches that a pass on the host makes, sent to a device by a thread of its own."""

    def __init__(self, host: LoaderPass, lane: CopyLane) -> None:
        from headrace.device import DeviceFeed

        self._host = host
        self._feed = DeviceFeed(host.take, lane, DEVICE_DEPTH, end=host.close)

    @property
    def foreign(self) -> bool:
        return self._host.foreign

    @property
    def batch_bytes(self) -> int:
        return self._host.batch_bytes

    @property
    def held_batches(self) -> None:
        return None  # the consumer has copies of them

    def take(self) -> tuple[Batch, int]:
        return self._feed.take()

    def close(self) -> None:
        self._host.close()  # first, so that the feeding thread need not wait for it
        self._feed.close(timeout_s=None)

    def drop(self) -> None:
        self._host.drop()
        self._feed.close()

    def stats(self) -> Stats:
        """The host's counts, with the waiting of who takes batches from the device."""
        device = self._feed.stats()
        copies = device.copies
        return replace(
            self._host.stats(),
            batches=device.batches,
            consumer_wait_s=device.consumer_wait_s,
            feed_wait_s=device.ahead_wait_s,
            copy_s=copies.copy_s,
            convert_s=copies.convert_s,
            overlap=copies.overlap,
        )


# -- from loader_iterator.py: `LoaderIterator`: one pass over one epoch, as the consumer sees it.


class IteratedLoader(Protocol):
    """The loader that is iterated over."""

    def __len__(self) -> int: ...
    def check_place(self) -> None: ...
    def begin_pass(self, epoch: int, step: int) -> LoaderPass: ...
    def mind(self, begun: LoaderPass) -> None: ...
    def note_received(self, iterator: LoaderIterator, epoch: int, steps: int) -> None: ...


class LoaderIterator(Iterator[Batch]):
    """One pass over one epoch. Ends its threads at the end of the epoch, on `close`, on an error, or when dropped.

    In a process forked in mid-epoch it goes on from the same batch, with threads of its own.
    """

    def __init__(self, loader: IteratedLoader, *, epoch: int, step: int) -> None:
        self._loader = loader
        self._epoch = epoch
        self._step = step
        self._open = True
        self._first = True
        loader.check_place()
        self._start()

    def _start(self) -> None:
        self._pass = self._loader.begin_pass(self._epoch, self._step)
        self._finalizer = weakref.finalize(self, self._pass.drop)

    def __next__(self) -> Batch:
        if not self._open:
            raise StopIteration
        try:
            self._go_on_after_fork()
            if self._first:  # a process group may have begun since this pass did
                self._loader.check_place()
                self._first = False
            batch, self._step = self._pass.take()
        except Closed:
            if self._open:  # at the end, also where the last batches were skipped as a whole
                self._loader.note_received(self, self._epoch, len(self._loader))
            self.close()
            raise StopIteration from None
        except BaseException:  # Ctrl-C too: it must not wait for a `map` that hangs
            self._open = False
            self._finalizer.detach()
            self._pass.drop()
            raise
        self._loader.note_received(self, self._epoch, self._step)
        self._loader.mind(self._pass)
        return batch

    def close(self) -> None:
        """Ends the pass: threads are joined, prefetched batches dropped."""
        self._open = False
        self._finalizer.detach()
        self._pass.close()

    def stats(self) -> Stats:
        """What this pass has done so far; printed, it says which stage limits."""
        self._go_on_after_fork()
        return self._pass.stats()

    def _go_on_after_fork(self) -> None:
        if self._open and self._pass.foreign:
            self._finalizer.detach()
            self._start()


# -- from loader_position.py: Where a loader's consumer is: which epoch and step the next pass takes, and what moves
# them.


class LoaderPosition(ABC):
    """What every loader has that makes its batches from any step of any epoch on. It counts what the consumer has
    received, not what is prefetched."""

    def __init__(self) -> None:
        self._epoch = 0
        self._restored = 0  # the step at which the next pass starts
        self._positioned = False
        self._received = 0  # batches that the consumer has of epoch _epoch
        self._latest: weakref.ref[LoaderIterator] | None = None
        self._pass: LoaderPass | None = None  # the latest one, for its statistics

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
    def begin_pass(self, epoch: int, step: int) -> LoaderPass: ...

    @abstractmethod
    def mind(self, begun: LoaderPass) -> None: ...

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
