"""Batch mixing: `MixUp` and `CutMix` on neighbouring images. `mixing_draws` draws the parameters."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias, get_args

from headrace.errors import UsageError
from headrace.foreign_arguments import KnownArguments

MixMode: TypeAlias = Literal["batch", "pair"]


@dataclass(frozen=True)
class Mixing(KnownArguments):
    """Base of MixUp and CutMix, with their common arguments."""

    _: KW_ONLY
    alpha: float = 1.0
    num_classes: int | None = None
    labels: str = "label"
    field: str = "image"
    mode: MixMode = "batch"
    label_smoothing: float = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not _is_number(self.alpha) or not 0 < self.alpha < math.inf:
            raise UsageError(
                f"{name}: expected alpha to be a number above 0, got {self.alpha!r}; leave {name} out for 0"
            )
        if self.num_classes is not None and (type(self.num_classes) is not int or self.num_classes < 1):
            raise UsageError(
                f"{name}: expected num_classes to be None or an int of at least 1, got {self.num_classes!r}"
            )
        for what in ("labels", "field"):
            if not isinstance(getattr(self, what), str):
                raise UsageError(f"{name}: expected {what} to be the name of a field, got {getattr(self, what)!r}")
        if self.mode not in get_args(MixMode):
            raise UsageError(f"{name}: expected mode to be one of {get_args(MixMode)}, got {self.mode!r}")
        if not _is_number(self.label_smoothing) or not 0 <= self.label_smoothing < 1:
            raise UsageError(
                f"{name}: expected label_smoothing to be a number from 0 to below 1, got {self.label_smoothing!r}"
            )
        if not _is_number(self.p) or not 0 <= self.p <= 1:
            raise UsageError(f"{name}: expected p to be a probability from 0 to 1, got {self.p!r}")


@dataclass(frozen=True)
class MixUp(Mixing):
    """Blend of neighbouring images in a batch: `lambda` of one and `1 - lambda` of the other (Zhang et al., 2018).

    `lambda` is drawn from Beta(alpha, alpha). Labels become float32 [N, classes], blended with the same weights.

    `alpha`            above 0; small: `lambda` is mostly near 0 or 1
    `num_classes`      default: the dataset's number of classes, if it has class names, as class folders do
    `labels`, `field`  the Label field and the Image field to mix
    `mode`             "batch": one `lambda` for the batch; "pair": one for each pair, as in timm
    `label_smoothing`  the fraction of each label that is spread evenly over all classes, also without mixing
    `p`                probability that the batch, or the pair, is mixed
    """


@dataclass(frozen=True)
class CutMix(Mixing):
    """Exchange of a box between neighbouring images (Yun et al., 2019). Arguments are MixUp's.

    The box has `1 - lambda` of the image's area. Its centre is anywhere in the image, so the edge may clip it. Labels
    are blended by the clipped area.
    """


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
