"""Unified diffs that `patch -p1` and `git apply` take."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

NO_NEWLINE = "\\ No newline at end of file\n"


def unified(path: str, before: str, after: str, *, root: str) -> str:
    """Of one file, named from `root` on where it lies below it, else by its whole path; empty where nothing differs."""
    name = named_from(path, root)
    end = "\t" if any(character.isspace() for character in name) else ""  # else `patch` takes its first word for it
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}{end}", f"b/{name}{end}")
    return "".join(_ended(lines))


def named_from(path: str, root: str) -> str:
    """With slashes, and no leading one: `patch -p1` in `root`, or in `/`, finds it."""
    inside = os.path.relpath(path, root)
    return path.lstrip(os.sep) if inside.startswith(os.pardir) else inside


def _lines(text: str) -> list[str]:
    """By line feeds only, as `patch` counts them."""
    return [line + "\n" for line in text.split("\n")[:-1]] + [last for last in [text.split("\n")[-1]] if last]


def _ended(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}"
