"""Fields of pixels with the windows that they show: which of them draw together, and how sure a drawn view is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..explain import LeafPlacement
from ..explain.look import LeafPath
from ..probe.own_transforms import READ
from .leaf_fields import MadeField
from .recipe import Certainty, RecipePart

_SAME_PLACE = 0.02
"""Share of a file's sides by which two fields that draw together may begin elsewhere."""
_TORCH = {"triangle": "bilinear", "bicubic": "bicubic"}
"""Filters that torch has, by its names."""
_OWN = ("source=", "filter=")
"""Arguments in which a field may differ from one that shows the same at another size."""
Shown = tuple[tuple[float, ...], ...]
"""Where the windows of drawn leaves begin, in shares of their files, and whether each is flipped."""


@dataclass
class PlacedField:
    """Field of pixels, and the windows that it shows."""

    path: LeafPath
    name: str
    made: MadeField
    view: str
    placements: tuple[LeafPlacement, ...]
    augment: str | None = None
    filter: str | None = None
    """As explanations name it."""
    shown: Shown = ()


def shown_of(placement: LeafPlacement, source: tuple[int, ...]) -> tuple[float, ...]:
    window, size = placement.window, placement.size
    top = window.top + placement.at[0] * window.height / size[0]
    left = window.left + placement.at[1] * window.width / size[1]
    return top / source[0], left / source[1], float(placement.is_flipped)


def are_drawn_together(one: Shown, other: Shown) -> bool:
    """Tell whether windows show parts of the same places: a view of its own draws by itself."""
    return bool(one) and len(one) == len(other) and bool(np.allclose(one, other, atol=_SAME_PLACE))


def resized_code(one: PlacedField, whole: PlacedField) -> str | None:
    """Return the code of a picture that is another field's at another size; None of any other picture."""
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
    """Yield what is to be said of a view that follows from the windows of a few samples."""
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
    """Return how sure a part of a transform is, by what is noted of it."""
    return "check" if note == READ or note.startswith("resampled") else "differs" if note else "exact"
