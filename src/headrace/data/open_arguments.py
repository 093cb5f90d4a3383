"""The arguments of `open`: what each is for, and the refusal of those that what is opened has no use for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.data.class_names import Classes
from headrace.data.manifest.column_names import check_names
from headrace.data.sources.path_root import Root
from headrace.data.storage.paths import path_text
from headrace.errors import UsageError

Path: TypeAlias = str | os.PathLike[str]

NEEDS = {
    "classes": "class folders (in a folder, a tar or a zip), or a column called label",
    "root": "a manifest, annotations or paths given in memory, which name files below it",
    "columns": "tars, zips, a manifest or columns given in memory, of which it names or picks some",
    "cache": "tars, zips or a manifest, whose indices it keeps",
    "stage": "files that can be copied: a folder, tars or zips, or a manifest with root=",
    "length": "an iterable that does not say how many samples it gives",
}
"""What each argument is for, in the order in which they are checked."""


@dataclass(frozen=True, kw_only=True)
class OpenArguments:
    """What `open` was given beside what to open; None: not given."""

    classes: Classes | None = None
    root: Root | None = None
    columns: Sequence[str] | None = None
    cache: Path | None = None
    stage: Path | None = None
    length: int | None = None

    def check(self) -> None:
        """Raise UsageError for a value that nothing takes."""
        if self.classes is not None and not isinstance(self.classes, bool):
            _check_classes(self.classes)
        if self.columns is not None:
            check_names(self.columns)
        if self.cache is not None:
            path_text(self.cache, "a folder as cache=")
        if self.stage is not None:
            path_text(self.stage, "a folder as stage=")
        length: object = self.length
        if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
            raise UsageError(f"length: expected how many samples the iterable gives, 1 or more, got {length!r}")

    def take_only(self, takes: Iterable[str], *, subject: str, what: str) -> None:
        """Raise UsageError for an argument that was given and that what is opened does not take.

        `subject`: what is opened, "list.csv"; `what`: which kind of source that is, "a manifest".
        """
        for name, needs in NEEDS.items():
            value = getattr(self, name)
            if value is not None and name not in takes:
                raise UsageError(
                    f"{name}: expected none, got {_shown(value)}: {subject} is {what}. {name}= needs {needs}. "
                    f"Leave it out"
                )

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The classes that are named; None where all are taken."""
        return None if self.classes is None or isinstance(self.classes, bool) else tuple(self.classes)

    @property
    def cache_folder(self) -> str | None:
        return None if self.cache is None else os.path.abspath(path_text(self.cache, "a folder as cache="))


def _check_classes(classes: Any) -> None:
    """Raise UsageError for what names no classes."""
    expected = "classes: expected True, False or a list of the names of classes"
    if isinstance(classes, str | bytes) or not isinstance(classes, Sequence):
        raise UsageError(f"{expected}, got {_shown(classes)}")
    if not classes or not all(isinstance(name, str) for name in classes):
        raise UsageError(f"{expected}, such as ['cat', 'dog'], got {_shown(list(classes))}")
    if len(set(classes)) < len(classes):
        twice = next(name for name in classes if list(classes).count(name) > 1)
        raise UsageError(f"{expected} that differ, got {twice!r} more than once")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"
