"""Combinators of augmentations, with the names and arguments of torchvision.transforms.v2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.augment.mixing import Mixing
from headrace.augment.pixels import check_probability, is_number
from headrace.augment.program import CHOICE, ORDER, SEQUENCE, Augmentation, Node, group, with_weight
from headrace.augment.timm_policies import as_augmentation
from headrace.foreign_arguments import belongs


def _parts(augmentation: Augmentation) -> list[Node]:
    """Return one node for each item of `transforms`. Raises UsageError for anything but augmentations."""
    transforms = augmentation.transforms  # type: ignore[attr-defined]
    if not isinstance(transforms, list | tuple) or not transforms:
        raise augmentation.refuse("transforms", "a list of augmentations")
    parts = []
    for transform in transforms:
        each = as_augmentation(transform)
        if not isinstance(each, Augmentation):
            raise augmentation.refuse("transforms", "a list of augmentations", belongs(transform)[2:])
        parts.append(group(SEQUENCE, each.nodes()))
    return parts


@dataclass(frozen=True)
class RandomApply(Augmentation):
    """Sequence of all `transforms`, run with probability `p`."""

    transforms: Sequence[Augmentation | str]
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self)
        _parts(self)

    def nodes(self) -> tuple[Node, ...]:
        return (group(SEQUENCE, _parts(self), probability=self.p),)


@dataclass(frozen=True)
class RandomChoice(Augmentation):
    """One of `transforms`, drawn with the weights `p` (None: equal weights).

    A choice of MixUp and CutMix is an argument of `Loader(batch=)` and is drawn per batch.
    """

    transforms: Sequence[Augmentation | str | Mixing]
    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        parts, weights = self.transforms if self.mixes else _parts(self), self.p
        if weights is None:
            return
        whole = isinstance(weights, list | tuple) and len(weights) == len(parts)
        if not whole or not all(is_number(weight) and weight >= 0 for weight in weights) or sum(weights) <= 0:
            raise self.refuse("p", f"None, or {len(parts)} weights of at least 0 that do not sum to 0")

    @property
    def mixes(self) -> bool:
        """True if all `transforms` are batch mixings."""
        given = self.transforms
        return isinstance(given, list | tuple) and len(given) > 0 and all(isinstance(each, Mixing) for each in given)

    def nodes(self) -> tuple[Node, ...]:
        if self.mixes:
            raise self.refuse("transforms", "augmentations of single images", "give mixings to Loader(batch=…)")
        parts = _parts(self)
        weights = [1.0] * len(parts) if self.p is None else self.p
        children = [with_weight(part, weight) for part, weight in zip(parts, weights, strict=True)]
        return (group(CHOICE, children, constants=(1,)),)


@dataclass(frozen=True)
class RandomOrder(Augmentation):
    """Sequence of all `transforms` in a random order."""

    transforms: Sequence[Augmentation | str]

    def __post_init__(self) -> None:
        _parts(self)

    def nodes(self) -> tuple[Node, ...]:
        return (group(ORDER, _parts(self)),)
