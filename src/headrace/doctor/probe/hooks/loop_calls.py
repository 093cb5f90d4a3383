"""Calls of the training loop: copies to the device, the model, Headrace's own loaders, and threads that prefetch."""

from __future__ import annotations

import functools
import weakref
from functools import partial
from threading import get_ident
from types import FunctionType, MethodType, ModuleType
from typing import Any, Callable

from ..look.first_batches import ModelInputs
from ..patches import Function, Patches
from ..stages import NOBODY
from ..training.device_marks import CudaDevice, DeviceMarks
from ..training.state import MOST_ELSEWHERE
from ..training.steps import COPY, FetchedBatch
from ..training.training import TrainingObserver
from .dataloader import LoaderHooks
from .training_calls import compiling


def install_device(
    patches: Patches, training: TrainingObserver, write_facts: Callable[[], None], torch: ModuleType
) -> None:
    """Mark the stream once CUDA is in use. A CUDA context made here would break later forks that use CUDA."""

    def begin() -> None:
        device = CudaDevice(torch)
        training.state.marks = DeviceMarks(device)
        install_copies(patches, training, torch)
        watch_captures(patches, training, device, torch.cuda.CUDAGraph)
        write_facts()  # a process that is killed has told its device

    def make(original: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(original)
        def _lazy_init() -> None:
            original()
            if torch.cuda._lazy_init is not _lazy_init or not torch.cuda.is_initialized():
                return
            torch.cuda._lazy_init = original  # called before every CUDA call
            try:
                begin()
            except Exception as error:
                training.fail("cuda", error)

        return _lazy_init

    if torch.cuda.is_initialized():
        begin()
    else:
        patches.hook(torch, "cuda._lazy_init", make, "what the device does was")


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
    """Hook `Tensor.to` and `Tensor.cuda`, the hottest of all hooked calls, once a device is in use."""

    def hooked(original: Function) -> TensorMethod:
        return TensorMethod(original, _conversion(training, torch, original))

    patches.replace(torch.Tensor, "to", hooked)
    patches.replace(torch.Tensor, "cuda", hooked)


class TensorMethod:
    """Stand-in for a method of Tensor that equals it in tables in which `__torch_function__` looks it up."""

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
    """Return a function that records a span for copies to the device."""
    thread, tensor_type = training.thread, torch.Tensor
    always_leaves = original.__name__ == "cuda"

    def convert(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != thread.observed:
            return original(tensor, *args, **kwargs)
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


NAME = "_headrace_module_called"
"""Name of `ModelCalls.called` in the module that defines torch.nn.Module, while hooked."""
MOST_KNOWN = 4096
"""Maximum number of cached modules that are no model."""


def install_model_calls(
    patches: Patches, training: TrainingObserver, inputs: ModelInputs | None, torch: ModuleType
) -> None:
    """Watch for the model's call whenever the training thread has received a batch."""
    function = vars(torch.nn.Module).get("__call__")
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        patches.unknown("torch.nn.Module.__call__", "where the forward pass begins was")
        return
    if inputs is not None:
        inputs.install(patches, torch, compiling(torch), training.fault)
    calls = ModelCalls(training, function, inputs)
    function.__globals__[NAME] = calls.called
    patches.at_restore(calls.remove)
    work = training.work
    work.watch, work.ignore, work.is_hooked = calls.watch, calls.ignore, True


def _hooked(*args: Any, **kwargs: Any) -> Any:
    return _headrace_module_called(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821  # of torch's module


_HOOKED_CODE = _hooked.__code__


class ModelCalls:
    """Watch for module calls, through the code of the function that all of them run."""

    def __init__(self, training: TrainingObserver, function: FunctionType, inputs: ModelInputs | None) -> None:
        self._training = training
        self._inputs = inputs
        self._function = function
        self._code = function.__code__
        self._original = FunctionType(
            self._code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self._original.__kwdefaults__ = function.__kwdefaults__
        self._plain: dict[int, weakref.ref[Any]] = {}
        """Modules without parameters, such as transforms, by id."""

    def watch(self) -> None:
        self._function.__code__ = _HOOKED_CODE

    def ignore(self) -> None:
        """Stop observing; modules run as without a hook."""
        self._function.__code__ = self._code

    def remove(self) -> None:
        self.ignore()
        self._training.work.is_hooked = False
        self._function.__globals__.pop(NAME, None)

    def called(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self._look(args[0], args[1:], kwargs)
        except Exception as error:
            self._function.__code__ = self._code
            self._training.work.is_hooked = False
            self._training.fault("first call of the model", error)
        return self._original(*args, **kwargs)

    def _look(self, module: Any, args: Any, kwargs: Any) -> None:
        thread = self._training.thread
        if not self._training.work.is_under_way or thread.observed == NOBODY:
            self.ignore()
        elif get_ident() == thread.observed and not self._is_plain(module):
            self._training.model_called()
            if self._inputs is not None:
                self._inputs.called(module, args, kwargs)

    def _is_plain(self, module: Any) -> bool:
        """Return True for a module without parameters, such as a data transform or a loss."""
        known = self._plain.get(id(module))
        if known is not None and known() is module:
            return True
        if next(module.parameters(), None) is not None:
            return False
        if len(self._plain) >= MOST_KNOWN:
            self._plain.clear()
        self._plain[id(module)] = weakref.ref(module)
        return True


OWN_LOADERS = {
    "headrace.loader.position": ("LoaderPosition", "LoaderIterator"),  # base class of Loader and of mixtures
    "headrace.dropins.thread_loader.thread_dataloader": ("ThreadDataLoader", "ThreadLoaderIterator"),
}
"""Headrace's own loaders and their iterators, by the module that defines them."""
CARRIED = "_headrace_carried"
"""Attribute of a queue that a fetching thread fills: the queued batches, by id of the queued object."""


def install_own_loader(
    owner: str,
    iterator: str,
    when_imported: Callable[[str, Callable[[ModuleType], object]], None],
    patches: Patches,
    training: TrainingObserver,
    module: ModuleType,
) -> None:
    """Hook a loader and its iterator, by their names in the module, once torch is imported."""

    def install(_: ModuleType) -> None:
        iterators = getattr(module, iterator)
        hooks = LoaderHooks(training, iterators)
        patches.around(getattr(module, owner), "__iter__", hooks.iter)
        patches.around(iterators, "__next__", hooks.next)

    when_imported("torch", install)


# Batches that a thread of the user's or of a library prefetches and passes to the training thread.


def install_prefetcher(patches: Patches, training: TrainingObserver, prefetcher: ModuleType) -> None:
    """Hook headrace.device.prefetcher: its iterator passes on the batches of its own thread in order."""

    def take(original: Function, iterator: Any) -> Any:
        training.elsewhere.is_handed_over = True
        return _take(training, partial(original, iterator), lambda _: training.elsewhere.oldest())

    patches.around(prefetcher.PrefetchIterator, "__next__", take)


def install_queue(patches: Patches, training: TrainingObserver, queue: ModuleType) -> None:
    """Hook queue.Queue once another thread receives a batch: a wait at its queue is a wait for a batch."""
    elsewhere = training.elsewhere

    def put(original: Function, queue: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() in elsewhere.threads:
            carried = vars(queue).setdefault(CARRIED, {})
            if len(carried) >= MOST_ELSEWHERE:  # another thread takes them
                carried.clear()
            carried[id(item)] = elsewhere.put_on()
        return original(queue, item, *args, **kwargs)

    def get(original: Function, queue: Any, *args: Any, **kwargs: Any) -> Any:
        carried = vars(queue).get(CARRIED)
        if carried is None:
            return original(queue, *args, **kwargs)
        call = partial(original, queue, *args, **kwargs)
        return _take(training, call, lambda item: carried.pop(id(item), None))

    def install() -> None:
        patches.around(queue.Queue, "put", put)
        patches.around(queue.Queue, "get", get)

    elsewhere.at_first(install)


def _take(training: TrainingObserver, call: Callable[[], Any], batch_of: Callable[[Any], FetchedBatch | None]) -> Any:
    """Run `call` and record it as the wait for the batch that `batch_of` returns for its result."""
    if get_ident() != training.thread.observed or training.thread.is_fetching:
        return call()
    return training.wait("prefetcher", call, lambda item, start, end: training.adopt_batch(batch_of(item), start, end))
