"""The next batch on the device while this one is trained on: headrace's DevicePrefetcher around a loader."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from .applied import Applied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..probe import Probe


def install(probe: Probe, _: bool, applied: Applied) -> None:
    prefetch = _Prefetch(probe, applied)
    probe.when_imported("torch.utils.data.dataloader", prefetch.watch)


class _Prefetch:
    """Every loader that is iterated to train from: in the training thread, with gradients, where CUDA is in use."""

    def __init__(self, probe: Probe, applied: Applied) -> None:
        self._training = probe.training
        self._applied = applied
        self._is_opening = False
        self._prefetcher = applied.guarded(self._prefetcher_of)

    def watch(self, probe: Probe, dataloader: Any) -> None:
        probe.patches.replace(dataloader.DataLoader, "__iter__", self.iter)

    def iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            prefetcher = None if self._is_opening else self._prefetcher(functools.partial(original, loader))
            if prefetcher is None:
                return original(loader)
            self._is_opening = True
            try:
                return iter(prefetcher)
            finally:
                self._is_opening = False

        return __iter__

    def _prefetcher_of(self, begin: Callable[[], Iterator[Any]]) -> Any:
        import torch

        training = self._training
        if not training.is_its_thread() or training.is_fetching or not torch.is_grad_enabled():
            return None
        device = cuda_device(torch)
        if device is None:
            self._applied.refused("no CUDA device is in use")
            return None
        try:
            from headrace import DevicePrefetcher
        except ImportError as error:
            self._applied.refused(f"headrace is not installed in the environment of the command ({error})")
            return None
        self._applied.took(f"to {device}")
        return DevicePrefetcher(_Source(begin), device)


def cuda_device(torch: Any) -> str | None:
    """The current one; None where this process has not begun to use any, and nothing of ours may begin it."""
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_initialized() else None


class _Source:
    """One pass of a loader, as something to iterate over."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()
