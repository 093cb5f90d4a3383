"""Combinators: one of several augmentations, drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import UsageError


@dataclass(frozen=True)
class RandomChoice:
    """One of `transforms`, drawn by the weights `p`; None: each as likely as the others.

    Of MixUp and CutMix, as `batch=` of a Loader, it is drawn for each batch.
    """

    transforms: Sequence[Any]
    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.transforms, list | tuple) or not self.transforms:
            raise UsageError(f"RandomChoice: expected a list of augmentations, got {self.transforms!r}")
        object.__setattr__(self, "transforms", tuple(self.transforms))
        if self.p is None:
            return
        numbers = isinstance(self.p, list | tuple) and all(
            isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each < math.inf for each in self.p
        )
        if not numbers or len(self.p) != len(self.transforms) or not sum(self.p) > 0:
            raise UsageError(
                f"RandomChoice: expected p to be None or {len(self.transforms)} weights of at least 0, one for each of "
                f"transforms and not all 0, got {self.p!r}"
            )
        object.__setattr__(self, "p", tuple(map(float, self.p)))
