"""Recipe of a Loader: the script's Dataset and DataLoader in Headrace, with the certainty of each part."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headrace.doctor.explain.look import LeafPath
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.session.after_run import AdoptedPart, LookedImage

Degree = Literal["exact", "part", "no"]
ROW = "row"
"""Manifest column with the row numbers used from the opened files."""


class UnexplainedError(Exception):
    """Reason in words why the Loader cannot make a leaf."""


@dataclass(frozen=True)
class LoaderRecipe:
    """Arguments of `hr.open` and `hr.Loader` as Python expressions, and the script's batch.

    The values of `fields`, `view`, `augment` and `output` are code with `hr` for headrace. `output` is an expression of
    `batch`, the Loader's own dict.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    output: str = "batch"
    view: str | None = None
    augment: str | None = None
    mixing: str | None = None
    """Mixing of the samples in a batch."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Columns of the manifest, by name."""
    opened: tuple[str, ...] = ()
    """Files to open in place of a manifest: tars or tables."""
    keys: tuple[str, ...] = ()
    """Columns to open of them; empty for all."""
    root: str | None = None
    """Archive that contains the manifest's paths; None if they are absolute."""
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    """Tokenizers as JSON, by the constants that name their files."""
    parts: tuple[AdoptedPart, ...] = ()
    covered: tuple[str, ...] = ()
    """Leaves of the script's batch that the Loader makes."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Leaves that stay the script's own Python, with their kinds: `float32[1, 3, 224, 224]`, `str`."""
    degree: Degree = "no"
    reason: str = ""
    """Why the degree is not higher, in one sentence; empty for `exact`."""
    batch_size: int = 1
    shuffle: bool = False
    drop_last: bool = False
    imports: tuple[str, ...] = ()
    """Additional import statements of the module."""
    folders: tuple[str, ...] = ()
    """Folders of the user's modules that are imported."""
    arguments: Mapping[str, int] = field(default_factory=dict)
    """Arguments for live objects of the script: their places in `Look.calls`."""
    script: tuple[str, ...] = ()
    """The script and its arguments; empty if the command names no file."""
    image: LookedImage | None = None
    """The first image of a sample; None without any."""

    @property
    def data_arguments(self) -> list[str]:
        """Arguments of the script, or values of its options, below which the data are."""
        values = [column[at] for column in self.columns.values() if len(column) for at in (0, -1)]
        data = [str(one) for one in (*values, *self.opened, self.root) if isinstance(one, str)]
        found = []
        for word in self.script[1:]:
            value = word.partition("=")[2] if word.startswith("-") else word
            place = os.path.abspath(value)
            if value and any(f"{os.path.abspath(one)}/".startswith(f"{place}/") for one in data if "/" in one):
                found.append(value)
        return found

    def tried(self, verified: Mapping[str, str]) -> LoaderRecipe:
        """Return the recipe after a trial compared samples with the inspected ones.

        An array of the script's batch becomes a part to check if it differs by `verified`, unless it is left, and a
        part that is drawn if few samples were compared of what is random.
        """
        if self.degree == "no":
            return self
        found = [
            AdoptedPart(path or "batch", "output", "", "check", f"it differs from the script's: {how}")
            for path, how in verified.items()
            if how.startswith("different") and not any(f"{path}.".startswith(f"{one}.") for one in self.left)
        ]
        drawn = [
            AdoptedPart(path or "batch", "output", "", "drawn", how.partition(": ")[2])
            for path, how in verified.items()
            if how.startswith("drawn") and path in self.covered
        ]
        if not found:
            return replace(self, parts=(*self.parts, *drawn))
        reason = self.reason or f"{found[0].part}: {found[0].note}."
        return replace(self, parts=(*found, *self.parts, *drawn), degree="part", reason=reason)


@dataclass(frozen=True)
class Adoption:
    """Adoption of a Loader by a script: the recipe, and the Python module that implements it.

    `module_text` is None if the degree is `no`. It defines `make_loader(batch_size, *, shuffle, seed, threads,
    device)`, which returns an `hr.Loader`, and `batches(loader)`, which yields its batches in the script's structure.
    """

    recipe: LoaderRecipe
    module_text: str | None
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it opens besides the script's own, by the constants that name them."""
    explained: Mapping[LeafPath, LeafExplanation] = field(default_factory=dict)
    """Explanations of the inspected samples' leaves."""
