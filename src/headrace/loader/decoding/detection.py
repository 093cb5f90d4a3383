"""Boxes and keypoints under the views of a batch, and the geometry of these views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import ViewColumn
from headrace.data import Dataset, ListColumn
from headrace.errors import UsageError
from headrace.fields import Boxes, Field, Geometry, InstanceMasks, Keypoints
from headrace.loader.batch_values import part_name
from headrace.loader.decoding.frames import TRANSPOSED, turned_boxes, turned_points
from headrace.loader.decoding.instances import (
    InstanceMaskField,
    Instances,
    as_boxes,
    as_points,
    not_a_list,
    resolve_masks,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


GEOMETRY_PARTS = ("window", "scale", "flip", "transposed", "original_size")


class PerSample(list[Any]):
    """List of one value per sample, with different shapes. It stays a list whatever `map` does to its values."""


@dataclass(frozen=True)
class BatchViews:
    """Mapping from places in the images of a batch to places in the output. All arrays are [N]."""

    rows: Floats
    """Views, [N, 17] (columns: `ViewColumn`)."""
    sizes: NDArray[np.int32]
    """Width and height of the images as the views see them, [N, 2]: swapped if the view is transposed."""
    turns: Ints
    """EXIF orientations by which places turn first, [N]; 1 for places in the image that the view sees."""

    @classmethod
    def of_images(cls, rows: Floats, sizes: NDArray[np.int32], turns: Ints) -> BatchViews:
        """Return the views of displayed images of `sizes`; `turns` as from `Frames.turns`."""
        swaps = rows[:, ViewColumn.TRANSPOSED].astype(bool)
        return cls(rows, np.where(swaps[:, None], sizes[:, ::-1], sizes), np.where(swaps, TRANSPOSED[turns], turns))

    @property
    def transposed(self) -> Mask:
        return self.rows[:, ViewColumn.TRANSPOSED].astype(bool)

    def of(self, row: Ints) -> BatchViews:
        """Return the view of each instance; `row` is its sample's row in the batch."""
        return BatchViews(self.rows[row], self.sizes[row], self.turns[row])

    def image(self, axis: int) -> tuple[Floats, Floats]:
        """Return the begin and end of the images."""
        return np.zeros(len(self.sizes)), self.sizes[:, axis].astype(np.float64)

    def window(self, axis: int) -> tuple[Floats, Floats]:
        """Return the visible part of the images, in their pixels; empty where a crop fell into padding."""
        return self.rows[:, ViewColumn.X0 + axis], self.rows[:, ViewColumn.X1 + axis]

    def canvas(self, axis: int) -> tuple[Floats, Floats, Floats]:
        """Return the output's size, the begin of the unflipped images on the output, and their length there."""
        columns = (ViewColumn.WIDTH, ViewColumn.INNER_X, ViewColumn.INNER_WIDTH)
        size, begin, length = (self.rows[:, column + axis] for column in columns)
        return size, begin, length

    def flipped(self, axis: int) -> Mask:
        return self.rows[:, ViewColumn.HFLIP + axis].astype(bool)

    def on_canvas(self, axis: int, places: Floats) -> Floats:
        """Map places [N] in the images to the output; 0 where nothing is visible."""
        begin, end = self.window(axis)
        size, at, length = self.canvas(axis)
        scale = np.divide(length, end - begin, out=np.zeros(len(begin)), where=end > begin)
        lying = at + (places - begin) * scale
        return np.where(self.flipped(axis), size - lying, lying)

    def covered(self, axis: int) -> tuple[Floats, Floats, Floats]:
        """Return the output's begin and end in the source, padding included, and output pixels per source pixel.

        Where nothing is visible, the extent and the scale are 0.
        """
        begin, end = self.window(axis)
        size, at, length = self.canvas(axis)
        seen = (end > begin) & (length > 0)
        pixel = np.divide(end - begin, length, out=np.zeros(len(begin)), where=seen)
        scale = np.divide(length, end - begin, out=np.zeros(len(begin)), where=seen)
        return begin - at * pixel, np.where(seen, end + (size - at - length) * pixel, begin), scale

    def geometry(self) -> dict[str, NDArray[Any]]:
        """Return the parts of a Geometry field."""
        (left, right, across), (top, bottom, down) = self.covered(0), self.covered(1)
        swaps = self.transposed[:, None]
        corners, scales = np.stack([left, top, right, bottom], 1), np.stack([across, down], 1)
        values = (
            np.where(swaps, corners[:, [1, 0, 3, 2]], corners).astype(np.float32),
            np.where(swaps, scales[:, ::-1], scales).astype(np.float32),
            np.stack([self.flipped(0), self.flipped(1)], 1),
            self.transposed,
            np.where(swaps, self.sizes, self.sizes[:, ::-1]).astype(np.int64),
        )
        return dict(zip(GEOMETRY_PARTS, values, strict=True))

    def inner(self, axis: int) -> tuple[Floats, Floats]:
        """Return the begin and end of the image on the output; the rest is padding."""
        size, at, length = self.canvas(axis)
        begin = np.where(self.flipped(axis), size - at - length, at)
        return begin, begin + length


@dataclass(frozen=True)
class BatchMoves:
    """Geometric augmentations of a batch's samples, with the same draws as their images.

    `row` [M] is the batch row of each instance's sample, in ascending order.
    """

    augmentation: _core.Augmentation
    key: int
    ids: Ints
    passes: NDArray[np.uint32]
    size: tuple[int, int]
    """Height and width of the output."""

    def boxes(self, boxes: NDArray[np.floating[Any]], row: Ints) -> tuple[Floats, Floats]:
        """Return boxes [M, 4] around the moved boxes, clipped to the output, and the remaining share of each."""
        moved = np.ascontiguousarray(boxes, np.float64).copy()
        return moved, _core.move_boxes(self.augmentation, moved, row, **self._draws())

    def points(self, points: NDArray[np.floating[Any]], row: Ints) -> tuple[Floats, Mask]:
        """Return the moved points [P, 2], and a mask of the points that are still on the output."""
        moved = np.ascontiguousarray(points, np.float64).copy()
        return moved, _core.move_points(self.augmentation, moved, row, **self._draws())

    def masks(self, masks: NDArray[np.uint8], row: int) -> NDArray[np.uint8]:
        """Return masks [k, H, W] of one sample, moved in place."""
        _core.move_masks(self.augmentation, masks, key=self.key, id=int(self.ids[row]), pass_=int(self.passes[row]))
        return masks

    def _draws(self) -> dict[str, Any]:
        height, width = self.size
        return {"key": self.key, "ids": self.ids, "passes": self.passes, "width": width, "height": height}


def boxes_on_output(
    boxes: Floats,
    views: BatchViews,
    *,
    min_size: float,
    min_visible: float,
    moves: BatchMoves | None = None,
    row: Ints | None = None,
) -> tuple[NDArray[np.float32], Mask]:
    """Map boxes [M, 4] as xyxy, each under its own view, to float32 [M, 4] on the output, with a mask of valid boxes.

    `moves` then moves the boxes of sample `row` [M].
    """
    seen = np.empty((len(boxes), 4), np.float32)
    whole, left = np.ones(len(boxes)), np.ones(len(boxes))  # areas in the image
    kept = np.ones(len(boxes), bool)
    least = min_size if moves is None else 0.0
    for axis in (0, 1):
        low, high = (np.clip(boxes[:, side], *views.image(axis)) for side in (axis, 2 + axis))
        whole *= high - low
        kept &= high > low
        low, high = np.clip(low, *views.window(axis)), np.clip(high, *views.window(axis))
        left *= high - low
        ends = np.stack([views.on_canvas(axis, low), views.on_canvas(axis, high)])
        ends.sort(axis=0)
        kept &= (high > low) & (ends[1] - ends[0] >= least)
        seen[:, axis], seen[:, 2 + axis] = (np.clip(end, *views.inner(axis)) for end in ends)
        kept &= seen[:, 2 + axis] > seen[:, axis]
    if moves is not None and row is not None:
        moved, share = moves.boxes(seen, row)
        seen, left = moved.astype(np.float32), left * share
        sides = seen[:, 2:] - seen[:, :2]
        kept &= ((sides > 0) & (sides >= min_size)).all(1)
    return seen, kept & (left >= min_visible * whole)


def points_on_output(
    points: Floats, views: BatchViews, pairs: Ints, *, moves: BatchMoves | None = None, row: Ints | None = None
) -> NDArray[np.float32]:
    """Map points [M, K, 3], each instance under its own view, to float32 [M, K, 3] on the output.

    The points of each pair in `pairs` [P, 2] trade places if the image is mirrored. `moves` then moves the points of
    sample `row` [M].
    """
    count = points.shape[1]
    seen = points.astype(np.float32)
    visible = (points[..., 2] > 0) & np.isfinite(points[..., :2]).all(-1)
    each = views.of(np.repeat(np.arange(len(points)), count))
    for axis in (0, 1):
        places = np.where(visible, points[..., axis], 0.0).reshape(-1)
        lying = each.on_canvas(axis, places).astype(np.float32)
        begin, end = each.inner(axis)
        visible &= ((lying >= begin) & (lying < end)).reshape(visible.shape)
        seen[..., axis] = lying.reshape(visible.shape)
    if moves is not None and row is not None:
        seen[~visible] = 0
        moved, inside = moves.points(seen[..., :2].reshape(-1, 2), np.repeat(row, count))
        seen[..., :2] = moved.reshape(*visible.shape, 2)
        visible &= inside.reshape(visible.shape)
    seen[~visible] = 0
    if len(pairs):
        order = np.arange(count)
        order[pairs[:, 0]], order[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
        mirrored = views.flipped(0) ^ views.flipped(1) ^ views.transposed
        seen[mirrored] = seen[mirrored][:, order]
    return seen


@dataclass(frozen=True)
class KeptInstances:
    """Instances that remain in a batch."""

    which: Mask
    counts: Ints
    """Number of instances that each sample had."""

    def of(self, values: Any) -> PerSample:
        """Return the remaining values by sample, copied so that a reference to one sample does not hold the batch."""
        row = np.repeat(np.arange(len(self.counts)), self.counts)
        ends = np.cumsum(np.bincount(row[self.which], minlength=len(self.counts))).tolist()
        is_list = isinstance(values, list)
        chosen = [values[at] for at in np.flatnonzero(self.which)] if is_list else values[self.which]
        return PerSample(chosen[start:end].copy() for start, end in pairwise([0, *ends]))


@dataclass(frozen=True)
class BoxField:
    """Field of boxes, with the columns alongside it."""

    name: str
    field: Boxes
    boxes: Instances

    def make(
        self, samples: Ints, views: BatchViews, moves: BatchMoves | None
    ) -> tuple[dict[str, PerSample], KeptInstances]:
        """Return the parts of the batch, and the boxes that remain in it."""
        boxes, counts = self.boxes.take(samples)
        row = np.repeat(np.arange(len(samples)), counts)
        odd = np.flatnonzero(~np.isfinite(boxes).all(1))
        if len(odd):
            at = int(odd[0])
            raise self.boxes.error(int(samples[row[at]]), f"expected finite numbers, got the box {boxes[at].tolist()}")
        if self.field.format != "xyxy":
            first, size = boxes[:, :2], boxes[:, 2:]
            begin = first if self.field.format == "xywh" else first - size / 2
            boxes = np.concatenate([begin, begin + size], 1)
        of_box = views.of(row)
        seen, which = boxes_on_output(
            turned_boxes(boxes, of_box.turns, of_box.sizes),
            of_box,
            min_size=self.field.min_size,
            min_visible=self.field.min_visible,
            moves=moves,
            row=row,
        )
        kept = KeptInstances(which, counts)
        parts = {self.name: kept.of(seen)}
        for name in self.field.beside:
            column = self.boxes.dataset.columns[name]
            assert isinstance(column, ListColumn)
            values, items = column.take_joined(self.boxes.base_ids(samples))
            self.boxes.expect_counts(samples, items, counts, f"an item of column {name!r} for each of", "boxes")
            parts[beside_name(self.name, name)] = kept.of(values)
        return parts, kept


@dataclass(frozen=True)
class PointField:
    """Field of keypoints."""

    name: str
    field: Keypoints
    points: Instances

    def make(self, samples: Ints, views: BatchViews, of: KeptInstances | None, moves: BatchMoves | None) -> PerSample:
        """Return the points of each sample, for the instances in `of` if the boxes are another field."""
        points, counts = self.points.take(samples)
        if of is None:
            of = KeptInstances(np.ones(len(points), bool), counts)
        self.points.expect_counts(samples, counts, of.counts, "points of each of", f"boxes of field {self.field.of!r}")
        row = np.repeat(np.arange(len(samples)), counts)
        of_point = views.of(row)
        points[..., :2] = turned_points(points[..., :2] + self.field.offset, of_point.turns, of_point.sizes)
        pairs = np.array(self.field.flip_pairs if points.shape[1] else (), np.int64).reshape(-1, 2)
        return of.of(points_on_output(points, of_point, pairs, moves=moves, row=row))


@dataclass(frozen=True)
class PointFields:
    """All boxes, keypoints and instance masks of a batch, and the names of its geometry fields."""

    boxes: tuple[BoxField, ...] = ()
    points: tuple[PointField, ...] = ()
    masks: tuple[InstanceMaskField, ...] = ()
    geometry: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.annotates or self.geometry)

    @property
    def annotates(self) -> bool:
        """True if any field has places in an image, so that its frame matters."""
        return bool(self.boxes or self.points or self.masks)

    def make(
        self, samples: Ints, views: BatchViews, moves: BatchMoves | None = None
    ) -> dict[str, PerSample | NDArray[Any]]:
        """Return the parts of a batch by name, for samples at these positions.

        `moves` are the effects of the samples' augmentations on places, None if there are none. Raises DatasetError.
        """
        batch: dict[str, PerSample | NDArray[Any]] = {}
        kept: dict[str, KeptInstances] = {}
        for boxes in self.boxes:
            parts, kept[boxes.name] = boxes.make(samples, views, moves)
            batch |= parts
        for points in self.points:
            of = points.field.of
            batch[points.name] = points.make(samples, views, None if of is None else kept[of], moves)
        for masks in self.masks:
            chosen = None  # instances of each sample that remain
            if masks.field.of is not None:
                boxes_kept = kept[masks.field.of]
                chosen = np.split(boxes_kept.which, np.cumsum(boxes_kept.counts)[:-1])
            made = masks.make(samples, views.rows, views.sizes, views.turns, chosen)
            if moves is not None:
                made = [moves.masks(each, at) for at, each in enumerate(made)]
            batch[masks.name] = PerSample(made)
        for name in self.geometry:
            batch |= {part_name(name, part): values for part, values in views.geometry().items()}
        return batch


def resolve_points(dataset: Dataset, fields: Mapping[str, Field]) -> PointFields:
    """Find the columns of all boxes, keypoints and instance masks among `fields`, and the geometry fields.

    Raises UsageError for a missing column or one of another kind. Raises DatasetError if the first list of keypoints,
    which sets their number, is damaged.
    """
    boxes: dict[str, BoxField] = {}
    for name, field in fields.items():
        if not isinstance(field, Boxes):
            continue
        for column in field.beside:
            if not isinstance(dataset.columns.get(column), ListColumn):
                raise UsageError(f"field {name!r}: beside: {not_a_list(dataset, column)}")
        column = name if field.source is None else field.source
        found = Instances(dataset, name, column, as_boxes, "lists of 4 numbers a box")
        found.first()  # raises now for a value that is not a list
        boxes[name] = BoxField(name, field, found)
    points = [_point_field(dataset, name, field) for name, field in fields.items() if isinstance(field, Keypoints)]
    for each in boxes.values():
        taken = [beside_name(each.name, column) for column in each.field.beside]
        if clash := [name for name in taken if name in fields or taken.count(name) > 1]:
            raise UsageError(f"field {each.name!r}: expected beside= to give new names, got {clash[0]!r} twice")
    masks = [resolve_masks(dataset, name, field) for name, field in fields.items() if isinstance(field, InstanceMasks)]
    followers: list[PointField | InstanceMaskField] = [*points, *masks]
    for follower in followers:
        if follower.field.of is not None and follower.field.of not in boxes:
            raise UsageError(
                f"field {follower.name!r}: expected of= to name a field of Boxes, one of {list(boxes)}, got "
                f"{follower.field.of!r}"
            )
    geometry = tuple(name for name, field in fields.items() if isinstance(field, Geometry))
    return PointFields(tuple(boxes.values()), tuple(points), tuple(masks), geometry)


def beside_name(field: str, column: str) -> str:
    """Return the batch's name of a column alongside boxes."""
    return f"{field}_{column}"


def _point_field(dataset: Dataset, name: str, field: Keypoints) -> PointField:
    column = name if field.source is None else field.source
    points = Instances(dataset, name, column, as_points, "lists of [K, 3], [K, 2] or 3K numbers an instance")
    first = points.first()
    if first is None:
        return PointField(name, field, points)
    count = first.shape[1]
    most = max((index for pair in field.flip_pairs for index in pair), default=-1)
    if most >= count:
        raise UsageError(f"field {name!r}: expected flip_pairs of points 0 to {count - 1}, got {most}")
    expected = f"lists of [{count}, 3], [{count}, 2] or {3 * count} numbers an instance, as in the first"
    form = partial(as_points, count=count)
    return PointField(name, field, Instances(dataset, name, column, form, expected))
