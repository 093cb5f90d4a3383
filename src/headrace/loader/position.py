"""The position of a loader's consumer (epoch and step), its iterator, and the passes that it runs."""

from __future__ import annotations

import logging
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import UsageError
from headrace.loader.arguments import need_torch
from headrace.loader.framework_source import LoaderSource
from headrace.loader.recipe import Batch
from headrace.loader.stats import Stats, sums
from headrace.system import Closed

if TYPE_CHECKING:
    from headrace.device import CopyLane
    from headrace.loader.framework_dataloader import LoaderDataLoader


_logger = logging.getLogger("headrace")

DEVICE_DEPTH = 2
"""Batches on the device or on their way, ahead of the consumer: one to use next, one to copy meanwhile."""


DROP_WAIT_S = 1.0
"""Longest wait for an abandoned pass, as the caller may hold a lock that `map` waits for.

Cancelling a batch takes far less, unless the user's `map` is in the middle of a call."""


class LoaderPass(Protocol):
    """Batches of one epoch from one step on, as a loader's iterator takes them."""

    @property
    def foreign(self) -> bool:
        """True in a fork of the process that runs the pass, where its threads are missing."""
        ...

    @property
    def batch_bytes(self) -> int: ...

    @property
    def held_batches(self) -> int | None:
        """Batches in memory shared with workers that the consumer holds; None without shared memory."""
        ...

    def take(self) -> tuple[Batch, int]:
        """Return the next batch, and the number of steps of the epoch done with it.

        Raises Closed after the last batch, or the pass's error.
        """
        ...

    def close(self, timeout_s: float | None = None) -> None:
        """Cancel what is in flight and join every thread; may be called twice.

        With a timeout, threads that are not done by then end on their own.
        """
        ...

    def stats(self) -> Stats: ...


class DevicePass:
    """Batches of a pass on the host, sent to a device by a separate thread."""

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
        return None  # the consumer holds copies

    def take(self) -> tuple[Batch, int]:
        return self._feed.take()

    def close(self, timeout_s: float | None = None) -> None:
        self._host.close(timeout_s)  # first, so that the feeding thread need not wait for it
        self._feed.close(timeout_s)

    def stats(self) -> Stats:
        """Return the host's counts with the waits of the consumer that takes batches from the device."""
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


class LoaderIterator(Iterator[Batch]):
    """One pass over one epoch. It ends its threads at the end of the epoch, on `close`, on an error, or when dropped.

    In a process forked in mid-epoch it continues from the same batch with its own threads.
    """

    def __init__(self, loader: LoaderPosition, *, epoch: int, step: int) -> None:
        self._loader = loader
        self._epoch = epoch
        self._step = step
        self._open = True
        self._first = True
        loader._check_place()
        self._start()

    def _start(self) -> None:
        self._loader._add_latest_counts()
        self._pass = self._loader._begin_pass(self._epoch, self._step)
        self._finalizer = weakref.finalize(self, self._pass.close, DROP_WAIT_S)

    def __next__(self) -> Batch:
        if not self._open:
            raise StopIteration
        try:
            self._go_on_after_fork()
            if self._first:  # a process group may have begun since this pass did
                self._loader._check_place()
                self._first = False
            batch, self._step = self._pass.take()
        except Closed:
            if self._open:  # at the end, also of a pass without batches
                self._loader._note_received(self, self._epoch, len(self._loader))
            self.close()
            raise StopIteration from None
        except BaseException:  # Ctrl-C too: it must not wait for a `map` that hangs
            self._open = False
            self._finalizer.detach()
            self._pass.close(DROP_WAIT_S)
            raise
        self._loader._note_received(self, self._epoch, self._step)
        self._loader._warn_of_held(self._pass)
        return batch

    def close(self) -> None:
        """End the pass: join its threads and drop prefetched batches."""
        self._open = False
        self._finalizer.detach()
        self._pass.close()

    def stats(self) -> Stats:
        """Return the statistics of this pass so far; printed, they name the bottleneck stage."""
        self._go_on_after_fork()
        return self._pass.stats()

    def _go_on_after_fork(self) -> None:
        if self._open and self._pass.foreign:
            self._finalizer.detach()
            self._start()


class LoaderPosition(LoaderSource):
    """Position of a loader's consumer, for loaders with Headrace's own passes.

    It counts batches that the consumer has received, not prefetched batches.
    """

    _positioned = False

    def __init__(self) -> None:
        self._epoch = 0
        self._first_step = 0  # step at which the latest pass started, or the next one starts
        self._received = 0  # batches of epoch _epoch that the consumer has
        self._after_complete: int | None = None  # the epoch after the latest one that was received to its end
        self._is_consecutive = False  # the latest pass began there, so that another one is likely to follow
        self._logged_abandoned = False
        self._latest: weakref.ref[LoaderIterator] | None = None
        self._pass: LoaderPass | None = None  # the latest one, for its statistics
        self._added: tuple[dict[str, float], LoaderPass | None] = {}, None  # counts of passes up to this one

    @abstractmethod
    def _check_place(self) -> None:
        """Raise UsageError if a process group that began later has another place for this process."""

    @abstractmethod
    def _begin_pass(self, epoch: int, step: int) -> LoaderPass: ...

    @abstractmethod
    def _warn_of_held(self, begun: LoaderPass) -> None: ...

    def _prefetch_epoch(self, epoch: int, remaining: int) -> None:
        """Prefetch batches of `epoch` while `remaining` batches of the pass before it are to be taken, if possible."""

    @property
    def epoch(self) -> int:
        """Epoch of the current or the next pass."""
        return self._epoch

    @property
    def next_step(self) -> int:
        """Step at which the next pass starts: 0, or as set by `seek` or a loaded state."""
        return self._next_start[1]

    @property
    def _next_start(self) -> tuple[int, int]:
        """Epoch and step at which the next pass starts.

        A pass that delivered no batch leaves its start to the next pass, so that a restored position is not lost. An
        abandoned pass counts as its whole epoch, as in torch's DataLoader, unless `set_epoch` requested the epoch
        again.
        """
        if self._received == self._first_step:
            return self._epoch, self._first_step
        return self._epoch + (not self._positioned), 0

    def __iter__(self) -> LoaderIterator:
        epoch, step = self._next_start
        if epoch != self._epoch and not self._logged_abandoned:
            self._logged_abandoned = True
            _logger.info(
                "The last pass ended after %d of %d batches of epoch %d, so this pass takes epoch %d; call set_epoch "
                "before a pass to choose its epoch. This is logged once.",
                *(self._received, len(self), self._epoch, epoch),
            )
        self._epoch, self._first_step, self._received = epoch, step, step
        self._is_consecutive = (epoch, step) == (self._after_complete, 0)
        self._positioned = False
        iterator = LoaderIterator(self, epoch=epoch, step=step)
        self._latest = weakref.ref(iterator)
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass. The current epoch starts again, or continues from a restored position."""
        if type(epoch) is not int or epoch < 0:
            raise UsageError(f"set_epoch: expected an int of at least 0, got {epoch!r}")
        if epoch != self._epoch:
            self._move(epoch, 0)
        self._positioned = True

    def seek(self, epoch: int, step: int) -> None:
        """Start the next pass at this step of this epoch, without reading the samples before it."""
        for name, value, end in (("epoch", epoch, 1 << 64), ("step", step, len(self))):
            if type(value) is not int or not 0 <= value < end:
                raise UsageError(f"seek: expected {name} to be an int from 0 to {end - 1}, got {value!r}")
        self._move(epoch, step)

    def _move(self, epoch: int, step: int) -> None:
        self._epoch, self._first_step, self._received = epoch, step, step
        self._positioned = True
        self._latest = None  # an iterator from before no longer moves the position

    def as_dataloader(self, convert: Callable[[Iterator[Any]], Iterator[Any]] | None = None) -> LoaderDataLoader:
        """Return a torch DataLoader of these batches, for frameworks and scripts that insist on one.

        It adds no copy, thread or process. `convert` is a generator function that gets these batches and yields each in
        the structure that a script takes, such as `[images, labels]`. Raises UsageError if PyTorch is not installed.
        """
        need_torch("as_dataloader()")
        from headrace.loader.framework_dataloader import as_dataloader

        return as_dataloader(self, convert)

    def state_dict(self) -> dict[str, Any]:
        """Return the consumer's position as small JSON, the same on every rank.

        It counts batches that the consumer has received, not prefetched batches.
        """
        return self._state_at(self._epoch, self._received)

    def stats(self) -> Stats | None:
        """Return the statistics of the latest pass; printed, they name the bottleneck stage.

        Returns None before this process has begun a pass (a fork is another process).
        """
        return None if self._pass is None or self._pass.foreign else self._pass.stats()

    def counts(self) -> dict[str, float]:
        """Return `Stats.counts()` summed over all passes of this process. Any thread may call it.

        A pass counts for as long as it is the latest.
        """
        while True:
            added = self._added
            before, last = added
            latest = self._pass
            foreign = latest is not None and latest.foreign
            now = {} if latest is None or latest is last or foreign else latest.stats().counts()
            if self._added is added:  # else a pass began meanwhile
                return sums({} if foreign else before, now)

    def _add_latest_counts(self) -> None:
        """Add up the counts of the latest pass, before another one begins."""
        self._added = self.counts(), self._pass

    def _note_received(self, iterator: LoaderIterator, epoch: int, steps: int) -> None:
        """Record that the consumer has `steps` batches of `epoch`; only the latest iterator moves the position."""
        if self._latest is None or self._latest() is not iterator or self._epoch != epoch:
            return
        if self._is_consecutive:
            self._prefetch_epoch(epoch + 1, len(self) - steps)
        self._received = steps  # last: a batch is lost to a Ctrl-C before, and not counted
        if steps == len(self):
            self._after_complete = epoch + 1
            self._epoch, self._first_step, self._received = epoch + 1, 0, 0
