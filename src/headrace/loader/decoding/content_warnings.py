"""Warnings about images that lose alpha or bits, or differ in size from what a plan was made for."""

from __future__ import annotations

from collections.abc import Callable, Container

import numpy as np
from numpy.typing import NDArray

from headrace.errors import warn_caller
from headrace.fields import Image, Spatial
from headrace.loader.decoding import pixels
from headrace.loader.recipe import Recipe
from headrace.plan import BatchPlan


class AlphaWarning:
    """Warning about the first image with alpha that varies, which a field without background drops."""

    _MOST_LOOKS = 16
    """Images that are decoded for their alpha; most datasets with alpha have it everywhere, or nowhere."""

    def __init__(self, recipe: Recipe) -> None:
        self._dataset, self._limits = recipe.dataset, recipe.limits
        self._looks = 0

    def look(self, sample: int, name: str, field: Spatial, read: Callable[[], bytes]) -> None:
        """Look at an image that may have alpha. Threads that look at once may warn twice."""
        if not isinstance(field, Image) or field.channels is not None or field.background is not None:
            return
        if self._looks >= self._MOST_LOOKS or not pixels.has_varying_alpha(read(), self._limits):
            self._looks += 1
            return
        self._looks = self._MOST_LOOKS
        warn_caller(
            f"field {name!r}: expected opaque images, got one with alpha, sample {self._dataset.key(sample)!r}: its "
            "alpha is dropped, which shows colours that no viewer shows. Composite such images by "
            "Image(background=(255, 255, 255)), or keep alpha by channels=4"
        )


class SourceWarnings:
    """Warnings about images that differ from what the dataset or a field declares, each given once."""

    def __init__(self, recipe: Recipe) -> None:
        self._dataset = recipe.dataset
        self._images, self._followers = recipe.images, recipe.followers
        self._sizes_differ = self._bits_lost = False

    def check_sizes(self, plan: BatchPlan, found: NDArray[np.int32], besides: Container[int]) -> None:
        """Compare the batch's (width, height) with the plan's; rows in `besides` have no image.

        An image of another size is cropped or padded to the shape planned for its batch.
        """
        if plan.view is None or plan.view.sources is None or self._sizes_differ or not self._followers:
            return
        planned = plan.view.sources
        odd = np.flatnonzero((planned[:, 0] > 0) & (planned != found[:, ::-1]).any(axis=1))
        row = next((row for row in odd.tolist() if row not in besides), None)
        if row is None:
            return
        self._sizes_differ = True
        (height, width), (wide, high) = planned[row].tolist(), found[row].tolist()
        warn_caller(
            f"field {self._images[0][0]!r}: expected sample {self._dataset.key(int(plan.samples[row]))!r} to be "
            f"{height} x {width} (height x width), as the dataset's columns or an earlier look at it said, got "
            f"{high} x {wide}; it is cut or filled up to the shape planned for its batch. Correct or leave out columns "
            "height and width"
        )

    def check_bits(self, narrowed: int) -> None:
        """Warn of the `narrowed` images of a batch: 16 bits per channel, read as 8 without the user's request."""
        if not narrowed or self._bits_lost:
            return
        names = [
            repr(name)
            for name, field, _ in self._images
            if isinstance(field, Image) and not field.wide and field.channels is None
        ]
        if not names:
            return
        self._bits_lost = True
        warn_caller(
            f"field {', '.join(names)}: expected images of 8 bits a channel, got some of 16 in "
            f"{self._dataset.table.source}: only "
            'their high byte is read. Image(channels=…, dtype="uint16") or "float32" keeps all 16 bits, and '
            'channels=1 or channels=3 with dtype="uint8" says that 8 are enough'
        )
