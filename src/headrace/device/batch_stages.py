"""Work on a batch's images on the device, with numbers that the host has drawn and sent along with the batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headrace.augment import CHAINS, ONE, PAIRS
from headrace.device.colour_operations import erase_received, run_chains
from headrace.device.image_conversion import ImageSelector
from headrace.device.nested import map_tensors


def finish_batch(batch: Any, images: ImageSelector) -> Any:
    """Return the final batch on the device, without the numbers that were sent along.

    Colours are changed as bytes; then images get their final type; then they are erased and mixed.
    """
    if type(batch) is not dict:
        return map_tensors(batch, images.converted)
    chains, pairs = (_taken(batch, prefix) for prefix in (CHAINS, PAIRS))
    if not chains and not pairs:
        return map_tensors(batch, images.converted)
    sent = {name: value for name, value in batch.items() if not _is_note(name)}
    for field, each in chains.items():
        sent[field] = _each_image(sent[field], partial(run_chains, chains=each))
    finished: dict[Any, Any] = map_tensors(sent, images.converted)
    for field, each in chains.items():
        finished[field] = _each_image(finished[field], partial(erase_received, chains=each))
    return finished | {field: mix_pairs(finished[field], each) for field, each in pairs.items()}


def _is_note(name: object) -> bool:
    return isinstance(name, str) and name.startswith((CHAINS, PAIRS))


def _taken(batch: dict[Any, Any], prefix: str) -> dict[str, Any]:
    """Return the values sent along under this prefix, by field."""
    return {name.removeprefix(prefix): each for name, each in batch.items() if _is_note(name) and prefix in name}


def _each_image(images: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of [N, C, H, W] to images, or to images with copies as N x copies images."""
    if images.ndim == 4:
        return change(images)
    changed: Tensor = change(images.flatten(0, 1)).unflatten(0, images.shape[:2])
    return changed


def mix_pairs(images: Tensor, pairs: Tensor) -> Tensor:
    """Mix images [N, C, H, W], each with its neighbour, by int32 [N / 2, 5]: weight, left, top, right, bottom.

    Nothing waits for the device: boxes are masks. Integers round half up, as in the core. Floats are blended as
    float32, which differs only by rounding from the core's way of blending bytes and then normalising: below 2^-21 of
    the greatest normalised value. An image without a neighbour stays unchanged.
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
