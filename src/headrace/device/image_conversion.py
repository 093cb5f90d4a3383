"""Conversion of uint8 images to normalised floats on the device, in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from headrace.device.nested import Path, map_tensors
from headrace.errors import UsageError, warn_caller
from headrace.fields import DTYPES, DType, Normalize

MOST_CHANNELS = 4
BLOCK = 4096
"""Elements of one program; 32 per thread, so that bytes are loaded 16 at a time."""

_unusable = False
"""True if Triton is installed and has failed."""


def convert_fused(image: Tensor, out: Tensor, subtract: tuple[float, ...], divide: tuple[float, ...]) -> bool:
    """Write `(image - subtract) / divide` into `out`, both [N, C, H, W]. Return False if that is not possible.

    It needs CUDA and Triton, at most four channels, and memory without gaps.
    """
    if image.device.type != "cuda" or len(subtract) > MOST_CHANNELS or not image.numel():
        return False
    global _unusable
    kernel = load_kernel()
    if _unusable or kernel is None or (strides := dense_strides(image, out)) is None:
        return False
    try:
        launch_kernel(kernel, image, out, strides, subtract, divide)
    except Exception as error:
        # Triton compiles at the first launch, which needs a C compiler, Python's headers and a supported GPU. Many
        # containers lack them. From then on, torch does all the work.
        _unusable = True
        warn_caller(
            f"Triton is installed but cannot be used ({type(error).__name__}: {error}); images are converted by torch, "
            "to the same bits in three passes over memory. It needs a C compiler, such as gcc, and Python's headers; "
            "without them, uninstall triton to be rid of this warning",
            RuntimeWarning,
        )
        return False
    return True


def dense_strides(image: Tensor, out: Tensor) -> tuple[bool, bool] | None:
    """Return for image and output whether each is channels-last; None if one of them is dense in neither layout."""
    layouts = []
    for tensor in (image, out):
        last = tensor.is_contiguous(memory_format=torch.channels_last)
        if not last and not tensor.is_contiguous():
            return None
        layouts.append(last)
    return layouts[0], layouts[1]


def launch_kernel(
    kernel: Any,
    image: Tensor,
    out: Tensor,
    channels_last: tuple[bool, bool],
    subtract: tuple[float, ...],
    divide: tuple[float, ...],
) -> None:
    """Launch the kernel on the current stream.

    A tensor that is dense in both layouts (one channel, one pixel) counts as either.
    """
    channels, pixels = image.shape[1], image.shape[2] * image.shape[3]
    pad = (0.0,) * (MOST_CHANNELS - channels), (1.0,) * (MOST_CHANNELS - channels)
    scales = (*subtract, *pad[0], *divide, *pad[1])
    total = image.numel()
    grid = (-(-total // BLOCK),)
    with torch.cuda.device_of(image):
        kernel[grid](image, out, total, pixels, *scales, channels, *channels_last, BLOCK)


@cache
def load_kernel() -> Any:
    """Return the compiled kernel's handle; None without Triton."""
    try:
        from headrace.device.triton_kernel import normalise_bytes
    except ImportError:
        return None
    return normalise_bytes


TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}


@dataclass(frozen=True)
class Conversion:
    """Conversion of images [N, C, H, W] or [N, copies, C, H, W]. uint8 becomes floats, as in `headrace.Image`.

    `(byte - 255 mean) / (255 std)`, rounded once, so 0…1 without `normalize`, and the same bits on every device.
    """

    dtype: DType | None
    """Target dtype; None for the tensor's own."""
    normalize: Normalize | None
    channels_last: bool

    @property
    def makes_floats(self) -> bool:
        return self.dtype is not None and self.dtype != "uint8"

    def apply(self, image: Tensor) -> Tensor:
        """Return the converted image, on its own device; the image itself if nothing has to change.

        Copies, [N, copies, C, H, W], are converted as N x copies images.
        """
        if image.ndim == WITH_COPIES:
            each = self.apply(image.flatten(0, 1))
            return each.view(*image.shape[:2], *each.shape[1:])
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        wanted = image.dtype if self.dtype is None else TORCH_DTYPES[self.dtype]
        if image.dtype != torch.uint8 or not self.makes_floats:
            return image.to(dtype=wanted, memory_format=layout)
        out = torch.empty(image.shape, dtype=wanted, device=image.device, memory_format=layout)
        subtract, divide = channel_scale(self.normalize, image.shape[1])
        if not convert_fused(image, out, subtract, divide):
            _convert_with_torch(image, out, subtract, divide)
        return out


@lru_cache(maxsize=16)
def channel_scale(normalize: Normalize | None, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the subtrahend and the divisor of each channel's bytes. float32, as in the core."""
    if normalize is None:
        return (0.0,) * channels, (255.0,) * channels
    single = torch.tensor([normalize.mean, normalize.std], dtype=torch.float64).mul(255).to(torch.float32).tolist()
    return tuple(single[0]), tuple(single[1])


def _convert_with_torch(image: Tensor, out: Tensor, subtract: tuple[float, ...], divide: tuple[float, ...]) -> None:
    """Convert in three passes over memory instead of one, as the fused kernel does."""
    values = out if out.dtype == torch.float32 else torch.empty_like(out, dtype=torch.float32)
    values.copy_(image)
    values.sub_(_filled(subtract, image.device)).div_(_filled(divide, image.device))
    if values is not out:
        out.copy_(values)


def _filled(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a number per channel as float32 [1, C, 1, 1], filled in there.

    `torch.tensor(values, device=)` would copy from ordinary memory, and the host would wait for the stream.
    """
    different = values if len(set(values)) > 1 else values[:1]
    return torch.cat([torch.full((1, 1, 1, 1), value, dtype=torch.float32, device=device) for value in different], 1)


RGB = 3
IMAGES, WITH_COPIES = 4, 5
"""Dimensions of images, and of images with copies of each sample."""


class ImageSelector(Protocol):
    """Selector of a batch's images."""

    def conversion_of(self, path: Path, tensor: Tensor) -> Conversion | None:
        """Return the conversion of a tensor; None for other tensors. Raises UsageError for an inconvertible image."""
        ...

    def check(self, batch: Any) -> None:
        """Raise UsageError unless the batch has the images to convert."""
        ...

    def converted(self, path: Path, tensor: Tensor) -> Tensor:
        """Return an image in its final form, any other tensor unchanged."""
        conversion = self.conversion_of(path, tensor)
        return tensor if conversion is None else conversion.apply(tensor)


class AnyImages(ImageSelector):
    """Selector of every tensor [N, 3, H, W] of bytes.

    Float images only change their layout: nothing shows whether they are 0…1 or normalised already.
    """

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


class NamedImages(ImageSelector):
    """Selector of the tensors under these keys, field names or positions, wherever in the batch."""

    def __init__(self, conversions: Mapping[str | int, Conversion]) -> None:
        self._conversions = conversions

    def conversion_of(self, path: Path, tensor: Tensor) -> Conversion | None:
        conversion = self._conversions.get(path[-1]) if path else None
        if conversion is None:
            return None
        what, got = f"images: expected {path[-1]!r} to be uint8 [N, C, H, W]", f"got {_kind_of_tensor(tensor)}"
        if (
            tensor.ndim not in (IMAGES, WITH_COPIES)
            or tensor.is_nested
            or (conversion.makes_floats and tensor.dtype != torch.uint8)
        ):
            raise UsageError(f"{what}, {got}; leave bytes as they are in the dataset, or leave it out of images=")
        if conversion.normalize is not None and tensor.shape[-3] != len(conversion.normalize.mean):
            count = len(conversion.normalize.mean)
            raise UsageError(f"{what} with C = {count} for normalize=, {got}; normalise it in the training step")
        return conversion

    def check(self, batch: Any) -> None:
        tensors = _tensors(batch)
        missing = self._conversions.keys() - {path[-1] for path, _ in tensors if path}
        if missing:
            names = ", ".join(sorted(map(repr, missing)))
            raise UsageError(f"images: expected tensors called {names} in the batch, got {_listed(tensors)}")


def _tensors(batch: Any) -> list[tuple[Path, Tensor]]:
    found: list[tuple[Path, Tensor]] = []

    def note(path: Path, tensor: Tensor) -> Tensor:
        found.append((path, tensor))
        return tensor

    map_tensors(batch, note)
    return found


def _listed(tensors: list[tuple[Path, Tensor]]) -> str:
    parts = (f"{'.'.join(map(str, path)) or 'a tensor'}: {_kind_of_tensor(tensor)}" for path, tensor in tensors)
    return "; ".join(parts) or "no tensor"


def _kind_of_tensor(tensor: Tensor) -> str:
    shape = "nested" if tensor.is_nested else list(tensor.shape)
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape}"
