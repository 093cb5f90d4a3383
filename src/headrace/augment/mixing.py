"""`MixUp` and `CutMix`: neighbours of a batch blended, or cut into each other. `mixing_draws` has what is drawn."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias, get_args

from headrace.errors import UsageError

MixMode: TypeAlias = Literal["batch", "pair"]


@dataclass(frozen=True)
class Mixing:
    """Base of the two kinds of mixing, with their arguments."""

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
    """Blend of each two neighbours of a batch: `lambda` of one and `1 - lambda` of the other (Zhang et al., 2018).

    `lambda` is drawn from Beta(alpha, alpha). Labels become float32 [N, classes], blended alike.

    `alpha`            above 0; small: mostly near 0 or 1
    `num_classes`      default: those of the dataset, where it has their names, as class folders have
    `labels`, `field`  the Label field and the Image field that are mixed
    `mode`             "batch": one `lambda` for all; "pair": one for each pair, as timm has it
    `label_smoothing`  a share of each label that is spread evenly over all classes, also where nothing is mixed
    `p`                probability that the batch, or the pair, is mixed at all
    """


@dataclass(frozen=True)
class CutMix(Mixing):
    """Box of one image pasted into its neighbour, and the reverse (Yun et al., 2019). Arguments are MixUp's.

    The box has `1 - lambda` of the image's area and its centre anywhere in the image, so that it may be cut off at the
    edge. Labels are blended by the area that it really has.
    """


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
