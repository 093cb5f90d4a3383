"""Views of several windows per sample, one for each copy of a field: FiveCrop, TenCrop, Tiles."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import NoReturn

from headrace._core import MAX_COPIES, ViewKind
from headrace.views.views import Pads, Size, View, exceeds, is_length, pair_of


class FixedCrops(View):
    """Base of views with windows that follow from the copy's number. Nothing is drawn."""

    size: Size

    def pads(self, size: tuple[int, int] | None) -> Pads:
        """Return NEVER: nothing is padded. Raises UsageError for an image that is smaller than a window."""
        if size is not None and exceeds(self.size, size):
            height, width = size
            self._refuse_size(f"at most the {height} x {width} (height x width) that it is given")
        return Pads.NEVER

    def _refuse_size(self, room: str) -> NoReturn:
        raise self.refused("size", room, "resize to more first")


@dataclass(frozen=True)
class FiveCrop(FixedCrops):
    """Crops of the four corners and the middle: top left, top right, bottom left, bottom right, centre.

    A field with it has five copies. An image smaller than `size` is a bad sample: resize first, as in
    `view=[Resize(256), FiveCrop(224)]`.
    """

    size: Size

    copies = 5

    def op(self) -> tuple[float, ...]:
        return (ViewKind.FIVE_CROP, *pair_of(self.size))


@dataclass(frozen=True)
class TenCrop(FixedCrops):
    """Crops of FiveCrop, then of the mirrored image: from left to right, or upside down if `vertical_flip`.

    A field with it has ten copies, in torchvision's order.
    """

    size: Size
    vertical_flip: bool = False

    copies = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.vertical_flip, bool):
            raise self.refused("vertical_flip", "True or False", "give a bool")

    def op(self) -> tuple[float, ...]:
        return (ViewKind.TEN_CROP, *pair_of(self.size), self.vertical_flip)


@dataclass(frozen=True)
class Tiles(FixedCrops):
    """Tiles of `size` on a grid of (rows, columns), or of n x n, spread evenly from edge to edge, row by row.

    Tiles overlap, or leave gaps, depending on the image's size: `view=[Resize((448, 672)), Tiles(224, grid=(2, 3))]`
    cuts the image in six. Offsets are rounded to the nearest pixel, half to even; the tile of a single row or column is
    centred. A field with it has rows x columns copies, at most 64. An image smaller than a tile is a bad sample.
    """

    size: Size
    _: KW_ONLY
    grid: Size

    def __post_init__(self) -> None:
        super().__post_init__()
        sides = self.grid if isinstance(self.grid, tuple | list) else (self.grid, self.grid)
        if len(sides) != 2 or not all(map(is_length, sides)) or sides[0] * sides[1] > MAX_COPIES:
            room = f"an int or (rows, columns), of at most {MAX_COPIES} tiles"
            raise self.refused("grid", room, "each tile is a copy; take larger ones")

    @property
    def copies(self) -> int:  # type: ignore[override]  # of the class it depends on the grid
        """Tiles of a sample."""
        rows, columns = pair_of(self.grid)
        return rows * columns

    def op(self) -> tuple[float, ...]:
        return (ViewKind.TILES, *pair_of(self.size), *pair_of(self.grid))
