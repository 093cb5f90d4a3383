"""Masks of instances, out of polygons or runs as COCO's annotations have them, under the views of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.data import Dataset, ListColumn, TextColumn
from headrace.data.strings import Strings
from headrace.errors import DatasetError, UsageError
from headrace.feed.instances import not_a_list
from headrace.fields import InstanceMasks

Ints = NDArray[np.int64]
Pixels = NDArray[np.int32]


class MaskRuns(msgspec.Struct, gc=False):
    """Lengths of pixels that are outside, inside, outside and so on, down each column after the other."""

    counts: str | list[int]
    """Numbers, or COCO's compressed text of them."""
    size: tuple[int, int]
    """Height and width of the image."""


Outline = list[list[float]] | MaskRuns
"""Polygons as x, y, x, y, …, any of which holds the pixel; or runs."""

_outlines = msgspec.json.Decoder(list[Outline])
_EXPECTED = "polygons ([[x, y, x, y, x, y, …], …]) or runs ({'counts': …, 'size': [height, width]}) an instance"


@dataclass(frozen=True)
class PickedWindow:
    """The pixels of an image that a view shows, by the nearest of each, and where they lie on the output."""

    rows: Pixels
    columns: Pixels
    height: int
    width: int
    top: int
    left: int
    flips: tuple[bool, bool]
    """Upside down, mirrored."""

    @classmethod
    def of(cls, view: NDArray[np.float64]) -> PickedWindow:
        """Make it from a view as `_core.VIEW_COLUMNS` names its numbers. Pixels are picked as `Mask` picks them."""
        named = dict(zip(_core.VIEW_COLUMNS, view.tolist(), strict=True))
        return cls(
            _picked(named["y0"], named["y1"], named["top"], named["bottom"], int(named["inner_height"])),
            _picked(named["x0"], named["x1"], named["left"], named["right"], int(named["inner_width"])),
            int(named["height"]),
            int(named["width"]),
            int(named["inner_y"]),
            int(named["inner_x"]),
            (bool(named["vflip"]), bool(named["hflip"])),
        )

    def on_output(self, masks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return masks [k, rows, columns] as [k, height, width] of the output, 0 beside the image."""
        whole = masks
        if (self.height, self.width) != masks.shape[1:]:
            whole = np.zeros((len(masks), self.height, self.width), np.uint8)
            whole[:, self.top : self.top + masks.shape[1], self.left : self.left + masks.shape[2]] = masks
        upside_down, mirrored = self.flips
        return np.ascontiguousarray(whole[:, :: -1 if upside_down else 1, :: -1 if mirrored else 1])


@dataclass(frozen=True)
class InstanceMaskField:
    """A field of instance masks, and the column that holds their outlines."""

    name: str
    field: InstanceMasks
    dataset: Dataset
    column: str

    def make(
        self, samples: Ints, views: NDArray[np.float64], sizes: NDArray[np.int32], kept: list[NDArray[np.bool_]] | None
    ) -> list[NDArray[np.uint8]]:
        """Return uint8 [k, H, W] of each sample, of the instances that `kept` names (None: of all).

        `views` [N, 16] and `sizes` [N, 2] (width, height) are those of the batch's images. Raises DatasetError that
        names the sample whose outlines are damaged, or of another number than `kept` has.
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
                    raise self._error(sample, why)
                outlines = [outlines[at] for at in np.flatnonzero(kept[row]).tolist()]
            window = PickedWindow.of(views[row])
            try:
                masks = painted(outlines, window, width=int(sizes[row, 0]), height=int(sizes[row, 1]))
            except (ValueError, OverflowError) as error:
                raise self._error(sample, str(error)) from error
            found.append(window.on_output(masks))
        return found

    def _outlines(self, sample: int) -> list[Outline]:
        ids = np.array([sample]) if self.dataset.base_ids is None else self.dataset.base_ids[[sample]]
        column = self.dataset.columns[self.column]
        assert isinstance(column, ListColumn | TextColumn)
        held = column.take(ids)[0]
        text = (held or "[]") if isinstance(held, str) else f"[{','.join(held)}]"
        try:
            return _outlines.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._error(sample, f"expected {_EXPECTED}, got {text[:80]!r}: {error}") from error

    def _error(self, sample: int, why: str) -> DatasetError:
        return DatasetError(
            f"field {self.name!r}, column {self.column!r} of sample {self.dataset.key(sample)!r}: {why}. Correct it, "
            "or leave the sample out by select()"
        )


def painted(outlines: list[Outline], window: PickedWindow, *, width: int, height: int) -> NDArray[np.uint8]:
    """Return uint8 [k, rows, columns] of the window's pixels: 1 where a pixel's middle lies within the outline.

    Raises ValueError for polygons of odd numbers or fewer than three corners, and for runs that are not the image's.
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
            xy=_joined(polygon for _, polygon in polygons),
            ends=np.cumsum([len(polygon) for _, polygon in polygons]),
            owners=np.array([owner for owner, _ in polygons], np.int64),
            rows=window.rows,
            columns=window.columns,
        )
    for owner, each in enumerate(outlines):
        if isinstance(each, MaskRuns):
            _paint_runs(masks[owner], each, window, width=width, height=height)
    return masks


def resolve_masks(dataset: Dataset, name: str, field: InstanceMasks) -> InstanceMaskField:
    """Find the column of a field. Raises UsageError where there is none, or one that cannot hold outlines."""
    column = name if field.source is None else field.source
    found = dataset.columns.get(column)
    if not isinstance(found, TextColumn) and not (isinstance(found, ListColumn) and isinstance(found.items, Strings)):
        what = f"got {column!r}, one of lists of numbers" if isinstance(found, ListColumn) else None
        why = not_a_list(dataset, column) if what is None else f"expected a column of lists of JSON texts, {what}"
        raise UsageError(f"field {name!r}: {why}")
    return InstanceMaskField(name, field, dataset, column)


def _paint_runs(mask: NDArray[np.uint8], runs: MaskRuns, window: PickedWindow, *, width: int, height: int) -> None:
    if runs.size != (height, width):
        raise ValueError(
            f"expected runs of the image's {height} rows and {width} columns, got {runs.size[0]} and {runs.size[1]}"
        )
    lengths = _core.parse_runs(runs.counts) if isinstance(runs.counts, str) else np.array(runs.counts, np.int64)
    if int(lengths.sum()) > height * width:
        raise ValueError(f"expected runs of at most {height * width:,} pixels, got {int(lengths.sum()):,}")
    _core.paint_runs(mask, runs=lengths, height=height, rows=window.rows, columns=window.columns)


def _joined(polygons: Iterable[list[float]]) -> NDArray[np.float64]:
    return np.fromiter(chain.from_iterable(polygons), np.float64)


def _picked(begin: float, end: float, low: float, high: float, count: int) -> Pixels:
    """The pixel under the middle of each of `count` outputs, as core/resample/taps.cpp has it."""
    middles = begin + (2.0 * np.arange(count) + 1) * (end - begin) / (2.0 * max(count, 1))
    picked: Pixels = np.clip(np.floor(middles), low, high - 1).astype(np.int32)
    return picked
