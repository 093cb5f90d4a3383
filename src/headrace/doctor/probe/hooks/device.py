"""Hooks on the device: marks on its stream, copies of a tensor from the host, and ranges for profilers."""

from __future__ import annotations

import functools
from threading import get_ident
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any, Callable

from ..overhead import TrainingCost, nothing, price_ns
from ..patches import Function, Patches
from ..training.steps import COPY
from ..training.thread import TrainingThread
from ..training.training import TrainingObserver

FACTS_EVERY_US = 30_000_000
Marks = list[tuple[str, float]]
"""Kind, and microseconds since the process's first mark."""
STEP_BEGINS, STEP_ENDS = "s", "p"
RANGE_NAMES = {
    "w": "headrace: data wait",
    "h": "headrace: host to device",
    "b": "headrace: backward",
    "o": "headrace: optimizer",
    "c": "headrace: collective",
    "": "headrace: closure",
}


def install_device(
    patches: Patches, training: TrainingObserver, write_facts: Callable[[], None], torch: ModuleType
) -> None:
    """Show ranges in torch.profiler and Nsight Systems, where asked for, and wait for the process to use CUDA.

    Once it does, what its stream does is marked. Nothing here may begin a context, since a process that has one cannot
    fork others that use it. `write_facts` writes what the memory of the device holds.
    """
    if training.settings.ranges:
        training.ranges = ProfilerRanges(torch)
    if torch.cuda.is_initialized():
        _begin_cuda(patches, training, write_facts, torch)
        return

    def make(original: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(original)
        def _lazy_init() -> None:
            original()
            if torch.cuda._lazy_init is not _lazy_init or not torch.cuda.is_initialized():
                return
            torch.cuda._lazy_init = original  # it is called before every call of CUDA
            try:
                _begin_cuda(patches, training, write_facts, torch)
            except Exception as error:
                training.fail("cuda", error)

        return _lazy_init

    patches.hook(torch, "cuda._lazy_init", make, "what the device does was")


def _begin_cuda(
    patches: Patches, training: TrainingObserver, write_facts: Callable[[], None], torch: ModuleType
) -> None:
    """Mark CUDA from now on."""
    device = CudaDevice(torch)
    training.marks = DeviceMarks(device)
    install_copies(patches, training, torch)
    watch_captures(patches, training, device, torch.cuda.CUDAGraph)
    due = training.clock.now_us() + FACTS_EVERY_US

    def now_and_then() -> None:
        """Write the memory's facts every 30 s: a process that is killed for its memory leaves what it held."""
        nonlocal due
        if training.clock.now_us() >= due and not device.captures:
            due = training.clock.now_us() + FACTS_EVERY_US
            write_facts()

    training.at_close.append(now_and_then)


def watch_captures(patches: Patches, training: TrainingObserver, device: CudaDevice, graph: type) -> None:
    """Mark nothing while a CUDA graph is captured."""

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

    Done once a device is in use, since these are the hottest calls of all that are hooked.
    """

    def hooked(original: Function) -> TensorMethod:
        return TensorMethod(original, _conversion(training, torch, original))

    def price() -> float:
        """Return what a call that copies nothing costs, which most are."""
        scratch: Any = SimpleNamespace(thread=TrainingThread(get_ident()), costs=TrainingCost())
        bound = MethodType(_conversion(scratch, torch, nothing), torch.empty(0))
        return price_ns(lambda: bound(torch.float32))

    patches.replace(torch.Tensor, "to", hooked)
    patches.replace(torch.Tensor, "cuda", hooked)
    training.costs.price_conversion = price


class TensorMethod:
    """Stand-in for a method of Tensor, and equal to it.

    torch and libraries over it keep tables of such methods, in which they look up the one that a subclass's
    `__torch_function__` is given.
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
    """Return what counts a conversion, and is a span where it copies to the device."""
    thread, costs, tensor_type = training.thread, training.costs, torch.Tensor
    always_leaves = original.__name__ == "cuda"

    def convert(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != thread.observed:
            return original(tensor, *args, **kwargs)
        costs.conversions += 1
        # Not a subclass: to ask one where it is may run code of the user's. It is no batch that default_collate made.
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

    convert.__name__ = original.__name__  # by which torch.compile knows that it is the tensor's own method
    return convert


def _leaves_host(torch: ModuleType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether `Tensor.to` is given a device other than the CPU: a device, its name or index, or a tensor."""
    target = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if target is None or isinstance(target, torch.dtype):
        return False
    if isinstance(target, str):
        return not target.startswith("cpu")
    if isinstance(target, torch.device):
        return bool(target.type != "cpu")
    return isinstance(target, int) or not getattr(target, "is_cpu", True)


class CudaDevice:
    """The CUDA stream on which the first optimizer stepped; its marks are timing events, of which a query never waits.

    What is queued on another stream, such as a prefetcher's copy, gets no mark, since times of two streams are in no
    order.
    """

    def __init__(self, torch: ModuleType) -> None:
        self._cuda = torch.cuda
        self._is_capturing = torch.cuda.is_current_stream_capturing
        self._stream: Any = None
        self.captures = 0
        """CUDA graphs being captured now, in any thread; the driver forbids queries meanwhile."""

    def follow(self) -> None:
        """Follow the current stream, if none is followed. Called when an optimizer steps."""
        if self._stream is None:
            self._stream = self._cuda.current_stream()

    def record(self, spare: Any) -> Any:
        """Return a mark behind all work queued so far, `spare` if that is given; None where none may be set now."""
        if self._stream is None or self.captures or self._is_capturing():
            return None
        if self._cuda.current_stream() != self._stream:
            return None
        event = self._cuda.Event(enable_timing=True) if spare is None else spare
        event.record(self._stream)
        return event

    def is_done(self, mark: Any) -> bool:
        """Tell whether the device has come past the mark. Never waits."""
        return not self.captures and bool(mark.query())

    def elapsed_us(self, earlier: Any, later: Any) -> float:
        """Return the microseconds between two marks that are done."""
        return float(earlier.elapsed_time(later)) * 1000.0


class DeviceMarks:
    """Marks of the open step, and of the steps that the device has not come past yet.

    Nothing here waits for the device: a step's marks are read once its last one is done. A device that falls more than
    `most_steps` behind gets no marks until it has caught up. The mark at which a step ends begins the next one.
    """

    def __init__(self, device: CudaDevice, most_steps: int = 32, most_marks: int = 128) -> None:
        self.device = device
        self._most_steps = most_steps
        self._most_marks = most_marks
        self._spares: list[Any] = []
        self._step: list[tuple[str, Any]] = []
        self._waiting: list[tuple[int, list[tuple[str, Any]]]] = []
        self._last_read: Any = None
        self._last_read_us = 0.0

    def mark(self, kind: str) -> None:
        if len(self._step) >= self._most_marks or len(self._waiting) >= self._most_steps:
            return
        mark = self.device.record(self._spares.pop() if self._spares else None)
        if mark is None:
            return
        if not self._step:
            self._step.append((STEP_BEGINS, mark))
        self._step.append((kind, mark))

    def begin(self) -> None:
        """Begin a step here, whatever was marked since the one before was closed."""
        self._step = []
        mark = self.device.record(None)
        if mark is not None:
            self._step.append((STEP_BEGINS, mark))

    def close(self, number: int, is_wanted: bool) -> None:
        """Close the step: its marks are complete, up to the last end of an optimizer."""
        marks = self._step
        end = max((position for position, (kind, _) in enumerate(marks) if kind == STEP_ENDS), default=-1) + 1
        if not end:
            self._step = []
            return
        self._step = [(STEP_BEGINS, marks[end - 1][1]), *marks[end:]]
        if is_wanted:
            self._waiting.append((number, marks[:end]))
        else:
            self._spares.extend(mark for _, mark in marks[1 : end - 1] if mark is not marks[0][1])

    def read(self) -> list[tuple[int, Marks]]:
        """Return the steps that the device has come past since the last call."""
        done: list[tuple[int, Marks]] = []
        while self._waiting and self.device.is_done(self._waiting[0][1][-1][1]):
            number, marks = self._waiting.pop(0)
            done.append((number, [(kind, self._since_first(mark)) for kind, mark in marks]))
        return done

    def _since_first(self, mark: Any) -> float:
        """Sum from mark to mark, since the device reports a long time in few digits."""
        if self._last_read is None:
            self._last_read = mark
        elif mark is not self._last_read:
            self._last_read_us += self.device.elapsed_us(self._last_read, mark)
            self._spares.append(self._last_read)
            self._last_read = mark
        return self._last_read_us


class ProfilerRanges:
    """Names for steps and their parts in the timelines of torch.profiler and, with CUDA, of Nsight Systems.

    Steps end within optimizers, so ranges may overlap; hence NVTX's ranges that have a start and an end, and not the
    ones that are pushed and popped.
    """

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._open: list[Callable[[], None]] = []
        self._end_step: Callable[[], None] = nothing

    def step(self, number: int) -> None:
        """End the step before, and begin this one."""
        self._end_step()
        self._end_step = self._start(f"headrace: step {number}")

    def enter(self, kind: str) -> None:
        self._open.append(self._start(RANGE_NAMES[kind]))

    def leave(self) -> None:
        """End the innermost part."""
        if self._open:
            self._open.pop()()

    def close(self) -> None:
        while self._open:
            self.leave()
        self._end_step()
        self._end_step = nothing

    def _start(self, name: str) -> Callable[[], None]:
        """Begin a range, and return what ends it."""
        cuda = self._torch.cuda
        record = self._torch.autograd.profiler.record_function(name)
        record.__enter__()
        nvtx = cuda.nvtx.range_start(name) if cuda.is_initialized() else None

        def end() -> None:
            if nvtx is not None:
                cuda.nvtx.range_end(nvtx)
            record.__exit__(None, None, None)

        return end
