"""Pixel fields with their windows: which of them draw together, and how certain a random view is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from headrace.doctor.adoption.leaf_fields import MadeField
from headrace.doctor.adoption.recipe import Certainty, RecipePart
from headrace.doctor.explain import LeafPlacement
from headrace.doctor.explain.look import LeafPath
from headrace.doctor.probe.look.held_objects import READ

_SAME_PLACE = 0.02
"""Maximum distance between the windows of fields that draw together, as a share of the file's sides."""
_TORCH = {"triangle": "bilinear", "bicubic": "bicubic"}
"""Filters of torch, by its names."""
_OWN = ("source=", "filter=")
"""Arguments that may differ between fields of the same image at other sizes."""
Shown = tuple[tuple[float, ...], ...]
"""Positions of random windows, as shares of their files, and whether each is flipped."""


@dataclass
class PlacedField:
    path: LeafPath
    name: str
    made: MadeField
    view: str
    placements: tuple[LeafPlacement, ...]
    augment: str | None = None
    filter: str | None = None
    """Filter, by its name in explanations."""
    shown: Shown = ()


def shown_of(placement: LeafPlacement, source: tuple[int, ...]) -> tuple[float, ...]:
    window, size = placement.window, placement.size
    top = window.top + placement.at[0] * window.height / size[0]
    left = window.left + placement.at[1] * window.width / size[1]
    return top / source[0], left / source[1], float(placement.is_flipped)


def are_drawn_together(one: Shown, other: Shown) -> bool:
    """Return True if windows are at the same places; a separate view would draw separately."""
    return bool(one) and len(one) == len(other) and bool(np.allclose(one, other, atol=_SAME_PLACE))


def resized_code(one: PlacedField, whole: PlacedField) -> str | None:
    """Return the code of an image that is another field's image resized, or None."""
    size, mode = one.made.size, _TORCH.get(one.filter or "")
    is_byte = 'dtype="float32"' not in one.made.arguments
    is_cut = mode == "bicubic" and any(each.startswith("normalize=") for each in one.made.arguments)
    kinds = [{each for each in field.made.arguments if not each.startswith(_OWN)} for field in (one, whole)]
    pairs = list(zip(one.placements, whole.placements, strict=False))
    if mode is None or is_cut or kinds[0] != kinds[1] or not pairs:
        return None
    if any(large.is_resampled or small != replace(large, size=size) for small, large in pairs):
        return None
    resized = f"torch.nn.functional.interpolate(batch[{whole.name!r}], {size}, mode={mode!r}, antialias=True)"
    return resized if is_byte or mode == "bilinear" else f"{resized}.clamp(0, 1)"


def drawn_otherwise(name: str, view: str, count: int) -> Iterator[RecipePart]:
    """Yield remarks about a view that was derived from the windows of a few samples."""
    if "pad_if_needed" in view:
        note = "small pictures lie anywhere in their padding, where the script may have its own place for them"
        yield RecipePart(name, "hr.RandomCrop", "check", note, "view")
    if "RandomScale" in view:
        note = "the Loader draws one scale for a whole batch, the script one for each sample"
        yield RecipePart(name, "hr.RandomScale", "differs", note, "view")
    elif "RandomResizedCrop" in view:
        note = f"the ranges of its windows are those of {count} that were seen"
        yield RecipePart(name, "hr.RandomResizedCrop", "check", note, "view")


def certainty_of(note: str) -> Certainty:
    """Return the certainty of a transform's part, by its note."""
    return "check" if note == READ or note.startswith("resampled") else "differs" if note else "exact"
