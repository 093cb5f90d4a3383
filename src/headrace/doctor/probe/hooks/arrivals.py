"""Batches that come from workers: which one it is, how long unpickling it takes, and pinning it."""

from __future__ import annotations

import functools
from multiprocessing.reduction import ForkingPickler
from time import thread_time_ns
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..passes import ATTRIBUTE, Reader
from ..training.training import now

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training.training import Training


def install(probe: Probe, dataloader: ModuleType) -> None:
    """Hooks torch.utils.data.dataloader."""
    hooks = Hooks(probe.training)
    install_iterator(probe, dataloader, "_MultiProcessingDataLoaderIter")
    probe.patches.replace(ForkingPickler, "loads", hooks.loads)
    probe.hook(dataloader, "_utils.pin_memory._pin_memory_loop", hooks.pin_memory_loop, "pinning was")
    probe.hook(dataloader, "_utils.pin_memory.pin_memory", hooks.pin_memory, "pinning was")


def install_iterator(probe: Probe, module: ModuleType, iterator: str) -> None:
    """Hooks an iterator over worker processes."""
    unseen = "batches that come out of order were"
    probe.hook(module, f"{iterator}._try_get_data", Hooks(probe.training).try_get_data, unseen)


class Hooks:
    """Each method takes what it stands for, and gives what stands for it."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def try_get_data(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Tells the index of a batch that is handed out as soon as it came, whatever the order."""

        @functools.wraps(original)
        def _try_get_data(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(iterator, *args, **kwargs)
            pass_ = getattr(iterator, ATTRIBUTE, None)
            if pass_ is not None and result[0] and type(result[1]) is tuple and type(result[1][0]) is int:
                pass_.index = result[1][0]
            return result

        return _try_get_data

    def loads(self, original: Callable[..., Any]) -> Any:
        current = self._training.readers.current

        def loads(*args: Any, **kwargs: Any) -> Any:
            reader = current()
            if reader is None:
                return original(*args, **kwargs)
            start, cpu = now(), thread_time_ns()
            value = original(*args, **kwargs)
            end, cpu = now(), thread_time_ns() - cpu
            try:
                reader.read(value, end, end - start, cpu)
            except Exception as error:
                self._training.fail("unpickling", error)
            return value

        return staticmethod(loads)

    def pin_memory_loop(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def _pin_memory_loop(*args: Any, **kwargs: Any) -> None:
            readers = self._training.readers
            readers.begin(Reader())
            try:
                original(*args, **kwargs)
            finally:
                readers.end()

        return _pin_memory_loop

    def pin_memory(self, original: Callable[..., Any]) -> Callable[..., Any]:
        current = self._training.readers.current

        @functools.wraps(original)
        def pin_memory(*args: Any, **kwargs: Any) -> Any:
            reader = current()
            if reader is None or reader.pinning:
                return original(*args, **kwargs)
            reader.pinning = True
            start = now()
            try:
                return original(*args, **kwargs)
            finally:
                reader.pinning = False
                reader.pin(start, now() - start)

        return pin_memory
