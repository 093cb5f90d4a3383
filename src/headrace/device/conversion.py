"""What becomes of an image on its device: cast, normalised and laid out in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from headrace.device import fused
from headrace.fields import DTYPES, DType, Normalize

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}


@dataclass(frozen=True)
class Conversion:
    """Of images [N, C, H, W]. uint8 becomes floats as `headrace.Image` makes them: `(byte - 255 mean) / (255 std)`,
    rounded once, so 0…1 without `normalize`, and the same bits on every device."""

    dtype: DType | None
    """None: the tensor's own."""
    normalize: Normalize | None
    channels_last: bool

    @property
    def makes_floats(self) -> bool:
        return self.dtype is not None and self.dtype != "uint8"

    def apply(self, image: Tensor) -> Tensor:
        """The converted image, on the image's own device; the image itself where nothing has to change."""
        if image.dtype == torch.uint8 and self.makes_floats:
            return self._floats(image)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        wanted = image.dtype if self.dtype is None else TORCH_DTYPES[self.dtype]
        return image.to(dtype=wanted, memory_format=layout)

    def _floats(self, image: Tensor) -> Tensor:
        assert self.dtype is not None
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        out = torch.empty(image.shape, dtype=TORCH_DTYPES[self.dtype], device=image.device, memory_format=layout)
        subtract, divide = scale(self.normalize, image.shape[1])
        if not fused.convert(image, out, subtract, divide):
            _convert_with_torch(image, out, subtract, divide)
        return out


@lru_cache(maxsize=16)
def scale(normalize: Normalize | None, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What is subtracted from each channel's bytes, and what they are divided by. float32, as in the core."""
    if normalize is None:
        return (0.0,) * channels, (255.0,) * channels
    single = torch.tensor([normalize.mean, normalize.std], dtype=torch.float64).mul(255).to(torch.float32).tolist()
    return tuple(single[0]), tuple(single[1])


def _convert_with_torch(image: Tensor, out: Tensor, subtract: tuple[float, ...], divide: tuple[float, ...]) -> None:
    """Three passes over memory where `fused` takes one."""
    columns: dict[str, Any] = {"dtype": torch.float32, "device": image.device}
    shape = (1, len(subtract), 1, 1)
    values = out if out.dtype == torch.float32 else torch.empty_like(out, dtype=torch.float32)
    values.copy_(image)
    values.sub_(torch.tensor(subtract, **columns).view(shape)).div_(torch.tensor(divide, **columns).view(shape))
    if values is not out:
        out.copy_(values)
