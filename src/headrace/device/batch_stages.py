"""Work on a batch's images on the device, by numbers that the host has drawn and sent along with the batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headrace.augment import ONE, PAIRS


def mix_received(batch: Any) -> Any:
    """Return the batch with the images mixed whose pairs came with it, and without the pairs.

    Called once images have their final type.
    """
    names = [name for name in batch if isinstance(name, str) and name.startswith(PAIRS)] if type(batch) is dict else []
    if not names:
        return batch
    mixed = {name: value for name, value in batch.items() if name not in names}
    for name in names:
        field = name.removeprefix(PAIRS)
        mixed[field] = mix_pairs(mixed[field], batch[name])
    return mixed


def mix_pairs(images: Tensor, pairs: Tensor) -> Tensor:
    """Mix images [N, C, H, W], each with its neighbour, by int32 [N / 2, 5]: weight, left, top, right, bottom.

    Nothing waits for the device: boxes are masks. Whole numbers round half up, as in the core; floats are blended as
    float32, which differs from blending bytes and then normalising them (the core's way) by rounding alone: below
    2^-21 of the greatest normalised value. An image without a neighbour stays as it is.
    """
    paired = images[: 2 * len(pairs)]
    own = paired.unflatten(0, (len(pairs), 2))
    other = own.flip(1)
    weight, left, top, right, bottom = (pairs[:, k].view(-1, 1, 1, 1, 1) for k in range(5))
    rows = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    columns = torch.arange(images.shape[3], device=images.device)
    inside = (columns >= left) & (columns < right) & (rows >= top) & (rows < bottom)
    mixed = torch.where(inside, other, _blend(own, other, weight)).flatten(0, 1)
    return torch.cat([mixed, images[2 * len(pairs) :]]).contiguous(memory_format=_layout_of(images))


def _blend(own: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    if not own.is_floating_point():
        wide = torch.int32 if own.dtype == torch.uint8 else torch.int64
        blend = own.to(wide) * weight + other.to(wide) * (ONE - weight)
        return torch.div(blend + ONE // 2, ONE, rounding_mode="floor").to(own.dtype)
    share = weight.float() / ONE
    return (own.float() * share + other.float() * (1 - share)).to(own.dtype)


def _layout_of(images: Tensor) -> torch.memory_format:
    last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format
