"""Images of a batch that the device decodes; the core decodes what the device cannot."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import ViewColumn
from headrace.fields import Image
from headrace.loader.batch_values import BatchRows
from headrace.loader.recipe import Recipe
from headrace.loader.stats import StageMeter

if TYPE_CHECKING:
    import torch


@dataclass
class DeviceImages:
    """Images of a batch on the device, with the views by which they are cut."""

    images: torch.Tensor
    """uint8 [N, 3, height, width]."""
    views: NDArray[np.float64]
    sizes: NDArray[np.int32]
    left: list[int]
    """Rows that the device cannot decode, or that the view does not fit."""

    def put(self, row: int, block: NDArray[np.uint8], *, channels_last: bool) -> None:
        """Copy a row that the core decoded into its own block of memory."""
        import torch

        _, channels, height, width = self.images.shape
        shape = (height, width, channels) if channels_last else (channels, height, width)
        values = torch.from_numpy(block[: math.prod(shape)].reshape(shape))
        self.images[row] = (values.permute(2, 0, 1) if channels_last else values).to(self.images.device)


class DeviceDecoding:
    """Decoding of a loader's only field of pixels on a device."""

    def __init__(self, recipe: Recipe) -> None:
        import torch

        from headrace.device import ImageDecoder

        _, field, _ = recipe.images[0]
        assert isinstance(field, Image), "`check_device_decoding` has refused others"
        assert recipe.decode_on is not None
        assert recipe.program.output_size is not None
        self._ops, self._size, self._limits = recipe.program.ops, recipe.program.output_size, recipe.limits
        self._exif = field.exif
        self._decoder = ImageDecoder(torch.device(recipe.decode_on), threads=recipe.threads)
        self._layout = torch.channels_last if field.channels_last else torch.contiguous_format
        self.meter = StageMeter()

    def decode(self, rows: BatchRows, encoded: Sequence[bytes]) -> DeviceImages:
        """Decode the images of a batch's rows; empty bytes stand for images that were not read."""
        import torch

        began_s = time.perf_counter()
        streams = [None if self._is_turned(data) else self._decoder.opened(data) for data in encoded]
        sizes = np.array([(0, 0) if one is None else (one.width, one.height) for one in streams], np.int32)
        sizes = sizes.reshape(-1, 2)
        pixels = sizes.astype(np.int64).prod(axis=1)
        known = np.flatnonzero((pixels > 0) & (pixels <= self._limits.max_pixels))
        views = np.zeros((len(rows), len(ViewColumn)))
        views[known] = self._views(rows[known.tolist()], sizes[known])
        height, width = self._size
        whole = (0, 0, width, height)
        inner = views[:, ViewColumn.INNER_X : ViewColumn.INNER_HEIGHT + 1]
        as_read = views[:, ViewColumn.TRANSPOSED] == 0
        asked = np.flatnonzero((inner == whole).all(axis=1) & as_read)  # others are padded, turned, or have no view
        table = torch.from_numpy(views[asked])
        images, are_decoded = self._decoder.decode(
            [streams[row] for row in asked.tolist()],
            table[:, ViewColumn.X0 : ViewColumn.Y1 + 1],
            table[:, ViewColumn.LEFT : ViewColumn.BOTTOM + 1].long(),
            table[:, ViewColumn.HFLIP : ViewColumn.VFLIP + 1].bool(),
            self._size,
        )
        if len(asked) < len(rows):
            every = torch.zeros((len(rows), *images.shape[1:]), dtype=images.dtype, device=images.device)
            every[asked] = images
            images = every
        made = set(asked[are_decoded].tolist())
        self.meter.add(time.perf_counter() - began_s, len(made), sum(len(encoded[row]) for row in made))
        return DeviceImages(images, views, sizes, [row for row in range(len(rows)) if row not in made])

    def _is_turned(self, encoded: bytes) -> bool:
        """Return True for an image that its EXIF orientation turns, which is left to the core."""
        return self._exif and _core.exif_orientation(encoded, self._limits) != 1

    def _views(self, rows: BatchRows, sizes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the views of rows; 0 for a view that does not fit its image."""
        widths, heights = np.ascontiguousarray(sizes.T)
        try:
            views: NDArray[np.float64] = _core.sample_views(
                self._ops, rows.key, rows.draw_ids, rows.passes, 0, widths, heights
            )
        except ValueError:  # one does not fit: the core says why when it decodes the row
            if len(rows) == 1:
                return np.zeros((1, len(ViewColumn)))
            parts = [self._views(rows[at : at + 1], sizes[at : at + 1]) for at in range(len(rows))]
            return np.concatenate(parts)
        return views

    def finished(self, images: torch.Tensor) -> torch.Tensor:
        """Return images in the field's layout."""
        return images.contiguous(memory_format=self._layout)
