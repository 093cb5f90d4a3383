"""Decoded images, kept in the memory of each worker within a budget of bytes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from .applied import Applied
from .images_old import finish, is_unread, source_key
from .loaders import change

if TYPE_CHECKING:
    from ..probe import Probe

_BYTES = {"L": 1, "RGB": 4}
"""Of a pixel in Pillow's memory."""


def install(probe: Probe, limits: dict[str, int], applied: Applied) -> None:
    """`limits` has the `bytes` that each process may hold."""
    cache = _Cache(limits["bytes"], applied)
    probe.when_imported("PIL.ImageFile", cache.watch)
    probe.when_imported("torch.utils.data.dataloader", cache.watch_loaders)


def _keep_workers(probe: Probe, loader: Any) -> None:
    if probe.training.is_its_thread() and loader.num_workers and not loader.persistent_workers:
        change(loader, {"persistent_workers": True})


class _Cache:
    """What `load` gave, by where the image came from. What does not fit any more is not kept."""

    def __init__(self, most_bytes: int, applied: Applied) -> None:
        self._free = most_bytes
        self._images: dict[tuple[Any, ...], tuple[Any, dict[Any, Any]]] = {}
        self._applied = applied
        self._key = applied.guarded(lambda image: source_key(image) if is_unread(image) else None)
        self._give, self._keep = applied.guarded(self._give_kept), applied.guarded(self._keep_loaded)

    def watch(self, probe: Probe, image_file: Any) -> None:
        probe.patches.replace(image_file.ImageFile, "load", self.load)

    def watch_loaders(self, probe: Probe, dataloader: Any) -> None:
        """Workers live on from one epoch to the next: what they hold would go with them."""
        keep = self._applied.guarded(lambda loader: _keep_workers(probe, loader))

        def make(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @functools.wraps(original)
            def __iter__(loader: Any) -> Any:  # noqa: N807
                keep(loader)
                return original(loader)

            return __iter__

        probe.patches.replace(dataloader.DataLoader, "__iter__", make)

    def load(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def load(image: Any) -> Any:
            key = self._key(image)
            if key is None:
                return original(image)
            self._give(image, key)  # then there is nothing left to decode
            result = original(image)
            self._keep(image, key)
            return result

        return load

    def _give_kept(self, image: Any, key: tuple[Any, ...]) -> None:
        kept = self._images.get(key)
        if kept is not None:
            pixels, info = kept
            image.im = pixels.copy()
            image.info.update(info)
            finish(image)
            self._applied.took()

    def _keep_loaded(self, image: Any, key: tuple[Any, ...]) -> None:
        if key in self._images or image.mode not in _BYTES:
            return
        size = image.size[0] * image.size[1] * _BYTES[image.mode]
        if size <= self._free:
            self._free -= size
            self._images[key] = (image.im.copy(), dict(image.info))
