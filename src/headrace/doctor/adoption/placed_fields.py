"""Fields of pixels with the windows that they show: which of them draw together, and how sure a drawn view is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..explain import LeafPlacement
from ..explain.samples import LeafPath
from ..probe.own_transforms import READ
from .leaf_fields import MadeField
from .recipe import Certainty, RecipePart

_SAME_PLACE = 0.02
"""Share of a file's sides by which two fields that draw together may begin elsewhere."""


@dataclass
class PlacedField:
    """Field of pixels, and the windows that it shows."""

    path: LeafPath
    name: str
    made: MadeField
    view: str
    placements: tuple[LeafPlacement, ...]
    augment: str | None = None
    filter: str = "bilinear"
    shown: tuple[tuple[float, ...], ...] = ()
    """Where the windows of drawn leaves begin, in shares of their files, and whether each is flipped."""


def shown_of(placement: LeafPlacement, source: tuple[int, ...]) -> tuple[float, ...]:
    window, size = placement.window, placement.size
    top = window.top + placement.at[0] * window.height / size[0]
    left = window.left + placement.at[1] * window.width / size[1]
    return top / source[0], left / source[1], float(placement.is_flipped)


def is_drawn_with(one: PlacedField, other: PlacedField) -> bool:
    """Tell whether two fields of different views show parts of the same places: a view of its own draws by itself."""
    if not one.shown or len(one.shown) != len(other.shown):
        return False
    return bool(np.allclose(one.shown, other.shown, atol=_SAME_PLACE))


def drawn_otherwise(name: str, view: str, count: int) -> Iterator[RecipePart]:
    """Yield what is to be said of a view that follows from the windows of a few samples."""
    if "RandomScale" in view:
        note = "the Loader draws one scale for a whole batch, the script one for each sample"
        yield RecipePart(name, "hr.RandomScale", "differs", note, "view")
    elif "RandomResizedCrop" in view:
        note = f"the ranges of its windows are those of {count} that were seen"
        yield RecipePart(name, "hr.RandomResizedCrop", "check", note, "view")


def certainty_of(note: str) -> Certainty:
    """Return how sure a part of a transform is, by what is noted of it."""
    return "check" if note == READ or note.startswith("resampled") else "differs" if note else "exact"
