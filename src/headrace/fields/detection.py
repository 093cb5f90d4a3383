"""Fields transformed by the image's view: boxes, keypoints, instance masks, and the view's geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias, get_args

from headrace.errors import UsageError
from headrace.fields.image import check_choice, is_number
from headrace.foreign_arguments import KnownArguments

BoxFormat: TypeAlias = Literal["xyxy", "xywh", "cxcywh"]

BOX_FORMATS: tuple[BoxFormat, ...] = get_args(BoxFormat)


@dataclass(frozen=True)
class Boxes(KnownArguments, of="field"):
    """List of boxes per sample, in pixels of the image that the view crops (after any EXIF rotation).

    In the batch: a list of N float32 arrays [k, 4], as xyxy in output pixels, the input of torchvision's detection
    models. Boxes are clipped to the image's area of the output, which excludes padding. A box is dropped if a side is
    below `min_size` output pixels, if less than the fraction `min_visible` of its area remains, or if it has no area.
    Coordinates are pixel edges: pixel 0 spans 0 to 1.

    `source` is a column of lists of four numbers per box, or of their JSON. `format` is their layout ("xywh" is COCO's
    `bbox`, "cxcywh" starts with the centre). `beside` names columns of lists with one item per box, such as `label`,
    `iscrowd` or `area`. Each is in the batch as the field's name + "_" + the column's name, without the items of
    dropped boxes.

    Non-finite numbers and lists whose lengths differ raise DatasetError.
    """

    _: KW_ONLY
    source: str | None = None
    format: BoxFormat = "xyxy"
    min_size: float = 1.0
    min_visible: float = 0.0
    beside: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice(self, "format", BOX_FORMATS)
        if not is_number(self.min_size) or self.min_size < 0:
            raise UsageError(f"Boxes: expected min_size to be a number of pixels of at least 0, got {self.min_size!r}")
        if not is_number(self.min_visible) or not 0 <= self.min_visible <= 1:
            raise UsageError(f"Boxes: expected min_visible to be a share from 0 to 1, got {self.min_visible!r}")
        names = self.beside
        if (
            isinstance(names, str)
            or not isinstance(names, Sequence)
            or not all(isinstance(each, str) for each in names)
        ):
            raise UsageError(f"Boxes: expected beside to be names of columns, such as ('label',), got {names!r}")
        object.__setattr__(self, "beside", tuple(names))


@dataclass(frozen=True)
class Keypoints(KnownArguments, of="field"):
    """List of K points per instance and sample, in pixels of the image that the view crops.

    In the batch: a list of N float32 arrays [k, K, 3]: x and y in output pixels, and visibility. A point outside the
    visible part of the image has x = y = visibility = 0. So has an unlabelled point: visibility 0, or a non-finite x or
    y. Coordinates are pixel edges, as in Boxes: the centre of pixel 0 is 0.5. `offset` is added to x and y: use
    0.5 if the source gives pixel indices, as COCO does; otherwise a flip is off by a pixel.

    `source` is a column of lists: [K, 3] or [K, 2] numbers per instance (visibility is then 2), 3·K as in COCO, or the
    JSON of either. A flip along one axis, but not along both, swaps the points of each pair in `flip_pairs`, such as
    the left and right eye. `of` names a field of boxes; an instance is dropped together with its box.

    Lists of another form, or with another number of instances than boxes, raise DatasetError.
    """

    _: KW_ONLY
    source: str | None = None
    flip_pairs: Sequence[tuple[int, int]] = ()
    of: str | None = None
    offset: float = 0.0

    def __post_init__(self) -> None:
        pairs = self.flip_pairs
        if not isinstance(pairs, Sequence) or not all(map(_is_pair, pairs)):
            raise UsageError(f"Keypoints: expected flip_pairs to be pairs of indices, such as [(1, 2)], got {pairs!r}")
        indices = [index for pair in pairs for index in pair]
        if len(set(indices)) < len(indices):
            raise UsageError(f"Keypoints: expected flip_pairs to name each point once at most, got {pairs!r}")
        object.__setattr__(self, "flip_pairs", tuple((first, second) for first, second in pairs))
        if not is_number(self.offset):
            raise UsageError(f"Keypoints: expected offset to be a finite number of pixels, got {self.offset!r}")


@dataclass(frozen=True)
class InstanceMasks(KnownArguments, of="field"):
    """List of one binary mask per instance.

    In the batch: a list of N uint8 arrays [k, H, W] at the output's size, 1 on the object, the input of torchvision's
    Mask R-CNN alongside the boxes. A pixel of the image belongs to an object if its centre is inside the outline. The
    view samples the same pixels as for `Mask`, so both agree. Padding is 0.

    `source` is a column of lists with COCO's `segmentation` of each instance as JSON: polygons, or run lengths of the
    whole image, compressed or not. `of` names a field of boxes; an instance is dropped together with its box.

    Outlines of another form, or in another number than boxes, raise DatasetError.
    """

    _: KW_ONLY
    source: str | None = None
    of: str | None = None


@dataclass(frozen=True)
class Geometry(KnownArguments, of="field"):
    """Geometry of each sample's view, to map a model's predictions on the output back to the source.

    In the batch: a dict of `window` float32 [N, 4], the part of the source in the output as x0, y0, x1, y1 in source
    pixels; `scale` float32 [N, 2], output pixels per source pixel along the source's x and y; `flip` bool [N, 2], True
    if the output is mirrored along x, y; `transposed` bool [N], True if a RandomQuarterTurn has made rows of columns;
    `original_size` int64 [N, 2], the source's height and width.

    A point (x, y) of the output, after `x = width - x` if mirrored along x, then with x and y swapped if transposed, is
    at `window[:2] + (x, y) / scale` in the source. Coordinates are pixel edges, as in Boxes. The window covers the
    whole output, so with padding it extends beyond the image. The window of a crop entirely inside padding has no area,
    and its scale is 0. The source is the pixel field that views are drawn from (`view_from=`), after any EXIF rotation.
    With `on_error="replace"` the geometry is the replacement's.
    """


def _is_pair(pair: object) -> bool:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        return False
    return all(type(index) is int and index >= 0 for index in pair)
