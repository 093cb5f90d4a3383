"""Recipe of a Loader: what the script's Dataset and DataLoader would be, and how sure each part of that is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..session.after_run import LookedImage
from ..session.producers import OutputLeaf

Certainty = Literal["exact", "differs", "check", "python", "no"]
"""How sure a part is: the same result; the same with a difference that its note names; a reading of the samples that
the script's author has to check; stays the script's own Python; or cannot be taken."""
Degree = Literal["exact", "part", "no"]
Argument = Literal["fields", "view", "output", "loader"]


ROW = "row"
"""Column of a manifest that holds the rows which are taken of the opened files."""


@dataclass(frozen=True)
class RecipePart:
    """Part of the script, and what does it in the recipe."""

    part: str
    """As the script or its library writes it, or a leaf of its batch: in one line."""
    becomes: str
    """Empty where nothing does."""
    certainty: Certainty
    note: str = ""
    argument: Argument = "fields"
    """What of the recipe it concerns."""


@dataclass(frozen=True)
class LoaderRecipe:
    """Arguments of `hr.open` and `hr.Loader` as Python expressions, and the batch that the script takes.

    The values of `fields`, `view`, `augment` and `output` are code in which `hr` is headrace. `output` is an expression
    of `batch`, the Loader's own dict.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    output: str = "batch"
    view: str | None = None
    augment: str | None = None
    mixing: str | None = None
    """Of the samples of a batch."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Of the manifest, by name."""
    opened: tuple[str, ...] = ()
    """Files to open in place of a manifest: tars or tables."""
    keys: tuple[str, ...] = ()
    """Columns to open of them; empty for all."""
    root: str | None = None
    """Archive that the manifest's paths lead into; None where they are absolute."""
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    """Tokenizers as JSON, by the constants that the fields name their files by."""
    parts: tuple[RecipePart, ...] = ()
    covered: tuple[str, ...] = ()
    """Leaves of the script's batch that the Loader makes."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Leaves that stay the script's own Python, and the kind of each: `float32[1, 3, 224, 224]`, `str`."""
    degree: Degree = "no"
    reason: str = ""
    """Why the degree is not higher, in one sentence; empty for `exact`."""
    batch_size: int = 1
    shuffle: bool = False
    drop_last: bool = False
    imports: tuple[str, ...] = ()
    """Further import statements of the module."""
    script: tuple[str, ...] = ()
    """The script and its arguments, to be run for the comparison; empty where the command names no file."""
    is_launched: bool = False
    """Whether a launcher started it as one of several ranks."""
    dataset: str = ""
    """Class of the dataset that the DataLoader has, `ImageFolder`."""
    batch: Mapping[str, OutputLeaf] = field(default_factory=dict)
    """Arrays and texts of the script's batch by path; empty where no batch was seen."""
    image: LookedImage | None = None
    """The first picture of a sample; None without any."""

    def tried(self, made: Mapping[str, str], verified: Mapping[str, str]) -> LoaderRecipe:
        """Return the recipe after a trial made a batch, and compared samples with those that were looked at.

        Each array of the script's batch that is not `made`, or in another type or shape, is a part to check, and so is
        each that `verified` says differs.
        """
        if self.degree == "no" or not made:
            return self
        different = [
            RecipePart(_named(path), "", "check", f"its values differ from the script's: {how}", "output")
            for path, how in verified.items()
            if how.startswith("different")
        ]
        found = [*different, *self._other_leaves(made)]
        if not found:
            return self
        reason = self.reason or f"{found[0].part}: {found[0].note}."
        return replace(self, parts=(*found, *self.parts), degree="part", reason=reason)

    def _other_leaves(self, made: Mapping[str, str]) -> Iterator[RecipePart]:
        """Yield a part for each array of the script's batch that a batch of these kinds has not, or has otherwise."""
        for path, leaf in self.batch.items():
            if any(path == one or path.startswith(f"{one}.") for one in self.left):
                continue
            seen, kind = leaf.kind, made.get(path, "nothing")
            if leaf.shape is not None and leaf.dtype is not None:
                seen = f"{leaf.dtype}{leaf.shape}"
                is_same = _of_a_sample(seen) == _of_a_sample(kind)
            else:
                is_same = path in made and (kind == seen or seen not in ("str", "bytes"))
            if not is_same:
                yield RecipePart(
                    _named(path), "", "check", f"the script's batch has {seen}, the Loader's {kind}", "output"
                )


def _named(path: str) -> str:
    return path or "batch"


def _of_a_sample(kind: str) -> str:
    """Return the type and shape of an array without its first side, which is the number of samples."""
    return re.sub(r"\[\d+(, )?", "[", kind, count=1)


@dataclass(frozen=True)
class Adoption:
    """What a script would be with a Loader: the recipe, and the Python module that makes it.

    `module_text` is None where the degree is `no`. It defines `make_loader(batch_size, *, shuffle, seed, threads,
    device)`, which returns an `hr.Loader`, and `batches(loader)`, which yields its batches in the script's structure.
    """

    recipe: LoaderRecipe
    module_text: str | None
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it opens beside the script's own, by the constants that name them."""
