"""CUDA: once a process uses it, what its stream does is marked; while a graph is captured, nothing is."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..cuda import CudaDevice
from ..training.device_marks import DeviceMarks
from .lifecycle import write_facts

if TYPE_CHECKING:
    from ..probe import Probe

FACTS_EVERY_US = 30_000_000


def install(probe: Probe, torch: ModuleType) -> None:
    """Waits for the process to use CUDA: nothing here may begin a context, since a process that has one cannot fork
    others that use it."""
    if torch.cuda.is_initialized():
        begin(probe, torch)
    else:
        probe.patches.replace(torch.cuda, "_lazy_init", lambda original: _initialising(probe, torch, original))


def begin(probe: Probe, torch: ModuleType) -> None:
    """CUDA is in use from now on."""
    device = CudaDevice(torch)
    probe.training.follow_device(DeviceMarks(device))
    device.install(probe, torch)
    graph = torch.cuda.CUDAGraph
    probe.patches.replace(graph, "capture_begin", lambda original: _capture_begins(probe, device, original))
    probe.patches.replace(graph, "capture_end", lambda original: _capture_ends(device, original))
    probe.training.at_close.append(_now_and_then(probe, device))


def _initialising(probe: Probe, torch: ModuleType, original: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(original)
    def _lazy_init() -> None:
        original()
        if torch.cuda._lazy_init is not _lazy_init or not torch.cuda.is_initialized():
            return
        torch.cuda._lazy_init = original  # it is called before every call of CUDA
        try:
            begin(probe, torch)
        except Exception as error:
            probe.training.fail("cuda", error)

    return _lazy_init


def _capture_begins(probe: Probe, device: CudaDevice, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def capture_begin(*args: Any, **kwargs: Any) -> Any:
        device.captures += 1
        probe.training.say("capture", "Steps run as CUDA graphs; what happens inside one is not seen apart.")
        try:
            return original(*args, **kwargs)
        except BaseException:
            device.captures -= 1
            raise

    return capture_begin


def _capture_ends(device: CudaDevice, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def capture_end(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            device.captures = max(0, device.captures - 1)

    return capture_end


def _now_and_then(probe: Probe, device: CudaDevice) -> Callable[[], None]:
    """Writes the memory's facts every 30 s: a process that is killed for its memory leaves what it held."""
    due = probe.clock.now_us() + FACTS_EVERY_US

    def write() -> None:
        nonlocal due
        if probe.clock.now_us() >= due and not device.captures:
            due = probe.clock.now_us() + FACTS_EVERY_US
            write_facts(probe)

    return write
