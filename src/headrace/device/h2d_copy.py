"""H2D copies: pinned staging, copy and conversion on a side stream, events instead of waiting.

Ownership of memory:
- Pinned staging comes from torch's caching host allocator, a batch at a time. A non-blocking copy registers itself
  with the allocator, so a block that is dropped at once is not handed out again before the copy is done.
- Device memory is allocated on the side stream. `record_stream` informs the allocator that the training stream uses it
  too, so memory that the consumer drops is not reused while a kernel still reads it.
- Bytes that are converted live and die on the side stream, in its order.
- The stream goes to the next pass once the feeding thread is done; events wait for its pending work. torch's caching
  allocator gives a freed block only to the stream that it was allocated on. A new stream for each pass would leave
  behind the memory of as many passes as torch has streams in its pool (32).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from headrace.device.accelerators import accelerator_of, copies_alongside, resolve
from headrace.device.batch_stages import finish_batch
from headrace.device.image_conversion import Conversion, ImageSelector, NamedImages
from headrace.device.nested import Path, bytes_of, dense_parts, map_tensors
from headrace.fields import Field, Image


@dataclass(frozen=True)
class CopyStats:
    """Statistics of a lane. Times on an accelerator are the device's own, of batches whose events have completed.

    `stage_s` high: the source's tensors are not pinned, and a thread of the host copies them first. `copy_s` and
    `convert_s` are time of the copy and of the conversion. `exposed_s` is the part of both that the training stream
    waited for: high, the batch came too late. None if it cannot be measured.
    """

    bytes: int
    stage_s: float
    copy_s: float
    convert_s: float
    exposed_s: float | None

    @property
    def overlap(self) -> float | None:
        """Share of copy and conversion that ran alongside training. Low: raise depth=, or make the source faster."""
        whole = self.copy_s + self.convert_s
        return None if self.exposed_s is None or whole <= 0 else max(0.0, 1 - self.exposed_s / whole)


@dataclass(frozen=True)
class PrefetchStats:
    """Statistics since the pass began.

    `consumer_wait_s` high: training waits for data. `ahead_wait_s` high: batches wait for training, all is well.
    `source_s` is time in the source's `next`: near the wall time, the source is the bottleneck. `ready` batches are on
    the device now.
    """

    batches: int
    ready: int
    wall_s: float
    consumer_wait_s: float
    ahead_wait_s: float
    source_s: float
    copies: CopyStats

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON values."""
        return asdict(self) | {"overlap": self.copies.overlap}

    def __str__(self) -> str:
        if self.batches == 0 or self.wall_s <= 0:
            return "Nothing has been taken yet."
        share = self.consumer_wait_s / self.wall_s
        lines = [f"The consumer waited {share:.1%} of the time for {self.batches:,} batches."]
        each = 1e3 / self.batches
        parts = {
            "source": self.source_s,
            "staging": self.copies.stage_s,
            "copy": self.copies.copy_s,
            "convert": self.copies.convert_s,
        }
        lines += [f"  {name:<9}{seconds * each:>9,.2f} ms a batch" for name, seconds in parts.items() if seconds > 0]
        if self.copies.overlap is not None:
            lines.append(f"  {self.copies.overlap:.1%} of copy and conversion ran beside training")
        return "\n".join(lines)


class SentBatch(NamedTuple):
    """Batch under way. `ticket` is private to the lane."""

    batch: Any
    ticket: Any


class CopyLane(Protocol):
    """Interface between the prefetcher and a kind of device."""

    def send(self, batch: Any) -> SentBatch:
        """Start to send a batch; called by the feeding thread only."""
        ...

    def receive(self, sent: SentBatch) -> Any:
        """Return the batch, ready for work of the calling thread on its current stream."""
        ...

    def statistics(self) -> CopyStats: ...

    def end(self) -> None:
        """End sending. Sent batches can still be received."""
        ...


class PlainLane:
    """Lane to devices without streams of their own: the work is done when `send` returns.

    On the CPU, only converted tensors are copied.
    """

    def __init__(self, device: torch.device, images: ImageSelector) -> None:
        self._device = device
        self._images = images
        self._bytes = 0
        self._copy_s = self._convert_s = 0.0

    def send(self, batch: Any) -> SentBatch:
        with torch.no_grad():
            start = time.perf_counter()
            moved = map_tensors(batch, self._move)
            copied = time.perf_counter()
            converted = finish_batch(moved, self._images)
        self._copy_s += copied - start
        self._convert_s += time.perf_counter() - copied
        return SentBatch(converted, None)

    def _move(self, path: Path, tensor: Tensor) -> Tensor:
        if tensor.device != self._device:
            self._bytes += bytes_of(tensor)
        return tensor.to(self._device)

    def receive(self, sent: SentBatch) -> Any:
        return sent.batch

    def statistics(self) -> CopyStats:
        return CopyStats(self._bytes, 0.0, self._copy_s, self._convert_s, None)

    def end(self) -> None:
        """Do nothing: there is nothing to give back."""


def lane_to(device: torch.device, images: ImageSelector) -> CopyLane:
    """Return the lane to `device`, a result of `resolve`. Warns once of an accelerator that gets plain copies."""
    return AcceleratorLane(device, images) if copies_alongside(device.type) else PlainLane(device, images)


_idle: dict[torch.device, list[torch.Stream]] = {}
"""Streams for the next passes. Work of a stream's last user may still be under way: it comes first."""
MOST_UNRESOLVED = 256
"""Maximum batches with pending events; if the device lags further behind, some batches stay unmeasured."""


@dataclass
class _Ticket:
    """Events of one batch, with timing."""

    started: Any
    copied: Any
    ready: Any
    reached: Any = None
    """Event of the training stream at its wait for `ready`."""

    def complete(self) -> bool:
        return self.reached is not None and self.ready.query() and self.reached.query()


class AcceleratorLane:
    """Lane to one accelerator. Nothing here waits for the device, except inside the caching allocators.

    Sparse tensors are the exception: they are copied from ordinary memory, and the feeding thread waits for the copy.
    """

    def __init__(self, device: torch.device, images: ImageSelector) -> None:
        self._device = device
        self._images = images
        self._torch = accelerator_of(device)
        try:
            self._stream = _idle[device].pop()
        except (KeyError, IndexError):
            self._stream = self._torch.Stream(device)
        self._unresolved: deque[_Ticket] = deque(maxlen=MOST_UNRESOLVED)
        self._lock = threading.Lock()  # between the feeding thread and readers of statistics
        self._bytes = 0
        self._stage_s = self._copy_s = self._convert_s = self._exposed_s = 0.0

    def send(self, batch: Any) -> SentBatch:
        made_on = self._torch.current_stream(self._device)  # this thread runs the source
        # Entering the stream makes its device this thread's current one; a thread starts on device 0.
        with self._torch.stream(self._stream), torch.no_grad():
            staged = map_tensors(batch, self._stage)  # before the clock starts: it is the host's time
            started = self._event()
            moved = map_tensors(staged, partial(self._move, made_on))
            copied = self._event()
            converted = finish_batch(moved, self._images)
            ticket = _Ticket(started, copied, self._event())
        with self._lock:
            self._resolve()
            self._unresolved.append(ticket)
        return SentBatch(converted, ticket)

    def receive(self, sent: SentBatch) -> Any:
        stream = self._torch.current_stream(self._device)
        reached = self._torch.Event(enable_timing=True)
        reached.record(stream)
        sent.ticket.reached = reached
        stream.wait_event(sent.ticket.ready)

        def hand_over(path: Path, tensor: Tensor) -> Tensor:
            if tensor.device == self._device:
                record_stream(tensor, stream)
            return tensor

        map_tensors(sent.batch, hand_over)
        return sent.batch

    def end(self) -> None:
        _idle.setdefault(self._device, []).append(self._stream)  # nothing more is enqueued on it here

    def statistics(self) -> CopyStats:
        with self._lock:
            self._resolve()
            return CopyStats(self._bytes, self._stage_s, self._copy_s, self._convert_s, self._exposed_s)

    def _stage(self, path: Path, tensor: Tensor) -> Tensor:
        """Return the tensor in pinned memory, in the same layout; a device's or a sparse tensor unchanged."""
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_pinned():
            return tensor
        since = time.perf_counter()
        staged = torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        self._stage_s += time.perf_counter() - since
        return staged

    def _move(self, made_on: torch.Stream, path: Path, tensor: Tensor) -> Tensor:
        if tensor.device == self._device:
            self._stream.wait_stream(made_on)
            record_stream(tensor, self._stream)
            return tensor
        self._bytes += bytes_of(tensor)
        return tensor.to(self._device, non_blocking=True)

    def _event(self) -> Any:
        event = self._torch.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def _resolve(self) -> None:
        """Read the clocks of finished batches, without waiting for any."""
        while self._unresolved and self._unresolved[0].complete():
            ticket = self._unresolved.popleft()
            assert ticket.reached is not None
            copied_ms, ready_ms = ticket.started.elapsed_time(ticket.copied), ticket.copied.elapsed_time(ticket.ready)
            self._copy_s += copied_ms / 1e3
            self._convert_s += ready_ms / 1e3
            late_ms = ticket.reached.elapsed_time(ticket.ready)
            self._exposed_s += min(max(late_ms, 0.0), copied_ms + ready_ms) / 1e3


def record_stream(tensor: Tensor, stream: torch.Stream) -> None:
    """Inform the allocator that a stream uses a tensor; torch has this for dense tensors only."""
    for part in dense_parts(tensor):
        part.record_stream(stream)


@dataclass(frozen=True)
class Placement:
    """Placement of fields: `fields` are the host's, `conversions` the device's additions to fields of the same name."""

    device: torch.device
    fields: Mapping[str, Field]
    conversions: Mapping[str, Conversion]

    @property
    def pinned(self) -> bool:
        """True if batches are made in pinned memory."""
        return copies_alongside(self.device.type)

    def lane(self) -> CopyLane:
        return lane_to(self.device, NamedImages(dict(self.conversions.items())))


def place(
    device: str | torch.device, fields: Mapping[str, Field], *, host_floats: bool, decodes: bool = False
) -> Placement:
    """Divide the work: copy images of floats as bytes, a quarter or half of the size, and convert them on the device.

    `host_floats`: the host needs the floats, for the user's `map` or an erasure. `decodes`: the device decodes images,
    so that it converts them even if it is the CPU. Raises UsageError for a device that is not available.
    """
    found = resolve(device)
    on_host, conversions = dict(fields), {}
    if decodes or (found.type != "cpu" and not host_floats):
        for name, field in fields.items():
            if not isinstance(field, Image) or field.wide or field.erases:
                continue
            if field.dtype != "uint8" and field.dtype != "uint16":
                on_host[name] = replace(field, dtype="uint8", normalize=None)
                conversions[name] = Conversion(field.dtype, field.normalize, field.channels_last)
    return Placement(found, on_host, conversions)
