"""One pass on the device over bytes that become normalised floats: one read and one write of memory, in Triton."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

MOST_CHANNELS = 4
BLOCK = 4096
"""Elements of one program; 32 a thread, so that bytes are loaded 16 at a time."""

_unusable = False
"""Whether Triton is here and has failed."""


def convert(image: Tensor, out: Tensor, subtract: tuple[float, ...], divide: tuple[float, ...]) -> bool:
    """Writes `(image - subtract) / divide` into `out`, both [N, C, H, W], or returns False where this cannot be done
    here: without CUDA or Triton, with more than four channels, or for memory that has gaps."""
    if image.device.type != "cuda" or len(subtract) > MOST_CHANNELS or not image.numel():
        return False
    kernel = load_kernel()
    if kernel is None or (strides := dense_strides(image, out)) is None:
        return False
    return _launched(kernel, image, out, strides, subtract, divide)


def dense_strides(image: Tensor, out: Tensor) -> tuple[bool, bool] | None:
    """Whether the image, and whether the output, is channels-last. None where one of them is dense in neither way."""
    layouts = []
    for tensor in (image, out):
        last = tensor.is_contiguous(memory_format=torch.channels_last)
        if not last and not tensor.is_contiguous():
            return None
        layouts.append(last)
    return layouts[0], layouts[1]


def launch(
    kernel: Any,
    image: Tensor,
    out: Tensor,
    channels_last: tuple[bool, bool],
    subtract: tuple[float, ...],
    divide: tuple[float, ...],
) -> None:
    """On the current stream. A tensor that is dense in both layouts (one channel, one pixel) counts as either."""
    channels, pixels = image.shape[1], image.shape[2] * image.shape[3]
    pad = (0.0,) * (MOST_CHANNELS - channels), (1.0,) * (MOST_CHANNELS - channels)
    scales = (*subtract, *pad[0], *divide, *pad[1])
    total = image.numel()
    grid = (-(-total // BLOCK),)
    with torch.cuda.device_of(image):
        kernel[grid](image, out, total, pixels, *scales, channels, *channels_last, BLOCK)


def _launched(kernel: Any, *arguments: Any) -> bool:
    """Triton compiles at the first launch, for which it wants a C compiler, Python's headers and a GPU it supports;
    many containers have it without these. Says so once, and leaves this and what follows to torch."""
    global _unusable
    if _unusable:
        return False
    try:
        launch(kernel, *arguments)
    except Exception as error:
        _unusable = True
        warnings.warn(
            f"Triton is installed but cannot be used ({type(error).__name__}: {error}); images are converted by torch, "
            "to the same bits in three passes over memory. It needs a C compiler, such as gcc, and Python's headers; "
            "without them, uninstall triton to be rid of this warning",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


@cache
def load_kernel() -> Any:
    """The compiled kernel's handle, or None where there is no Triton."""
    try:
        from headrace.device.triton_kernel import normalise_bytes
    except ImportError:
        return None
    return normalise_bytes
