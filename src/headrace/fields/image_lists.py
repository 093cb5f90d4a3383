"""The `Images` field: several images a sample, such as the frames of a clip or the pictures of a conversation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, TypeAlias, get_args

from headrace.errors import UsageError
from headrace.fields.image import Image, check_choice
from headrace.foreign_arguments import KnownArguments

Frames: TypeAlias = Literal["even", "segments", "window"]
ViewPer: TypeAlias = Literal["sample", "image"]

MOST_FRAMES = 1 << 16
"""Maximum `count`, and maximum distance between two frames."""


@dataclass(frozen=True)
class Images(KnownArguments, of="field"):
    """Column of lists of images: decoded, cropped and resampled as `image` says.

    With `count`, the batch has `count` images of each sample: [N, count, C, H, W]. A sample without an image is bad.
    Without `count`, it has all images of all samples, one after another: [sum of K, C, H, W], and beside them
    "<name>_counts", int64 [N], the number of images of each sample, 0 included.

    `source` names the column if it differs from the field's name: lists of paths or of bytes, texts with such lists as
    JSON, or folders of images, which are taken in natural order of their names. A pattern such as "*.jpg" or
    "observation.images.*" takes all columns that it matches as one list, in natural order, without those that a sample
    lacks.

    `frames` chooses `count` of a sample's K images. "even" takes the middle image of each of `count` equal segments;
    "segments" a random image of each segment (Wang et al., "Temporal segment networks", ECCV 2016); "window" images
    that are `stride` apart, from a random first one. Fewer images than `count` are repeated in "even" and "segments";
    a window repeats its last image.

    `view_per="sample"` cuts all images of a sample by one window, with one draw for augmentations; "image" draws for
    each image. One bad image makes the sample bad. Boxes, masks and other fields of places follow other image fields,
    never this one.
    """

    image: Image = field(default_factory=Image)
    _: KW_ONLY
    count: int | None = None
    frames: Frames = "even"
    stride: int = 1
    view_per: ViewPer = "sample"
    source: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.image, Image):
            raise UsageError(f"Images: expected image to be hr.Image(…), got {self.image!r}")
        if self.image.source is not None:
            raise UsageError(
                f"Images: expected an Image without source, got source={self.image.source!r}; pass it to Images"
            )
        if self.image.copies is not None or self.image.copy_count is not None:
            raise UsageError(f"Images: expected an Image without copies, got {self.image!r}; leave them out")
        if self.image.scale != 1:
            raise UsageError(f"Images: expected an Image of scale 1, got scale={self.image.scale}; leave it out")
        check_choice(self, "frames", get_args(Frames))
        check_choice(self, "view_per", get_args(ViewPer))
        for name, value in (("count", self.count), ("stride", self.stride)):
            if value is not None and (type(value) is not int or not 1 <= value <= MOST_FRAMES):
                raise UsageError(f"Images: expected {name} to be an int from 1 to {MOST_FRAMES:,}, got {value!r}")
        if self.count is None and (self.frames != "even" or self.stride != 1):
            raise UsageError(
                f"Images: expected count= with frames={self.frames!r} and stride={self.stride}, got None; pass the "
                "number of images to take of each sample"
            )
        if self.stride != 1 and self.frames != "window":
            raise UsageError(f'Images: expected stride=1 with frames={self.frames!r}, got {self.stride}; use "window"')
