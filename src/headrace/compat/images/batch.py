"""Many images at once: decoded side by side, delivered in order, all of one size."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.compat.images.errors import at_item
from headrace.dropins.image_source import ImageSource, origin_of
from headrace.errors import HeadraceError, UsageError
from headrace.feed.python_threads import PythonThreads
from headrace.loader import default_threads


def decode_all(decode: Callable[[int], NDArray[Any]], count: int, threads: int | None) -> list[NDArray[Any]]:
    """What `decode` gives for each item, in order. Raises its first error, which then names the item."""
    threads = min(_default_threads() if threads is None else _checked(threads), count)

    def one(item: int) -> NDArray[Any]:
        try:
            return decode(item)
        except HeadraceError as error:
            raise at_item(error, item) from error

    if threads <= 1:
        return [one(item) for item in range(count)]
    pool = PythonThreads(threads)
    try:
        return pool.each(one, range(count))
    finally:
        pool.join()


def stack(images: Sequence[NDArray[Any]], sources: Sequence[ImageSource]) -> NDArray[Any]:
    """[N, …] of images of one shape. Raises UsageError that names the first two that differ, or for none at all."""
    if not images:
        raise UsageError("expected at least one image, got an empty list: its batch would have no size")
    for item, image in enumerate(images):
        if image.shape != images[0].shape:
            raise UsageError(
                f"expected images of one size, got {_named(sources, images, 0)} and {_named(sources, images, item)}; "
                "give a view that fixes the size, such as Resize((height, width)), or take them one by one with "
                "decode_image"
            )
    return np.stack(images)


def _named(sources: Sequence[ImageSource], images: Sequence[NDArray[Any]], item: int) -> str:
    return f"{images[item].shape} (sources[{item}], {origin_of(sources[item])[0]!r})"


def _default_threads() -> int:
    """One in a worker process of a DataLoader, beside which the other workers have the other cores."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return 1 if worker is not None and worker._worker_info is not None else default_threads()


def _checked(threads: int) -> int:
    if type(threads) is not int or threads < 1:
        raise UsageError(f"threads: expected an int of at least 1, got {threads!r}")
    return threads
