"""Operations on the colours of a batch's images, on any device, equal to the core's operations on the CPU.

Each takes bytes [K, C, H, W] of one or three channels and a row of numbers for each image, and returns bytes of the
same shape. The formula is the core's (core/augment/augment_kernels.inl): the same steps in float32 or integers, in the
same order, each rounded once. Nothing waits for the device.

On the CPU the bits are the core's. Elsewhere a device that fuses a multiply and an add may differ by one level per
operation; compiled operations may do so on the CPU as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from headrace.augment import (
    AUTOCONTRAST,
    BRIGHTNESS,
    CONTRAST,
    EQUALIZE,
    GAUSSIAN_BLUR,
    GRAYSCALE,
    HUE,
    INVERT,
    PERMUTE_CHANNELS,
    POSTERIZE,
    SATURATION,
    SHARPNESS,
    SOLARIZE,
    SOLARIZE_ADD,
    BatchedChains,
)

Operation: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function of images, of rows of numbers, and of taps, which only a blur has."""


def run_chains(images: Tensor, chains: BatchedChains) -> Tensor:
    """Return bytes [N, C, H, W] after the operations of each image's chain, all first ones before all second ones."""
    if not chains.steps:
        return images
    done = images.clone()  # the images' memory may belong to others
    for kind, start, stop, first_taps in chains.steps:
        rows, numbers = chains.rows[start:stop], chains.numbers[start:stop]
        taps = chains.taps[first_taps : first_taps + stop - start]
        operation = _compiled(kind) if chains.compiled else OPERATIONS[kind]
        if len(rows) == len(images):
            done = operation(done, numbers, taps)
        else:
            done[rows] = operation(done[rows], numbers, taps)
    return done if done.stride() == images.stride() else torch.empty_like(images).copy_(done)


def erase_received(images: Tensor, chains: BatchedChains) -> Tensor:
    """Return images of their final type with the boxes of the chains' erasures set to their values."""
    for erasures in chains.erasures.split(chains.rounds):
        images = _with_boxes(images, erasures)
    return images


def _with_boxes(images: Tensor, erasures: Tensor) -> Tensor:
    """Return images with erased boxes, from float32 [M, 8]: row (each image once), box, and a value per channel.

    The box is left, top, width, height.
    """
    rows = erasures[:, 0].long()
    left, top, width, height = (erasures[:, k].view(-1, 1, 1, 1) for k in range(1, 5))
    columns = torch.arange(images.shape[3], device=images.device)
    lines = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    inside = (columns >= left) & (columns < left + width) & (lines >= top) & (lines < top + height)
    values = erasures[:, 5 : 5 + images.shape[1], None, None]
    if not images.is_floating_point():
        values = values.clamp(0, 255)
    erased = images.clone(memory_format=torch.preserve_format)
    erased[rows] = torch.where(inside, values.to(images.dtype), images[rows])
    return erased


def _of(numbers: Tensor, column: int = 0) -> Tensor:
    return numbers[:, column].view(-1, 1, 1, 1)


def _bytes(values: Tensor) -> Tensor:
    return values.clamp(0, 255).to(torch.uint8)


_LUMA = 1253677, 2462056, 478151
"""Weights 0.2989, 0.587 and 0.114 in 1/2^22."""


def _luma(images: Tensor) -> Tensor:
    """Return the brightness of each pixel, truncated to integers: int32 [K, 1, H, W]."""
    red, green, blue = (images[:, k : k + 1].int() * weight for k, weight in enumerate(_LUMA))
    return (red + green + blue + 256) >> 22


def _towards(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    """Move bytes by `1 - factor` of their distance to others: the product's floor, the share in 1/2^(16 - shift).

    The shift is the smallest, from 1 on, with which 16 bits hold the share.
    """
    value = (1 - factor).clamp(-63.9, 63.9)
    shift = torch.ones_like(value, dtype=torch.int32)
    for each in range(1, 7):
        shift += (value.abs() * (1 << (16 - each)) > 32767).to(torch.int32)
    bits = 16 - shift
    scaled = value * (1 << bits).float()
    share = torch.where(scaled < 0, scaled - 0.5, scaled + 0.5).trunc().to(torch.int32)
    own = images.int()
    return _bytes(own + ((other - own) * share >> bits))


def _is_grey(images: Tensor) -> bool:
    return images.shape[1] == 1


def _brightness(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    return _bytes(images.float() * _of(numbers))


def _contrast(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    luma = images if _is_grey(images) else _luma(images)
    pixels = images.shape[2] * images.shape[3]
    mean = (luma.long().sum((1, 2, 3), keepdim=True).double() / pixels).float()
    factor = _of(numbers)
    return _bytes(images.float() * factor + mean * (1 - factor))


def _saturation(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    if _is_grey(images):
        return images
    return _towards(images, _luma(images), _of(numbers))


def _hue(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    """Rotate hues in sixteenths of a level: only range * hue is needed, with the hue in sixths from cyan."""
    if _is_grey(images):
        return images
    turn = _of(numbers) * 6 * 4096
    turn = torch.where(turn < 0, turn - 0.5, turn + 0.5).trunc().to(torch.int32)
    red, green, blue = (images[:, k : k + 1].int() for k in range(3))
    most, least = (torch.maximum(red, torch.maximum(green, blue)), torch.minimum(red, torch.minimum(green, blue)))
    span = most - least
    from_most = torch.where(green == most, blue - red - span, red - green + span)
    from_most = torch.where(red == most, green - blue - 3 * span, from_most)
    unit = span * 16
    turned = from_most * 16 + (span * turn + 128 >> 8)
    turned = torch.where(turned < -3 * unit, turned + 6 * unit, turned)
    turned = torch.where(turned >= 3 * unit, turned - 6 * unit, turned)
    shares = [turned.abs() - unit, 2 * unit - (turned + unit).abs(), 2 * unit - (turned - unit).abs()]
    channels = [least * 16 + torch.minimum(share, unit).clamp(min=0) for share in shares]
    return torch.cat([_bytes(each + (each * _HUE_SCALE >> 16) >> 4) for each in channels], dim=1)


_HUE_SCALE = 257
"""Scale of a hue's result: torchvision multiplies fractions of one by 255.999 and truncates; here by 1 + 257/65536."""


def _grayscale(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    return images if _is_grey(images) else _luma(images).to(torch.uint8).expand(-1, 3, -1, -1)


def _invert(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    return 255 - images


def _solarize(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    return torch.where(images >= _of(numbers).clamp(0, 256).ceil(), 255 - images, images)


def _solarize_add(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    addend, threshold = _of(numbers).trunc(), _of(numbers, 1).trunc()
    return torch.where(images < threshold, _bytes(images.float() + addend), images)


def _posterize(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    bits, how = _of(numbers), _of(numbers, 1)
    whole = torch.where(how == 0, bits.round(), torch.where(how == 1, bits.floor(), bits.ceil()))
    return images & (0xFF << (8 - whole.clamp(0, 8).to(torch.int32)) & 0xFF).to(torch.uint8)


def _autocontrast(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    low, high = (each.float() for each in (images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)))
    flat = low == high
    by = torch.where(flat, 1.0, (high - low) * float(np.float32(1) / np.float32(255)))
    return _bytes((images.float() - torch.where(flat, 0.0, low)) / by)


def _equalize(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    pixels = images.shape[2] * images.shape[3]
    values = images.flatten(2).long()
    counts = torch.zeros(*values.shape[:2], 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, values, torch.ones_like(values))
    places = torch.arange(256, device=images.device)
    last = torch.where(counts > 0, places, 0).amax(2, keepdim=True)
    step = (pixels - counts.gather(2, last)) // 255
    levels = (counts.cumsum(2) - counts + step // 2) // step.clamp(min=1)
    table = torch.where(step == 0, places, levels.clamp(max=255))
    return table.gather(2, values).view(images.shape).to(torch.uint8)


def _permute_channels(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    if _is_grey(images):
        return images
    order = numbers[:, :3].long().view(-1, 3, 1, 1)
    return images.gather(1, order.expand(images.shape))


def _sharpness(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    height, width = images.shape[2:]
    if height <= 2 or width <= 2:
        return images
    wide = images.int()
    total = 4 * wide[:, :, 1:-1, 1:-1]
    for down in range(3):
        for right in range(3):
            total = total + wide[:, :, down : height - 2 + down, right : width - 2 + right]
    sharpened, inner = images.clone(), images[:, :, 1:-1, 1:-1]
    sharpened[:, :, 1:-1, 1:-1] = _towards(inner, (total + 6) // 13, _of(numbers))
    return sharpened


def _blur(images: Tensor, numbers: Tensor, taps: Tensor) -> Tensor:
    """Blur in 1/64 levels; each tap's product is rounded to 1/64. `taps` is int32 [K, 2, T], the middle first."""
    values = images.int() << 6
    for axis, place in ((3, 0), (2, 1)):
        values = _blurred(values, taps[:, place], axis)
    return _bytes((values + 32) >> 6)


def _blurred(values: Tensor, taps: Tensor, axis: int) -> Tensor:
    size = values.shape[axis]
    places = torch.arange(size, device=values.device)
    total = _scaled(values, taps[:, 0])
    for k in range(1, taps.shape[1]):
        both = values.index_select(axis, _reflected(places - k, size))
        total = total + _scaled(both + values.index_select(axis, _reflected(places + k, size)), taps[:, k])
    return total


def _scaled(values: Tensor, tap: Tensor) -> Tensor:
    return ((values * tap.view(-1, 1, 1, 1) >> 14) + 1) >> 1


def _reflected(places: Tensor, size: int) -> Tensor:
    """Return the places mirrored into 0 to size - 1; the edge itself does not repeat."""
    if size == 1:
        return torch.zeros_like(places)
    return size - 1 - (places % (2 * size - 2) - (size - 1)).abs()


OPERATIONS: dict[int, Operation] = {
    BRIGHTNESS: _brightness,
    CONTRAST: _contrast,
    SATURATION: _saturation,
    HUE: _hue,
    GRAYSCALE: _grayscale,
    INVERT: _invert,
    SOLARIZE: _solarize,
    POSTERIZE: _posterize,
    AUTOCONTRAST: _autocontrast,
    EQUALIZE: _equalize,
    SHARPNESS: _sharpness,
    GAUSSIAN_BLUR: _blur,
    PERMUTE_CHANNELS: _permute_channels,
    SOLARIZE_ADD: _solarize_add,
}


@cache
def _compiled(kind: int) -> Operation:
    compiled: Operation = torch.compile(OPERATIONS[kind], dynamic=True)
    return compiled
