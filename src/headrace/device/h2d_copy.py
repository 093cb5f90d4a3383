"""The lane to a CUDA device: pinned staging, copy and conversion on a side stream, events instead of waiting.

Who may use which memory when:
- Pinned staging comes from torch's caching host allocator, a batch at a time. A non-blocking copy tells the allocator
  of itself, so a block that is dropped at once is not handed out again before the copy is done.
- Device memory is allocated on the side stream. `record_stream` tells the allocator that the training stream uses it
  too, so what the consumer drops is not reused while a kernel still reads it.
- Bytes that are converted live and die on the side stream, in its order.
- The stream goes to the next pass once the feeding thread is through; what it was given is waited for by events.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headrace.device import streams
from headrace.device.image_conversion import Images
from headrace.device.lanes import Sent
from headrace.device.nested import Path, map_tensors
from headrace.device.sparse import bytes_of, dense_parts
from headrace.device.stats import CopyStats

MOST_UNRESOLVED = 256
"""Batches whose events are kept until they complete; a device that is further behind leaves some unmeasured."""


@dataclass
class _Ticket:
    """Events of one batch, with timing."""

    started: torch.cuda.Event
    copied: torch.cuda.Event
    ready: torch.cuda.Event
    reached: torch.cuda.Event | None = None
    """Where the training stream stood when it was told to wait for `ready`."""

    def complete(self) -> bool:
        return self.reached is not None and self.ready.query() and self.reached.query()


class CudaLane:
    """To one CUDA device. Nothing here waits for the device, but where the caching allocators themselves do."""

    def __init__(self, device: torch.device, images: Images) -> None:
        self._device = device
        self._images = images
        self._stream = streams.borrow(device)
        self._unresolved: deque[_Ticket] = deque(maxlen=MOST_UNRESOLVED)
        self._lock = threading.Lock()  # between the feeding thread and whoever asks for statistics
        self._bytes = 0
        self._stage_s = self._copy_s = self._convert_s = self._exposed_s = 0.0

    def send(self, batch: Any) -> Sent:
        # Entering the stream makes its device this thread's current one; a thread starts on device 0.
        with torch.cuda.stream(self._stream), torch.no_grad():
            staged = map_tensors(batch, self._stage)  # before the clock starts: it is the host's time
            started = self._event()
            moved = map_tensors(staged, self._move)
            copied = self._event()
            converted = map_tensors(moved, self._convert)
            ticket = _Ticket(started, copied, self._event())
        with self._lock:
            self._resolve()
            self._unresolved.append(ticket)
        return Sent(converted, ticket)

    def receive(self, sent: Sent) -> Any:
        stream = torch.cuda.current_stream(self._device)
        reached = torch.cuda.Event(enable_timing=True)
        reached.record(stream)
        sent.ticket.reached = reached
        stream.wait_event(sent.ticket.ready)
        map_tensors(sent.batch, lambda path, tensor: self._hand_over(tensor, stream))
        return sent.batch

    def end(self) -> None:
        streams.give_back(self._stream, self._device)

    def statistics(self) -> CopyStats:
        with self._lock:
            self._resolve()
            return CopyStats(self._bytes, self._stage_s, self._copy_s, self._convert_s, self._exposed_s)

    def _stage(self, path: Path, tensor: Tensor) -> Tensor:
        """The tensor in pinned memory, in the same layout; a device's, or a sparse one, as it is."""
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_pinned():
            return tensor
        since = time.perf_counter()
        staged = torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        self._stage_s += time.perf_counter() - since
        return staged

    def _move(self, path: Path, tensor: Tensor) -> Tensor:
        if tensor.device == self._device:
            # The source made it on a stream of its own: the default one, in the thread that runs this.
            self._stream.wait_stream(torch.cuda.default_stream(self._device))
            record_stream(tensor, self._stream)
            return tensor
        self._bytes += bytes_of(tensor)
        return tensor.to(self._device, non_blocking=True)

    def _convert(self, path: Path, tensor: Tensor) -> Tensor:
        conversion = self._images.conversion_of(path, tensor)
        return tensor if conversion is None else conversion.apply(tensor)

    def _hand_over(self, tensor: Tensor, stream: torch.cuda.Stream) -> Tensor:
        if tensor.device == self._device:
            record_stream(tensor, stream)
        return tensor

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def _resolve(self) -> None:
        """Reads the clocks of batches that are through, without waiting for any."""
        while self._unresolved and self._unresolved[0].complete():
            ticket = self._unresolved.popleft()
            assert ticket.reached is not None
            copied_ms, ready_ms = ticket.started.elapsed_time(ticket.copied), ticket.copied.elapsed_time(ticket.ready)
            self._copy_s += copied_ms / 1e3
            self._convert_s += ready_ms / 1e3
            late_ms = ticket.reached.elapsed_time(ticket.ready)
            self._exposed_s += min(max(late_ms, 0.0), copied_ms + ready_ms) / 1e3


def record_stream(tensor: Tensor, stream: torch.cuda.Stream) -> None:
    """torch has this for dense tensors only."""
    for part in dense_parts(tensor):
        part.record_stream(stream)
