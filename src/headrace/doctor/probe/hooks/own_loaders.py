"""Headrace's own loaders, whose iterators are none of DataLoader's: what the training thread waits for at them."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from .dataloader import Hooks

if TYPE_CHECKING:
    from ..probe import Probe


def watch_loader(probe: Probe, position: ModuleType) -> None:
    """Hooks headrace.loader_position, the base of Loader and of mixtures, once there is torch to train with."""
    probe.when_imported("torch", partial(_install, owner=position.LoaderPosition, iterator=position.LoaderIterator))


def watch_thread_loader(probe: Probe, loader: ModuleType) -> None:
    """Hooks headrace.compat.thread_loader.loader."""
    owner, iterator = loader.ThreadDataLoader, loader.ThreadLoaderIterator
    probe.when_imported("torch", partial(_install, owner=owner, iterator=iterator))


def _install(probe: Probe, torch: ModuleType, *, owner: type, iterator: type) -> None:
    hooks = Hooks(probe, torch.utils.data.dataloader, iterator)
    probe.patches.replace(owner, "__iter__", hooks.iter)
    probe.patches.replace(iterator, "__next__", hooks.next)
