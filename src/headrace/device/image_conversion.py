"""Which tensors of a batch are images, and what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from headrace.device.conversion import Conversion
from headrace.device.nested import Path, map_tensors
from headrace.errors import UsageError

RGB = 3


class Images(Protocol):
    """Picks a batch's images."""

    def conversion_of(self, path: Path, tensor: Tensor) -> Conversion | None:
        """None: no image, copied as it is. Raises UsageError for one that cannot be converted."""
        ...

    def check(self, batch: Any) -> None:
        """Raises UsageError unless the batch has the images that are to be converted."""
        ...


class AnyImages:
    """Every tensor [N, 3, H, W] of bytes is an image. One of floats only changes its layout: whether it is 0…1, or
    normalised already, nothing tells."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._layout = Conversion(dtype=None, normalize=None, channels_last=conversion.channels_last)

    def conversion_of(self, path: Path, tensor: Tensor) -> Conversion | None:
        if tensor.ndim != 4 or tensor.is_nested or tensor.shape[1] != RGB:
            return None
        if tensor.dtype == torch.uint8:
            return self._conversion
        return self._layout if tensor.is_floating_point() else None

    def check(self, batch: Any) -> None:
        tensors = _tensors(batch)
        found = any(self.conversion_of(path, tensor) is self._conversion for path, tensor in tensors)
        if self._conversion.makes_floats and not found:
            raise UsageError(
                f"dtype, normalize: expected images as uint8 [N, 3, H, W] in the batch, got {_listed(tensors)}; leave "
                "bytes as they are in the dataset (no ToTensor), or name the images with images=[…]"
            )


class NamedImages:
    """The tensors under these keys, field names or positions, wherever in the batch."""

    def __init__(self, conversions: Mapping[str | int, Conversion]) -> None:
        self._conversions = conversions

    def conversion_of(self, path: Path, tensor: Tensor) -> Conversion | None:
        conversion = self._conversions.get(path[-1]) if path else None
        if conversion is not None:
            _check(path, tensor, conversion)
        return conversion

    def check(self, batch: Any) -> None:
        tensors = _tensors(batch)
        missing = self._conversions.keys() - {path[-1] for path, _ in tensors if path}
        if missing:
            names = ", ".join(sorted(map(repr, missing)))
            raise UsageError(f"images: expected tensors called {names} in the batch, got {_listed(tensors)}")


def _check(path: Path, tensor: Tensor, conversion: Conversion) -> None:
    what = f"images: expected {path[-1]!r} to be uint8 [N, C, H, W]"
    got = f"got {_kind(tensor)}"
    if tensor.ndim != 4 or tensor.is_nested or (conversion.makes_floats and tensor.dtype != torch.uint8):
        raise UsageError(f"{what}, {got}; leave bytes as they are in the dataset, or leave it out of images=")
    if conversion.normalize is not None and tensor.shape[1] != len(conversion.normalize.mean):
        count = len(conversion.normalize.mean)
        raise UsageError(f"{what} with C = {count} for normalize=, {got}; normalise it in the training step")


def _tensors(batch: Any) -> list[tuple[Path, Tensor]]:
    found: list[tuple[Path, Tensor]] = []

    def note(path: Path, tensor: Tensor) -> Tensor:
        found.append((path, tensor))
        return tensor

    map_tensors(batch, note)
    return found


def _listed(tensors: list[tuple[Path, Tensor]]) -> str:
    parts = (f"{'.'.join(map(str, path)) or 'a tensor'}: {_kind(tensor)}" for path, tensor in tensors)
    return "; ".join(parts) or "no tensor"


def _kind(tensor: Tensor) -> str:
    shape = "nested" if tensor.is_nested else list(tensor.shape)
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape}"
