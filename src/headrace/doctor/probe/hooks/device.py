"""Hooks on the device: CUDA marks, copies to it, and ranges for profilers."""

from __future__ import annotations

import functools
from threading import get_ident
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..overhead import nothing, price_ns
from ..training.device_marks import CudaDevice, DeviceMarks, ProfilerRanges
from ..training.steps import COPY
from .lifecycle import write_facts

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training.training import TrainingObserver


# -- from doctor/probe/hooks/copies.py: Copies of a tensor from the host to a device, by `Tensor.to` and
# `Tensor.cuda`.


def install_copies(probe: Probe, torch: ModuleType) -> None:
    """Hooks torch.Tensor. Done once a device is in use, since these are the hottest calls of all that are hooked."""
    training = probe.training
    probe.patches.replace(
        torch.Tensor, "to", lambda original: TensorMethod(original, _hooked_to(training, torch, original))
    )
    probe.patches.replace(
        torch.Tensor, "cuda", lambda original: TensorMethod(original, _hooked_cuda(training, torch, original))
    )
    training.costs.price_conversion = lambda: _conversion_price_ns(training, torch)


class TensorMethod:
    """Stands for a method of Tensor, and is equal to it: torch and libraries over it keep tables of such methods, in
    which they look up the one that a subclass's `__torch_function__` is given."""

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        self._original = original
        self._call = call

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self if tensor is None else MethodType(self._call, tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _hooked_to(training: TrainingObserver, torch: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    tensor_type = torch.Tensor

    def to(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != training.thread:
            return original(tensor, *args, **kwargs)
        training.costs.conversions += 1
        # Not a subclass: to ask one where it is may run code of the user's. It is no batch that default_collate made.
        if type(tensor) is not tensor_type or not tensor.is_cpu or not _leaves_host(torch, args, kwargs):
            return original(tensor, *args, **kwargs)
        return _copied(training, original, tensor, args, kwargs)

    return to


def _hooked_cuda(training: TrainingObserver, torch: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    tensor_type = torch.Tensor

    def cuda(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != training.thread:
            return original(tensor, *args, **kwargs)
        training.costs.conversions += 1
        if type(tensor) is not tensor_type or not tensor.is_cpu:
            return original(tensor, *args, **kwargs)
        return _copied(training, original, tensor, args, kwargs)

    return cuda


def _copied(training: TrainingObserver, original: Callable[..., Any], tensor: Any, args: Any, kwargs: Any) -> Any:
    begin, end = ("h", "i") if training.may_mark_copy() else ("", "")
    if not training.enter(COPY, begin):
        return original(tensor, *args, **kwargs)
    try:
        return original(tensor, *args, **kwargs)
    finally:
        training.leave(end)


def _leaves_host(torch: ModuleType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether arguments of `Tensor.to` name a device other than the CPU: a device, its name or index, or a tensor."""
    target = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if target is None or isinstance(target, torch.dtype):
        return False
    if isinstance(target, str):
        return not target.startswith("cpu")
    if isinstance(target, torch.device):
        return bool(target.type != "cpu")
    return isinstance(target, int) or not getattr(target, "is_cpu", True)


def _conversion_price_ns(training: TrainingObserver, torch: ModuleType) -> float:
    """Of a call that copies nothing, which most are."""
    scratch = training.scratch()
    tensor = torch.empty(0)
    bound = MethodType(_hooked_to(scratch, torch, nothing), tensor)
    return price_ns(lambda: bound(torch.float32))


# -- from doctor/probe/hooks/cuda.py: CUDA: once a process uses it, what its stream does is marked; while a graph is
# captured, nothing is.


FACTS_EVERY_US = 30_000_000


def install_cuda(probe: Probe, torch: ModuleType) -> None:
    """Waits for the process to use CUDA: nothing here may begin a context, since a process that has one cannot fork
    others that use it."""
    if torch.cuda.is_initialized():
        begin_cuda(probe, torch)
    else:
        probe.patches.replace(torch.cuda, "_lazy_init", lambda original: _initialising(probe, torch, original))


def begin_cuda(probe: Probe, torch: ModuleType) -> None:
    """CUDA is in use from now on."""
    device = CudaDevice(torch)
    probe.training.follow_device(DeviceMarks(device))
    install_copies(probe, torch)
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
            begin_cuda(probe, torch)
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


# -- from doctor/probe/hooks/ranges.py: Ranges for torch.profiler and Nsight Systems, where the doctor was asked for
# them.


def install_ranges(probe: Probe, torch: ModuleType) -> None:
    if probe.settings.ranges:
        probe.training.ranges = ProfilerRanges(torch)
