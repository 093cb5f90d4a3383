"""Hooks on the device: tensor copies from the host and the start of marks."""

from __future__ import annotations

import functools
from threading import get_ident
from types import MethodType, ModuleType
from typing import Any, Callable

from ..device_marks import CudaDevice, DeviceMarks
from ..patches import Function, Patches
from ..training.steps import COPY
from ..training.training import TrainingObserver


def install_device(
    patches: Patches, training: TrainingObserver, write_facts: Callable[[], None], torch: ModuleType
) -> None:
    """Mark the stream once the process uses CUDA.

    Nothing here may create a CUDA context, since a process with a context cannot
    fork children that use CUDA. `write_facts` writes the name of the device.
    """
    if torch.cuda.is_initialized():
        _begin_cuda(patches, training, write_facts, torch)
        return

    def make(original: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(original)
        def _lazy_init() -> None:
            original()
            if torch.cuda._lazy_init is not _lazy_init or not torch.cuda.is_initialized():
                return
            torch.cuda._lazy_init = original  # called before every CUDA call
            try:
                _begin_cuda(patches, training, write_facts, torch)
            except Exception as error:
                training.fail("cuda", error)

        return _lazy_init

    patches.hook(torch, "cuda._lazy_init", make, "what the device does was")


def _begin_cuda(
    patches: Patches, training: TrainingObserver, write_facts: Callable[[], None], torch: ModuleType
) -> None:
    device = CudaDevice(torch)
    training.state.marks = DeviceMarks(device)
    install_copies(patches, training, torch)
    watch_captures(patches, training, device, torch.cuda.CUDAGraph)
    write_facts()  # a process that is killed has told its device


def watch_captures(patches: Patches, training: TrainingObserver, device: CudaDevice, graph: type) -> None:
    """Set no marks while a CUDA graph is captured."""

    def begin(original: Function, *args: Any, **kwargs: Any) -> Any:
        device.captures += 1
        training.say("capture", "Steps run as CUDA graphs; what happens inside one is not seen apart.")
        try:
            return original(*args, **kwargs)
        except BaseException:
            device.captures -= 1
            raise

    def end(original: Function, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            device.captures = max(0, device.captures - 1)

    for name, call in (("capture_begin", begin), ("capture_end", end)):
        if not patches.around(graph, name, call):
            patches.unknown(f"torch.cuda.CUDAGraph.{name}", "the capture of CUDA graphs was")


def install_copies(patches: Patches, training: TrainingObserver, torch: ModuleType) -> None:
    """Hook copies by `Tensor.to` and `Tensor.cuda`.

    Installed only once a device is in use, since these are the hottest of all hooked calls.
    """

    def hooked(original: Function) -> TensorMethod:
        return TensorMethod(original, _conversion(training, torch, original))

    patches.replace(torch.Tensor, "to", hooked)
    patches.replace(torch.Tensor, "cuda", hooked)


class TensorMethod:
    """Stand-in for a method of Tensor that compares equal to it.

    torch and libraries built on it keep tables of these methods, in which they look up the function passed to a
    subclass's `__torch_function__`.
    """

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


def _conversion(training: TrainingObserver, torch: ModuleType, original: Function) -> Function:
    """Return a function that counts conversions, and records a span for copies to the device."""
    thread, costs, tensor_type = training.thread, training.costs, torch.Tensor
    always_leaves = original.__name__ == "cuda"

    def convert(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != thread.observed:
            return original(tensor, *args, **kwargs)
        costs.conversions += 1
        # Exact type only: the device of a subclass may be a property of the user's, and default_collate makes no
        # subclasses.
        if type(tensor) is not tensor_type or not tensor.is_cpu:
            return original(tensor, *args, **kwargs)
        if not always_leaves and not _leaves_host(torch, args, kwargs):
            return original(tensor, *args, **kwargs)
        begin, end = ("h", "i") if training.may_mark_copy() else ("", "")
        if not training.enter(COPY, begin):
            return original(tensor, *args, **kwargs)
        try:
            return original(tensor, *args, **kwargs)
        finally:
            training.leave(end)

    convert.__name__ = original.__name__  # torch.compile recognises the tensor's own method by this name
    return convert


def _leaves_host(torch: ModuleType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if the target of `Tensor.to` is not the CPU: a device, its name or index, or a tensor."""
    target = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if target is None or isinstance(target, torch.dtype):
        return False
    if isinstance(target, str):
        return not target.startswith("cpu")
    if isinstance(target, torch.device):
        return bool(target.type != "cpu")
    return isinstance(target, int) or not getattr(target, "is_cpu", True)


STEP_BEGINS, STEP_ENDS = "s", "p"
