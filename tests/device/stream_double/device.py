"""Simulated device: streams, events and torch's own names for them, as the code under test calls them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from headrace.device import accelerators, h2d_copy
from stream_double.checker import HOST_READ_UNSYNCHRONISED, Checker
from stream_double.clocks import Clock, join
from stream_double.pinned import PinnedMemory
from stream_double.schedule import Schedule
from stream_double.tensors import DeviceTensor, Recording


class SimulatedDevice:
    """Device of one run, with its checker."""

    def __init__(self, torch_device: torch.device, seed: int) -> None:
        self.torch_device = torch_device
        self.kind = torch_device.type
        self.name = "mps:0" if self.kind == "mps" else self.kind
        self.checker = Checker()
        self.schedule = Schedule(seed)
        self.pinned = PinnedMemory(self.checker)
        self.default = Stream(self, "default")
        self._numbers = itertools.count(1)
        self._current = threading.local()

    def current(self) -> Stream:
        """Return the calling thread's current stream."""
        stream: Stream = getattr(self._current, "stream", self.default)
        return stream

    def stream(self) -> str:
        """Return the name of the current stream."""
        return self.current().name

    def new_stream(self, device: object = None, priority: int = 0) -> Stream:
        return Stream(self, f"stream {next(self._numbers)}")

    @contextmanager
    def entered(self, stream: Stream | None) -> Iterator[None]:
        """Make a stream the calling thread's current one."""
        before = self.current()
        self._current.stream = before if stream is None else stream
        try:
            yield
        finally:
            self._current.stream = before

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the calling thread does."""
        torch._C._set_only_lift_cpu_tensors(True)  # per thread: torch.tensor(…, device=) copies from the host, no more
        try:
            with FakeTensorMode(), Recording(self):
                yield
        finally:
            torch._C._set_only_lift_cpu_tensors(False)

    def synchronize(self, device: object = None) -> None:
        self.checker.wait_on_host(self.checker.clocks.of_all_streams(), "synchronize")

    def read_meter(self, device: object = None) -> int:
        """Return memory in bytes, which is a step's only once the device has done the step."""
        self.checker.read_on_host(self.checker.clocks.of_all_streams(), "a step's memory is read under the step")
        return 0


class Stream:
    """Double of torch.cuda.Stream and torch.Stream."""

    def __init__(self, owner: SimulatedDevice, name: str) -> None:
        self._owner = owner
        self.name = name

    def wait_event(self, event: Event) -> None:
        self._owner.schedule.point()
        with self._owner.checker.lock:
            self._owner.checker.clocks.wait(self.name, event.clock)

    def wait_stream(self, other: Stream) -> None:
        clocks = self._owner.checker.clocks
        with self._owner.checker.lock:
            clocks.wait(self.name, clocks.of_stream(other.name))

    def synchronize(self) -> None:
        checker = self._owner.checker
        checker.wait_on_host(checker.clocks.of_stream(self.name), "a stream is synchronised")

    def record_event(self, event: Event | None = None) -> Event:
        event = Event(self._owner) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._context = self._owner.entered(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)


class Event:
    """Double of torch.cuda.Event and torch.Event: the clock of the stream that recorded it."""

    def __init__(self, owner: SimulatedDevice, *, enable_timing: bool = False) -> None:
        self._owner = owner
        self._timed = enable_timing
        self._recorded = False
        self.clock: Clock = {}

    def record(self, stream: Stream | None = None) -> None:
        owner = self._owner
        owner.schedule.point()
        name = owner.stream() if stream is None else stream.name
        with owner.checker.lock:
            owner.checker.clocks.enqueue(name)
            self.clock, self._recorded = owner.checker.clocks.of_stream(name), True

    def wait(self, stream: Stream | None = None) -> None:
        (self._owner.current() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Return True if the event is complete: known to this thread, or by a draw. Never recorded, it is complete."""
        with self._owner.checker.lock:
            known = self._owner.checker.clocks.known()
            done = all(known.get(stream, 0) >= number for stream, number in self.clock.items())
            if not done and self._owner.schedule.is_done():
                join(known, self.clock)
                done = True
        return done

    def synchronize(self) -> None:
        self._owner.checker.wait_on_host(self.clock, "an event is synchronised")

    def elapsed_time(self, end: Event) -> float:
        """Return milliseconds. Torch raises if one of the events is not recorded, not timed or not complete."""
        checker = self._owner.checker
        for event in (self, end):
            checker.read_on_host(event.clock, "the clock of an event that may not be complete")
            if not event._recorded or not event._timed:
                checker.report(HOST_READ_UNSYNCHRONISED, "the clock of an event that has none")
        return 1.0


@contextmanager
def simulated_device(seed: int = 0, kind: str = "cuda") -> Iterator[SimulatedDevice]:
    """Give torch a device of this kind, number 0, and record what all threads do with it."""
    device = SimulatedDevice(torch.device(kind, 0), seed)
    accelerators.copies_alongside.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        _replace_module(patch, device)
        _replace_everywhere(patch, device)
        with device.recording():
            yield device
    accelerators.copies_alongside.cache_clear()


def _replace_module(patch: pytest.MonkeyPatch, device: SimulatedDevice) -> None:
    """Replace what torch's module for this kind has: no default_stream in torch.xpu, no streams in torch.mps."""
    doubles: dict[str, Any] = {
        "Stream": device.new_stream,
        "Event": lambda enable_timing=False: Event(device, enable_timing=enable_timing),
        "stream": device.entered,
        "current_stream": lambda of=None: device.current(),
        "default_stream": lambda of=None: device.default,
        "device": lambda of: nullcontext(),
        "device_of": lambda tensor: nullcontext(),
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "synchronize": device.synchronize,
        "empty_cache": device.read_meter,
        "reset_peak_memory_stats": lambda of=None: None,
        "max_memory_reserved": device.read_meter,
    }
    if device.kind == "npu":  # the module comes with another package
        patch.setattr(torch, "npu", SimpleNamespace(), raising=False)
    module = getattr(torch, device.kind)
    for name, double in doubles.items():
        if device.kind == "npu" or hasattr(module, name):
            patch.setattr(module, name, double, raising=False)
    patch.setattr(torch.accelerator, "is_available", lambda: True)
    patch.setattr(torch.accelerator, "current_accelerator", lambda: device.torch_device)


def _replace_everywhere(patch: pytest.MonkeyPatch, device: SimulatedDevice) -> None:
    def record_stream(tensor: Tensor, stream: Stream) -> None:
        assert isinstance(tensor, DeviceTensor), "torch has this for the device's tensors only"
        tensor.block.recorded.add(stream.name)

    def read_by_host(name: str) -> Callable[..., Any]:
        read = getattr(Tensor, name)

        def checked(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensor, DeviceTensor):
                return read(tensor.cpu(), *args, **kwargs)
            block = device.pinned.block_of(tensor)
            if block is not None and block.arriving is not None:
                device.checker.read_on_host(block.arriving, "memory into which the device still copies")
            if block is not None and name == "numpy":
                device.pinned.written(block)  # as native code may do from now on, unseen
            return read(tensor, *args, **kwargs)

        return checked

    run = threading.Thread.run

    def recorded(thread: threading.Thread) -> None:
        with device.recording():
            run(thread)

    patch.setattr(threading.Thread, "run", recorded)
    patch.setattr(Tensor, "record_stream", record_stream)
    for name in ("numpy", "tolist", "item"):
        patch.setattr(Tensor, name, read_by_host(name))
    patch.setattr(h2d_copy, "_idle", {})
