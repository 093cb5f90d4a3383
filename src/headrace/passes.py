"""One pass of a Loader over an epoch: batches as the host makes them, or on their way to a device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from headrace.loader import Batch, Stats

if TYPE_CHECKING:  # the device's modules import torch
    from headrace.device import Lane

DEVICE_DEPTH = 2
"""Batches on the device or on their way beyond the consumer's: one to use next, one to copy meanwhile."""


class Pass(Protocol):
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

    def __init__(self, host: Pass, lane: Lane) -> None:
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
