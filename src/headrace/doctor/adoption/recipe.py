"""Recipe of a Loader: what the script's Dataset and DataLoader would be, and how sure each part of that is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..session.producers import OutputLeaf
from .sample_values import Cell

Certainty = Literal["exact", "differs", "check", "python", "no"]
"""How sure a part is: the same result; the same with a difference that its note names; a reading of the script that its
author has to check; stays the script's own Python, in `map=`; or cannot be taken."""
Degree = Literal["exact", "draft", "no"]
KEY = "__key__"
"""In place of a column: the sample's key."""
Argument = Literal["source", "fields", "view", "augment", "map", "output", "loader"]


@dataclass(frozen=True)
class RecipePart:
    """Part of the script, and what does it in the recipe."""

    part: str
    """As the script or its library writes it, in one line."""
    place: str
    """`train.py:41`; empty where no line is known."""
    becomes: str
    """Empty where nothing does."""
    certainty: Certainty
    note: str = ""
    argument: Argument = "fields"
    """What of the recipe it concerns."""


@dataclass(frozen=True)
class ModuleFunction:
    """Function of the generated module: one that opens the data needs, or what runs in `map=`."""

    name: str
    code: str
    """The whole `def`, as Python."""


@dataclass(frozen=True)
class DataSource:
    """Expression that opens the data, and the names of its columns."""

    code: str
    columns: Mapping[tuple[str, tuple[str | int, ...]], str] = field(default_factory=dict)
    """Column of each cell, by its table and keys; of others the last key is the column's name."""
    constants: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    functions: tuple[ModuleFunction, ...] = ()
    """Of the module, that the expression calls."""
    parts: tuple[RecipePart, ...] = ()
    length: int | None = None
    """Samples that the script's dataset has, where its lists tell."""
    classes: int | None = None
    """Classes that it numbers, where they are known."""
    chosen: str | None = None
    """Indices of the samples that the script takes; None for all."""

    def column(self, cell: Cell) -> str:
        keys = tuple(key for key in cell.keys if key != "random")
        return self.columns.get((cell.table, keys), str(keys[-1]) if keys else cell.table)


@dataclass(frozen=True)
class KnownSample:
    """What a sample of a known dataset is."""

    value: Any
    source: DataSource
    batch_size: int | None = None
    """Of a dataset that batches itself."""
    drop_last: bool = False
    """Of such a dataset."""


@dataclass(frozen=True)
class ExpectedSource:
    """Samples and classes that the script's dataset has, which the recipe's source has to have as well."""

    least: int | None = None
    """Samples, before any are chosen. The same as `most` where a list of them was seen; the length of the DataLoader
    leaves the size of its last batch open."""
    most: int | None = None
    classes: int | None = None
    batch: Mapping[str, OutputLeaf] = field(default_factory=dict)
    """Arrays and texts of the script's batch by path; empty where no batch was seen."""

    def difference(self, samples: int | None, classes: int | None) -> str:
        """Say how a source that was opened differs; empty where it does not, as far as both are known."""
        least, most = self.least, self.most
        if samples is not None and least is not None and most is not None and not least <= samples <= most:
            held = f"{most:,}" if least == most else f"{least:,} to {most:,}"
            return (
                f"the script's dataset holds {held} samples, this source {samples:,}: it may leave files out by their "
                f"ending, their name or a test of its own; take these by data.select(indices) or a manifest"
            )
        if classes is not None and self.classes is not None and classes != self.classes:
            return (
                f"the script's dataset numbers {self.classes:,} classes, this source {classes:,}, so that labels "
                f"differ: name them all by hr.open(…, classes=[…])"
            )
        return ""

    def other_leaves(self, made: Mapping[str, str]) -> Iterator[RecipePart]:
        """Yield a part for each array of the script's batch that a batch of these kinds has not, or has otherwise."""
        for path, leaf in self.batch.items() if made else ():
            seen, kind = leaf.kind, made.get(path, "nothing")
            if leaf.shape is not None and leaf.dtype is not None:
                seen = f"{leaf.dtype}{leaf.shape}"
                is_same = _of_a_sample(seen) == _of_a_sample(kind)
            else:
                is_same = path in made and (kind == seen or seen not in ("str", "bytes"))
            if not is_same:
                note = f"the script's batch has {seen}, the Loader's {kind}"
                yield RecipePart(path or "batch", "", "", "check", note, "output")


def _of_a_sample(kind: str) -> str:
    """Return the type and shape of an array without its first side, which is the number of samples."""
    return re.sub(r"\[\d+(, )?", "[", kind, count=1)


@dataclass(frozen=True)
class LoaderRecipe:
    """Arguments of `hr.open` and `hr.Loader` as Python expressions, and the batch that the script takes.

    `source`, the values of `fields`, `view`, `augment` and `output` are code in which `hr` is headrace. `output` is an
    expression of `batch`, the Loader's own dict.
    """

    source: str
    fields: Mapping[str, str]
    output: str
    chosen: str | None = None
    """Indices of the samples that are taken; None for all."""
    view: str | None = None
    augment: str | None = None
    mixing: str | None = None
    """Mixing of the samples of a batch, `hr.MixUp(0.2)`."""
    functions: tuple[ModuleFunction, ...] = ()
    """What the module defines beside its own two."""
    map: str | None = None
    """Name of the function that runs on each sample."""
    parts: tuple[RecipePart, ...] = ()
    degree: Degree = "draft"
    reason: str = ""
    """Why the degree is not higher, in one sentence; empty for `exact`."""
    batch_size: int = 1
    shuffle: bool = False
    drop_last: bool = False
    imports: tuple[str, ...] = ()
    """Further import statements of the module."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Names that the source and the fields use, with their values as Python."""
    script: tuple[str, ...] = ()
    """The script and its arguments, to be run for the comparison; empty where the command names no file."""
    is_launched: bool = False
    """Whether a launcher started it as one of several ranks."""
    dataset: str = ""
    """Class of the dataset that the DataLoader has, `torchvision.datasets.folder.ImageFolder`."""
    expected: ExpectedSource | None = None
    """What the source has to hold, as far as the session tells."""

    def tried(self, samples: int | None, classes: int | None, made: Mapping[str, str]) -> LoaderRecipe:
        """Return the recipe after a trial opened its source and made a batch.

        Another number of samples or classes than the script's dataset has is a part to check, and so is each array of
        the script's batch that is not `made`, or in another type or shape.
        """
        if self.expected is None or self.degree == "no":
            return self
        note = self.expected.difference(samples, classes)
        source = RecipePart("samples of the dataset", "", self.source, "check", note, "source")
        found = [*([source] if note else []), *self.expected.other_leaves(made)]
        if not found:
            return self
        reason = f"{found[-1].note[:1].upper()}{found[-1].note[1:]} ({found[-1].part})."
        reason = self.reason if self.degree == "draft" else reason
        return replace(self, parts=(*found, *self.parts), degree="draft", reason=reason)

    @property
    def unsure(self) -> tuple[RecipePart, ...]:
        """Parts that the script's author has to look at."""
        return tuple(part for part in self.parts if part.certainty not in ("exact", "differs"))


@dataclass(frozen=True)
class Adoption:
    """What a script would be with a Loader: the recipe, and the Python module that makes it.

    `module_text` is None where the degree is `no`. It defines `make_loader(batch_size, *, shuffle, seed, threads,
    device)`, which returns an `hr.Loader`, and `batches(loader)`, which yields its batches in the script's structure.
    """

    recipe: LoaderRecipe
    module_text: str | None
