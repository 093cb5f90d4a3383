"""Fields that follow an image's view: boxes, keypoints, instance masks, and the view's geometry."""

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
    """List of boxes per sample, in pixels of the image that the view is drawn from (after any EXIF rotation).

    In the batch: a list of N arrays float32 [k, 4], as xyxy in pixels of the output, which torchvision's detection
    models take. Boxes are clipped to where the image lies on the output, not to its padding. A box is dropped if a side
    is below `min_size` output pixels, if less than the share `min_visible` of its area remains, or if it has no area.
    Coordinates are edges: pixel 0 reaches from 0 to 1.

    `source` is a column of lists of four numbers per box, as `format` says ("xywh" is COCO's `bbox`, "cxcywh" has the
    centre), or of their JSON. `beside` names columns of lists with one item per box, such as `label`, `iscrowd` or
    `area`. Each comes under the field's name + "_" + the column's, without the items of dropped boxes.

    Numbers that are not finite, and lists of another length, raise DatasetError.
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
    """List of K points per instance and sample, in pixels of the image that the view is drawn from.

    In the batch: a list of N arrays float32 [k, K, 3]: x and y in pixels of the output, and visibility. A point outside
    the visible part of the image has x = y = visibility = 0, like a point that was not labelled: of visibility 0, or
    with an x or y that is not finite. Coordinates are those of boxes: the middle of pixel 0 is 0.5. `offset` is added
    to x and y if the source counts otherwise: use 0.5 if it names pixels, as COCO does, or a flip is a pixel off.

    `source` is a column of lists: [K, 3] or [K, 2] numbers per instance (visibility is then 2), 3·K as in COCO, or the
    JSON of either. Under a flip, horizontal or vertical but not both, the points of each of `flip_pairs` change places,
    such as a left and a right eye. `of` names a field of boxes: instances whose box it drops are dropped here.

    Lists of another form, or of another length than the boxes', raise DatasetError.
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
    """One mask per instance: where in the image each object is.

    In the batch: a list of N arrays uint8 [k, H, W], 1 on the object, at the size of the output, which torchvision's
    Mask R-CNN takes alongside its boxes. A pixel of the image belongs to an object if its middle lies within the
    outline. The view picks the pixels that `Mask` picks, so both agree. Padding is 0.

    `source` is a column of lists with COCO's `segmentation` of each instance as JSON: polygons, or run lengths of the
    whole image, compressed or not. `of` names a field of boxes: instances whose box it drops are dropped here.

    Outlines of another form, or of another number than the boxes', raise DatasetError.
    """

    _: KW_ONLY
    source: str | None = None
    of: str | None = None


@dataclass(frozen=True)
class Geometry(KnownArguments, of="field"):
    """The view that a sample got, to map what a model finds on the output back to the source.

    In the batch: a dict of `window` float32 [N, 4], what the output shows of the source as x0, y0, x1, y1 in the
    source's pixels; `scale` float32 [N, 2], output pixels per source pixel along x and y; `flip` bool [N, 2], whether
    the output is mirrored along x and y; `original_size` int64 [N, 2], the source's height and width.

    A place (x, y) of the output, after `x = width - x` where it is mirrored along x, lies at `window[:2] + (x, y) /
    scale` of the source. Coordinates are edges, as those of Boxes. The window covers all of the output: where that is
    padded, it reaches beyond the image. A crop that fell entirely into padding shows nothing: its window has no area,
    and its scale is 0. The source is the field of pixels that views are drawn from (`view_from=`), after any EXIF
    rotation. With `on_error="replace"` the geometry is the replacement's.
    """


def _is_pair(pair: object) -> bool:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        return False
    return all(type(index) is int and index >= 0 for index in pair)
