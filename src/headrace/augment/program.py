"""Program of augmentations: the table from which the core draws each image's operations (core/augment/program.hpp)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.foreign_arguments import KnownArguments

Fill: TypeAlias = int | Sequence[int]
"""Value outside the image, 0..255: one for all channels or one per channel."""

SEQUENCE, CHOICE, ORDER, AUGMIX = 1, 2, 3, 4
BRIGHTNESS, CONTRAST, SATURATION, HUE, GRAYSCALE, INVERT, SOLARIZE, POSTERIZE = range(10, 18)
AUTOCONTRAST, EQUALIZE, SHARPNESS, GAUSSIAN_BLUR, PERMUTE_CHANNELS, ERASE, SOLARIZE_ADD = range(18, 25)
AFFINE, PERSPECTIVE, ELASTIC = 40, 41, 42

_FIRST_PARAMETER, _PARAMETER_COLUMNS, _PARAMETERS, _CONSTANTS = 4, 7, 6, 8


@dataclass(frozen=True)
class Drawn:
    """Random number drawn for each image: `offset` + s * (`low` + t * (`high` - `low`)).

    s is -1 or 1 with equal probability if `signed`, else 1. t is 0 (`distribution` 0), uniform in [0, 1) (1),
    k / (x - 1) with k uniform below x (2), or normal with mean x and deviation y, clipped to 0…1 (3).
    """

    low: float
    high: float
    distribution: int
    x: float = 0.0
    y: float = 0.0
    signed: bool = False
    offset: float = 0.0

    @classmethod
    def fixed(cls, value: float, *, signed: bool = False, offset: float = 0.0) -> Drawn:
        return cls(value, value, 0, signed=signed, offset=offset)

    @classmethod
    def uniform(cls, low: float, high: float) -> Drawn:
        return cls.fixed(low) if low == high else cls(low, high, 1)

    @classmethod
    def steps(cls, low: float, high: float, count: int, *, signed: bool = False, offset: float = 0.0) -> Drawn:
        """Return a draw of one of `count` equally spaced values from `low` to `high`."""
        return cls(low, high, 2, x=count, signed=signed, offset=offset)

    def row(self) -> tuple[float, ...]:
        return (self.distribution, self.low, self.high, self.x, self.y, float(self.signed), self.offset)


@dataclass(frozen=True)
class Node:
    """Operation or group of operations, in the core's format."""

    kind: int
    parameters: tuple[Drawn, ...] = ()
    constants: tuple[float, ...] = ()
    children: tuple[Node, ...] = ()
    probability: float = 1.0
    weight: float = 1.0

    def rows(self) -> Iterator[NDArray[np.float64]]:
        row = np.zeros(_core.AUGMENT_COLUMNS)
        row[:4] = self.kind, len(self.children), self.probability, self.weight
        for number, parameter in enumerate(self.parameters):
            start = _FIRST_PARAMETER + number * _PARAMETER_COLUMNS
            row[start : start + _PARAMETER_COLUMNS] = parameter.row()
        first = _FIRST_PARAMETER + _PARAMETERS * _PARAMETER_COLUMNS
        row[first : first + len(self.constants)] = self.constants
        yield row
        for child in self.children:
            yield from child.rows()

    def operations(self) -> Iterator[Node]:
        """Yield the leaf operations in order."""
        if self.kind >= BRIGHTNESS:
            yield self
        for child in self.children:
            yield from child.operations()


class Augmentation(KnownArguments, ABC):
    """Operation on an image's pixels after the view, with parameters drawn for each image."""

    @abstractmethod
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that the core runs in sequence."""

    def refuse(self, name: str, expected: str, hint: str = "") -> UsageError:
        """Return a UsageError for an invalid argument."""
        got = getattr(self, name)
        return UsageError(f"{type(self).__name__}: expected {name} to be {expected}, got {got!r}{hint and f'; {hint}'}")


@dataclass(frozen=True, eq=False)
class AugmentProgram:
    """Compiled augmentations of a field or a sample. `table` is float64 [nodes, 54], read-only."""

    table: NDArray[np.float64]
    kinds: frozenset[int] = field(default_factory=frozenset)
    """Kinds of all operations that may run."""
    makes_noise: bool = False
    """True if an erasure may write normally distributed values."""

    @property
    def erases(self) -> bool:
        """True if an erasure may write values in the batch's units, which bytes cannot represent."""
        return ERASE in self.kinds

    @property
    def moves_pixels(self) -> bool:
        """True if an operation may be geometric."""
        return bool(self.kinds & {AFFINE, PERSPECTIVE, ELASTIC})

    @property
    def mixes(self) -> bool:
        """True if an operation may be an AugMix."""
        return bool((self.table[:, 0] == AUGMIX).any())

    @property
    def native(self) -> _core.Augmentation:
        return _core.Augmentation(self.table)


def group(kind: int, nodes: Sequence[Node], *, probability: float = 1.0, constants: tuple[float, ...] = ()) -> Node:
    """Return a group node; a sequence of one node that always runs is returned as that node."""
    if kind == SEQUENCE and len(nodes) == 1 and probability == 1.0:
        return nodes[0]
    return Node(kind, constants=constants, children=tuple(nodes), probability=probability)


def with_weight(node: Node, weight: float) -> Node:
    return replace(node, weight=weight)
