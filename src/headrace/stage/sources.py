"""What is staged, and under which name each lies in the folder of copies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.data.storage.open_file import path_text
from headrace.errors import NotFoundError, UsageError

FOLDER = b".headrace-stage"
"""In the folder of copies, what is ours."""


@dataclass(frozen=True)
class Source:
    path: bytes
    """Absolute: a folder, or a file."""
    name: bytes
    """Relative path of its copy."""
    only: tuple[bytes, ...] | None = None
    """Of a folder: relative paths of the files that are wanted; None: all that it holds."""

    def copy_in(self, folder: str) -> str:
        """Where its copy lies in the folder of copies."""
        return os.path.join(folder, os.fsdecode(self.name))


def sources_of(paths: Sequence[str], *, only: Sequence[tuple[bytes, ...] | None] | None = None) -> list[Source]:
    """Each path under its own last name; where two have the same, those that follow lie in a folder with a number.

    Raises UsageError or NotFoundError.
    """
    if not paths:
        raise UsageError("expected paths of what is to be staged, got none")
    taken = {FOLDER}
    sources = []
    for number, path in enumerate(paths):
        if not os.path.exists(path):
            raise NotFoundError(f"{path}: expected a file or a folder to stage, got nothing. Check the path")
        if not os.path.isdir(path) and not os.path.isfile(path):
            raise UsageError(f"{path}: expected a file or a folder to stage, got a special file")
        whole = os.fsencode(os.path.abspath(path))
        name = _free_name(os.path.basename(whole) or b"root", taken)
        taken |= {name, name.partition(b"/")[0]}
        sources.append(Source(whole, name, None if only is None else only[number]))
    return sources


def _free_name(name: bytes, taken: set[bytes]) -> bytes:
    if name not in taken:
        return name
    number = 2
    while b"%d" % number in taken:
        number += 1
    return b"%d/%s" % (number, name)


def expect_apart(sources: Sequence[Source], to: str) -> None:
    """Raises UsageError where the copies would lie in what is copied, or the other way round."""
    target = os.path.realpath(to)
    for source in sources:
        path = os.fsdecode(os.path.realpath(source.path))
        if os.path.commonpath((path, target)) in (path, target):
            raise UsageError(
                f"expected a folder for copies that lies apart from what is copied, got {to} and "
                f"{path_text(source.path)}. Name another folder, such as /dev/shm/NAME"
            )
