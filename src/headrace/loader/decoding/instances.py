"""Instances of a sample: the columns that hold them, and their masks from polygons or runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.data import SIDEWAYS, Dataset, ListColumn, Strings, TextColumn
from headrace.errors import DatasetError, UsageError
from headrace.fields import InstanceMasks
from headrace.loader.decoding.frames import MIRRORS

Ints = NDArray[np.int64]
Pixels = NDArray[np.int32]
Floats = NDArray[np.float64]
Form = Callable[[NDArray[Any]], Floats | None]
"""Function that converts numbers to a field's form, one instance per row; None if they have another form."""


@dataclass(frozen=True)
class InstanceColumn:
    """Column that holds a list of instances for each sample, and the field that reads it."""

    dataset: Dataset
    name: str
    column: str

    def base_ids(self, samples: Ints) -> Ints:
        return samples if self.dataset.base_ids is None else self.dataset.base_ids[samples]

    def expect_counts(self, samples: Ints, counts: Ints, boxes: Ints, what: str, of: str) -> None:
        """Raise DatasetError for the first sample without one item per box; `what` and `of` phrase the error."""
        odd = np.flatnonzero(counts != boxes)
        if len(odd):
            at = int(odd[0])
            raise self.error(int(samples[at]), f"expected {what} {boxes[at]} {of}, got {counts[at]}")

    def error(self, sample: int, why: str) -> DatasetError:
        """Return the error for one sample's list."""
        key = self.dataset.key(sample)
        return DatasetError(f"{self._place} of sample {key!r}: {why}. Correct it, or leave the sample out by select()")

    @property
    def _place(self) -> str:
        return f"field {self.name!r}, column {self.column!r}"


@dataclass(frozen=True)
class Instances(InstanceColumn):
    """Column of lists of numbers, read for a whole batch at once."""

    form: Form
    expected: str
    """Description of the form, for errors."""

    def __post_init__(self) -> None:
        """Raise UsageError if the column's type rules out such lists."""
        column = self.dataset.columns.get(self.column)
        if isinstance(column, ListColumn) and not isinstance(column.items, Strings) and column.items.ndim > 1:
            if self.form(column.items[:0]) is None:
                raise UsageError(f"{self._place}: expected {self.expected}, got items of {column.items.shape[1:]}")
        elif not isinstance(column, ListColumn | TextColumn):
            raise UsageError(f"{self._place}: {not_a_list(self.dataset, self.column)}")

    def take(self, samples: Ints) -> tuple[Floats, Ints]:
        """Return the instances of these samples, concatenated, and the number of instances per sample.

        Raises DatasetError that names the first sample with a list of another form.
        """
        found = self._together(samples)
        if found is not None:
            return found
        # The forms differ, or one is wrong: reading each list alone shows which.
        alone = [self._alone(int(sample)) for sample in samples]
        held = [each for each in alone if len(each)] or alone[:1]
        return np.concatenate(held), np.array([len(each) for each in alone], np.int64)

    def first(self) -> Floats | None:
        """Return the instances of the first sample that has any."""
        for start in range(0, len(self.dataset), _BLOCK):
            block = np.arange(start, min(start + _BLOCK, len(self.dataset)))
            found = self._together(block)
            each = [found[0]] if found is not None else map(self._alone, block.tolist())
            if (first := next((some for some in each if len(some)), None)) is not None:
                return first
        return None

    def _alone(self, sample: int) -> Floats:
        found = self._together(np.array([sample]))
        if found is None:
            column = self.dataset.columns[self.column]
            got = column.take(self.base_ids(np.array([sample])))[0]  # type: ignore[union-attr]  # lists or texts
            text = str(got.tolist() if isinstance(got, np.ndarray) else got)
            raise self.error(sample, f"expected {self.expected}, got {text[:80]!r}")
        return found[0]

    def _together(self, samples: Ints) -> tuple[Floats, Ints] | None:
        """Read all lists at once; None if any has another form, or their forms differ."""
        try:
            numbers, counts = self._numbers(self.base_ids(samples))
            found = self.form(numbers if numbers.size else np.empty((0, *numbers.shape[1:])))
        except (ValueError, TypeError, RecursionError, msgspec.DecodeError):
            return None
        if found is None or len(found) == len(numbers):
            return None if found is None else (found, counts)
        each = len(numbers) // len(found) if len(found) else 1  # numbers per instance in a flat list
        return None if (counts % each).any() else (found, counts // each)

    def _numbers(self, ids: Ints) -> tuple[NDArray[Any], Ints]:
        """Return all items of the lists, joined. Raises the decoder's errors if they are not JSON numbers."""
        column = self.dataset.columns[self.column]
        if isinstance(column, TextColumn):
            lists = _decode(f"[{','.join(text or '[]' for text in column.take(ids))}]")
            joined = np.array([item for each in lists for item in each], np.float64)
            return joined, np.array([len(each) for each in lists], np.int64)
        assert isinstance(column, ListColumn)
        items, counts = column.take_joined(ids)
        if isinstance(items, np.ndarray):
            return items, counts
        decoded = np.array(_decode(f"[{','.join(items)}]"), np.float64)
        if len(decoded) != len(items):
            raise ValueError("a text of several values")
        return decoded, counts


_BLOCK = 1024
_decode = msgspec.json.Decoder(list[Any]).decode


def not_a_list(dataset: Dataset, name: str) -> str:
    """Return the reason why a column is not one of lists."""
    column = dataset.columns.get(name)
    if column is not None:
        return f"expected a column of lists, got {name!r}, one of {column.kind}"
    return f"expected a column of the dataset, got {name!r}; it has {', '.join(dataset.columns)}. Name one with source="


def as_boxes(numbers: NDArray[Any]) -> Floats | None:
    """Return float64 [m, 4] from [m, 4] or from a flat list; None for another form."""
    if numbers.ndim == 1 and numbers.size % 4 == 0:
        numbers = numbers.reshape(-1, 4)
    return numbers.astype(np.float64) if numbers.ndim == 2 and numbers.shape[1] == 4 else None


def as_points(numbers: NDArray[Any], count: int | None = None) -> Floats | None:
    """Return float64 [m, K, 3] from [m, K, 3], [m, K, 2] or [m, 3K]; None for another form, or another `count` K."""
    if numbers.size == 0:
        # Accept an empty array if its shape would hold points once it had instances.
        last = numbers.shape[-1] if numbers.ndim else 0
        fits = numbers.ndim == 1 or (last % 3 == 0 if numbers.ndim == 2 else numbers.ndim == 3 and last in (2, 3))
        return np.empty((0, count or 0, 3)) if fits else None
    if numbers.ndim == 2 and numbers.shape[1] % 3 == 0:
        numbers = numbers.reshape(len(numbers), numbers.shape[1] // 3, 3)
    if numbers.ndim != 3 or numbers.shape[2] not in (2, 3) or count not in (None, numbers.shape[1]):
        return None
    points = np.full((*numbers.shape[:2], 3), 2.0)
    points[..., : numbers.shape[2]] = numbers
    return points


class MaskRuns(msgspec.Struct, gc=False):
    """Run lengths of pixels: outside, inside, outside and so on, column by column."""

    counts: str | list[int]
    """Run lengths, or COCO's compressed text of them."""
    size: tuple[int, int]
    """Height and width of the image."""


Outline = list[list[float]] | MaskRuns
"""Polygons as x, y, x, y, …, whose union is the mask; or runs."""

_outlines = msgspec.json.Decoder(list[Outline])
_EXPECTED = "polygons ([[x, y, x, y, x, y, …], …]) or runs ({'counts': …, 'size': [height, width]}) an instance"


@dataclass(frozen=True)
class PickedWindow:
    """Source pixels of a view, the nearest one to each output pixel, and their place on the output."""

    rows: Pixels
    columns: Pixels
    height: int
    width: int
    top: int
    left: int
    flips: tuple[bool, bool]
    """Vertical flip, horizontal flip."""

    @classmethod
    def of(cls, view: NDArray[np.float64]) -> PickedWindow:
        """Build the window from a view (columns: `ViewColumn`). Pixels are picked as in `Mask`."""
        named = {column.name.lower(): value for column, value in zip(_core.ViewColumn, view.tolist(), strict=True)}

        def picked(begin: str, end: str, bounds: tuple[str, ...], flip: str) -> Pixels:
            low, high, count = (int(named[each]) for each in bounds)
            is_flipped_first = named[flip] == _core.FLIPPED_FIRST
            return _core.nearest_pixels(named[begin], named[end], low, high, count, is_flipped_first)

        return cls(
            picked("y0", "y1", ("top", "bottom", "inner_height"), "vflip"),
            picked("x0", "x1", ("left", "right", "inner_width"), "hflip"),
            int(named["height"]),
            int(named["width"]),
            int(named["inner_y"]),
            int(named["inner_x"]),
            (bool(named["vflip"]), bool(named["hflip"])),
        )

    def on_output(self, masks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return masks [k, rows, columns] as [k, height, width] of the output, 0 outside the image."""
        whole = masks
        if (self.height, self.width) != masks.shape[1:]:
            whole = np.zeros((len(masks), self.height, self.width), np.uint8)
            whole[:, self.top : self.top + masks.shape[1], self.left : self.left + masks.shape[2]] = masks
        upside_down, mirrored = self.flips
        return np.ascontiguousarray(whole[:, :: -1 if upside_down else 1, :: -1 if mirrored else 1])


@dataclass(frozen=True)
class InstanceMaskField(InstanceColumn):
    """Field of instance masks, with the column of their outlines."""

    field: InstanceMasks

    def make(
        self,
        samples: Ints,
        views: NDArray[np.float64],
        sizes: NDArray[np.int32],
        turns: Ints,
        kept: list[NDArray[np.bool_]] | None,
    ) -> list[NDArray[np.uint8]]:
        """Return uint8 [k, H, W] for each sample, for the instances in `kept` (None: all).

        `views` [N, 17], `sizes` [N, 2] (width, height) and `turns` [N] (as in BatchViews) belong to the batch's images.
        Raises DatasetError that names the sample if its outlines are damaged, or differ in number from `kept`.
        """
        found = []
        for row, sample in enumerate(samples.tolist()):
            outlines = self._outlines(sample)
            if kept is not None:
                if len(outlines) != len(kept[row]):
                    why = (
                        f"expected an outline of each of {len(kept[row])} boxes of field {self.field.of!r}, got "
                        f"{len(outlines)}"
                    )
                    raise self.error(sample, why)
                outlines = [outlines[at] for at in np.flatnonzero(kept[row]).tolist()]
            window = PickedWindow.of(views[row])
            try:
                masks = _painted_turned(outlines, window, sizes[row], int(turns[row]))
            except (ValueError, OverflowError) as error:
                raise self.error(sample, str(error)) from error
            found.append(window.on_output(masks))
        return found

    def _outlines(self, sample: int) -> list[Outline]:
        column = self.dataset.columns[self.column]
        assert isinstance(column, ListColumn | TextColumn)
        held = column.take(self.base_ids(np.array([sample])))[0]
        text = (held or "[]") if isinstance(held, str) else f"[{','.join(held)}]"
        try:
            return _outlines.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self.error(sample, f"expected {_EXPECTED}, got {text[:80]!r}: {error}") from error


def _painted_turned(
    outlines: list[Outline], window: PickedWindow, size: NDArray[np.int32], orientation: int
) -> NDArray[np.uint8]:
    """Return what `painted` does; outlines of a stored image turn to that of the view, of `size` (width, height)."""
    width, height = size.tolist()
    along_x, along_y = (-1 if orientation in mirrors else 1 for mirrors in MIRRORS)
    columns = window.columns if along_x == 1 else (width - 1 - window.columns)[::-1].copy()
    rows = window.rows if along_y == 1 else (height - 1 - window.rows)[::-1].copy()
    if orientation not in SIDEWAYS:
        masks = painted(outlines, replace(window, rows=rows, columns=columns), width=width, height=height)
    else:
        stored = replace(window, rows=columns, columns=rows)
        masks = painted(outlines, stored, width=height, height=width).swapaxes(1, 2)
    return masks[:, ::along_y, ::along_x]


def painted(outlines: list[Outline], window: PickedWindow, *, width: int, height: int) -> NDArray[np.uint8]:
    """Return uint8 [k, rows, columns] of the window's pixels: 1 if a pixel's centre is inside the outline.

    Raises ValueError for polygons with an odd count of numbers or fewer than three corners, and for runs that do not
    match the image's size.
    """
    masks = np.zeros((len(outlines), len(window.rows), len(window.columns)), np.uint8)
    polygons = [
        (owner, polygon) for owner, each in enumerate(outlines) if not isinstance(each, MaskRuns) for polygon in each
    ]
    for _, polygon in polygons:
        if len(polygon) % 2 or len(polygon) < 6:
            raise ValueError(f"expected x and y of at least three corners, got {len(polygon)} numbers")
    if polygons:
        _core.paint_polygons(
            masks,
            xy=np.fromiter(chain.from_iterable(polygon for _, polygon in polygons), np.float64),
            ends=np.cumsum([len(polygon) for _, polygon in polygons]),
            owners=np.array([owner for owner, _ in polygons], np.int64),
            rows=window.rows,
            columns=window.columns,
        )
    for owner, each in enumerate(outlines):
        if not isinstance(each, MaskRuns):
            continue
        if each.size != (height, width):
            raise ValueError(
                f"expected runs of the image's {height} rows and {width} columns, got {each.size[0]} and {each.size[1]}"
            )
        runs = _core.parse_runs(each.counts) if isinstance(each.counts, str) else np.array(each.counts, np.int64)
        if int(runs.sum()) > height * width:
            raise ValueError(f"expected runs of at most {height * width:,} pixels, got {int(runs.sum()):,}")
        _core.paint_runs(masks[owner], runs=runs, height=height, rows=window.rows, columns=window.columns)
    return masks


def resolve_masks(dataset: Dataset, name: str, field: InstanceMasks) -> InstanceMaskField:
    """Find the column of a field. Raises UsageError if there is none, or if it cannot hold outlines."""
    column = name if field.source is None else field.source
    found = dataset.columns.get(column)
    if isinstance(found, ListColumn) and not isinstance(found.items, Strings):
        why = f"expected a column of lists of JSON texts, got {column!r}, one of lists of numbers"
        raise UsageError(f"field {name!r}: {why}")
    if not isinstance(found, TextColumn | ListColumn):
        raise UsageError(f"field {name!r}: {not_a_list(dataset, column)}")
    return InstanceMaskField(dataset, name, column, field)
