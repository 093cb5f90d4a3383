"""`RandomScale`: a resize whose scale is drawn once for all ranks at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from headrace.views.views import Fill, Pads, View, check_fill, check_probability, is_length


@dataclass(frozen=True)
class RandomScale(View):
    """Resizes all images of a global batch to one short side, drawn from `short_sides`; each keeps its shape.

    All scales are equally likely, and each sample gets each of them equally often. `long_max` bounds the long side,
    as `max_size` of Resize does. Images of one batch that still differ in size are centred on `fill`, up to the
    largest of the global batch, whose sides are rounded up to a multiple of `multiple_of`: every rank has the same
    shape. It comes first in a list of views; after a view of fixed size, such as RandomCrop, nothing is filled up.
    `flip` is the probability of a horizontal flip.
    """

    short_sides: Sequence[int]
    _: KW_ONLY
    long_max: int | None = None
    multiple_of: int = 1
    flip: float = 0.0
    fill: Fill = 0

    resizes = True
    drawn_per_step = True

    def __post_init__(self) -> None:
        sides = self.short_sides
        whole = isinstance(sides, list | tuple) and len(sides) > 0 and all(is_length(side) for side in sides)
        if not whole or list(sides) != sorted(set(sides)):
            raise self._refused(
                "short_sides", "ascending whole numbers of pixels, each once", "such as (300, 450, 600)"
            )
        if self.long_max is not None and (not is_length(self.long_max) or self.long_max < sides[-1]):
            raise self._refused("long_max", f"None or an int of at least {sides[-1]}", "it bounds the long side")
        if not is_length(self.multiple_of) or self.multiple_of > 1 << 12:
            raise self._refused("multiple_of", "an int from 1 to 4096", "it is what sides are rounded up to")
        check_probability(self, "flip")
        check_fill(self)

    def op(self) -> tuple[float, ...]:
        return self.choices()[0]

    def choices(self) -> tuple[tuple[float, ...], ...]:
        return tuple((2, side, self.long_max or 0) for side in self.short_sides)

    def pads(self, size: tuple[int, int] | None) -> Pads:
        return Pads.IF_SMALL
