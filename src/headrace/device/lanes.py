"""The lane to one device: a batch goes in from a feeding thread, and comes out where the training runs."""

from __future__ import annotations

import time
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from headrace.device.image_conversion import Images
from headrace.device.nested import Path, map_tensors
from headrace.device.sparse import bytes_of
from headrace.device.stats import CopyStats
from headrace.errors import UsageError


class Sent(NamedTuple):
    """A batch under way. `ticket` is the lane's own."""

    batch: Any
    ticket: Any


class Lane(Protocol):
    """The seam between the prefetcher and a kind of device."""

    def send(self, batch: Any) -> Sent:
        """Starts a batch on its way; called by the feeding thread only."""
        ...

    def receive(self, sent: Sent) -> Any:
        """The batch, ready for whatever the calling thread does next on its current stream."""
        ...

    def statistics(self) -> CopyStats: ...

    def end(self) -> None:
        """Nothing more will be sent. What was sent can still be received."""
        ...


class PlainLane:
    """For devices without streams of their own: the work is done when `send` returns. On the CPU, only what is
    converted is copied."""

    def __init__(self, device: torch.device, images: Images) -> None:
        self._device = device
        self._images = images
        self._bytes = 0
        self._copy_s = self._convert_s = 0.0

    def send(self, batch: Any) -> Sent:
        with torch.no_grad():
            start = time.perf_counter()
            moved = map_tensors(batch, self._move)
            copied = time.perf_counter()
            converted = map_tensors(moved, lambda path, tensor: _convert(self._images, path, tensor))
        self._copy_s += copied - start
        self._convert_s += time.perf_counter() - copied
        return Sent(converted, None)

    def _move(self, path: Path, tensor: Tensor) -> Tensor:
        if tensor.device != self._device:
            self._bytes += bytes_of(tensor)
        return tensor.to(self._device)

    def receive(self, sent: Sent) -> Any:
        return sent.batch

    def statistics(self) -> CopyStats:
        return CopyStats(self._bytes, 0.0, self._copy_s, self._convert_s, None)

    def end(self) -> None:
        """There is nothing to give back."""


def _convert(images: Images, path: Path, tensor: Tensor) -> Tensor:
    conversion = images.conversion_of(path, tensor)
    return tensor if conversion is None else conversion.apply(tensor)


def lane_to(device: torch.device, images: Images) -> Lane:
    """The lane to `device`, as `resolve` gave it."""
    if device.type == "cuda":
        from headrace.device.h2d_copy import CudaLane

        return CudaLane(device, images)
    return PlainLane(device, images)


def resolve(device: str | torch.device) -> torch.device:
    """The device with its index. Raises UsageError for one that is not here."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"device: expected one that torch knows, such as 'cuda' or 'cpu', got {device!r}") from error
    if found.type != "cuda":
        return found
    if not torch.cuda.is_available():
        built = "torch sees no GPU" if torch.version.cuda or torch.version.hip else "torch is built without CUDA"
        raise UsageError(f"device: expected a device of this machine, got {device!r}, but {built}; pass device='cpu'")
    count = torch.cuda.device_count()
    index = torch.cuda.current_device() if found.index is None else found.index
    if index >= count:
        raise UsageError(f"device: expected one of cuda:0 to cuda:{count - 1}, got {device!r}")
    return torch.device("cuda", index)
