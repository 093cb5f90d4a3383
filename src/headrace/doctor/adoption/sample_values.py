"""Values of a dataset's `__getitem__` while it is read: what a sample is made of, with nothing of it computed.

Numbers, texts, lists, dicts and rebuilt objects stand for themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True)
class Cell:
    """Value of a table: what a list or a table of the dataset has for this sample, or a part of that.

    `table` is where the dataset has it, `self.samples`; `keys` lead from a row of it to the value; `examples` are the
    values of its first rows, where they are known.
    """

    table: str
    keys: tuple[str | int, ...] = ()
    examples: tuple[Any, ...] = ()
    by_index: bool = True
    """Whether the row is that of the sample's own index."""

    def part(self, key: str | int) -> Cell:
        found = []
        for example in self.examples:
            try:
                found.append(example[key])
            except (KeyError, IndexError, TypeError):
                break
        return replace(self, keys=(*self.keys, key), examples=tuple(found))

    def as_number(self) -> Cell:
        """Return the value where the script makes a number of it, which its examples become as well."""
        texts = [str(one) for one in self.examples]
        numbers = tuple(int(one) for one in texts if one.removeprefix("-").isdecimal())
        return replace(self, examples=numbers if len(numbers) == len(texts) else ())


@dataclass(frozen=True)
class TableColumn:
    """Column of a table of pandas or pyarrow."""

    table: str
    name: str


@dataclass(frozen=True)
class FilePath:
    """Path of a file or name of a member, joined of texts and cells. `archive` is the archive's own path."""

    parts: tuple[str | Cell, ...]
    archive: Any = None

    @property
    def cells(self) -> list[Cell]:
        return [part for part in self.parts if isinstance(part, Cell)]


StepKind: TypeAlias = Literal[
    "transform",
    "convert",
    "resize",
    "scale",
    "pad",
    "crop",
    "flip",
    "bgr",
    "rgb",
    "grey",
    "exif",
    "cast",
    "arithmetic",
    "function",
    "own",
]


@dataclass(frozen=True)
class PictureStep:
    """What the script does to a picture: by a transform of a library's, by a call of Pillow's, or by arithmetic."""

    kind: StepKind
    place: str
    """`train.py:41`."""
    text: str
    """The expression, in one line."""
    value: Any = None
    operand: Any = None


@dataclass(frozen=True)
class Picture:
    """Pixels of a file, and the steps that were taken since it was decoded."""

    origin: FilePath | Cell
    steps: tuple[PictureStep, ...] = ()
    layout: Literal["HWC", "CHW"] = "HWC"

    def then(self, *steps: PictureStep, layout: Literal["HWC", "CHW"] | None = None) -> Picture:
        return replace(self, steps=self.steps + steps, layout=layout or self.layout)


@dataclass(frozen=True)
class Quantile:
    """Quantile of a picture's own values; `level` is None for several at once."""

    levels: tuple[float, ...]


@dataclass(frozen=True)
class DrawnNumber:
    """Number that the script draws from `low` to `high`, or among `choices`, and to which it then adds `plus`."""

    place: str
    """Of the call that draws it: two of one place are one draw."""
    low: float | None
    high: float | None
    plus: int = 0
    choices: tuple[float, ...] = ()


@dataclass(frozen=True)
class DrawnWindow:
    """Side or place of the window that torchvision's `RandomResizedCrop.get_params` draws."""

    scale: tuple[float, ...]
    ratio: tuple[float, ...]


@dataclass(frozen=True)
class PictureSide:
    """Height or width of a picture, times a number that is drawn."""

    axis: Literal["height", "width"]
    scale: DrawnNumber | None = None
    in_proportion: bool = False
    """Whether it is over the other side, so that the scale is that side's new length."""


@dataclass(frozen=True)
class Validity:
    """Pixels of a picture that lie within bounds."""

    picture: Picture
    near: float | None = None
    far: float | None = None


@dataclass(frozen=True)
class TokenizedText:
    """Text after a tokenizer: `part` is `ids` or `mask`, or empty for both."""

    text: Any
    tokenizer: Any
    settings: tuple[tuple[str, Any], ...]
    place: str
    part: str = ""


@dataclass(frozen=True)
class ArrayFile:
    """Array of a `.npy` file."""

    origin: FilePath | Cell


@dataclass(frozen=True)
class Computed:
    """What the script computes in its own Python, of these values."""

    text: str
    place: str
    inputs: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ModuleName:
    """Module, function or class of a library, by its full name."""

    name: str


_UNKNOWN = (
    *(Cell, FilePath, Picture, Quantile, Validity, TokenizedText, ArrayFile, Computed, ModuleName),
    *(DrawnNumber, DrawnWindow, PictureSide),
)


def values_inside(value: Any) -> Iterable[Any]:
    """Return the values that one is computed from, or holds."""
    if isinstance(value, Computed):
        return value.inputs
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def pictures_in(value: Any) -> Iterator[Picture]:
    """Yield the pictures that a value is made of."""
    if isinstance(value, Picture):
        yield value
    elif isinstance(value, Validity):
        yield value.picture
    else:
        for one in values_inside(value):
            yield from pictures_in(one)


def is_known(value: Any) -> bool:
    """Tell whether a value stands for itself."""
    if isinstance(value, list | tuple):
        return all(map(is_known, value))
    if isinstance(value, dict):
        return all(map(is_known, value.values()))
    return not isinstance(value, _UNKNOWN)


def compared_values(operation: ast.cmpop, left: Any, right: Any) -> bool | None:
    """Return what a comparison gives: by identity, equality or `in`; None of other ones, and of unknown values."""
    if right is None and isinstance(operation, ast.IsNot) and isinstance(left, Picture):
        return True
    if not is_known(left) or not is_known(right):
        return None
    if isinstance(operation, ast.In | ast.NotIn):
        inside = left in right if isinstance(right, list | tuple | dict | str) else None
        return inside if inside is None or isinstance(operation, ast.In) else not inside
    if not isinstance(operation, ast.Is | ast.Eq | ast.IsNot | ast.NotEq):
        return None
    return bool(left is right or left == right) is isinstance(operation, ast.Is | ast.Eq)


def joined_path(parts: list[Any], between: str = "") -> FilePath | None:
    """Return the path that texts and cells make; None where there is something else among them, or no cell."""
    found: list[str | Cell] = []
    archive = None
    for number, part in enumerate(parts):
        if number and between:
            found.append(between)
        if isinstance(part, FilePath):
            found.extend(part.parts)
        elif isinstance(part, Cell):
            found.append(part)
        elif isinstance(part, str | PurePosixPath):
            found.append(str(part))
        else:
            return None
    return FilePath(tuple(found), archive) if any(isinstance(part, Cell) for part in found) else None


def transformed(value: Any, transform: Any, place: str = "") -> Any:
    """Return a picture after a transform of the dataset's; unchanged for None."""
    if transform is None or not isinstance(value, Picture):
        return value
    return value.then(PictureStep("transform", place, repr(transform), transform), layout="CHW")
