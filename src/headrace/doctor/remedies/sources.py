"""The user's source files, as far as they can still be read where the prescription is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.doctor.edits.script_source import Source
from headrace.doctor.session.model import Session

Read = Callable[[str], "str | None"]
"""Gives the text of a file, None where there is none."""
MOST_BYTES = 4 << 20
"""Larger files are no scripts."""


@dataclass(frozen=True)
class Sources:
    """How to read a file, and the folder from which diffs name them."""

    read: Read
    root: str


def read_file(path: str) -> str | None:
    """The text with its own line ends; None where it is gone, too large, or no UTF-8."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            return None
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def files_here() -> Sources:
    """Of this machine, named from the current folder."""
    return Sources(read_file, os.getcwd())


def no_files() -> Sources:
    """Every change stays a hint."""
    return Sources(lambda _: None, os.sep)


def parsed(session: Session, paths: Iterable[object], sources: Sources) -> list[Source]:
    """Those of the files that are Python: where a loader is iterated, and where makers were seen at work."""
    found: dict[str, Source] = {}
    for path in [*paths, *_seen(session)]:
        if not isinstance(path, str) or path in found:
            continue
        text = sources.read(path)
        source = None if text is None else _parsed(path, text)
        if source is not None:
            found[path] = source
    return list(found.values())


def _seen(session: Session) -> Iterable[str]:
    """Of `file:line:function`; a file's name may hold colons itself."""
    for maker in session.makers:
        for line in maker.lines:
            yield line.place.rsplit(":", 2)[0]


def _parsed(path: str, text: str) -> Source | None:
    try:
        return Source(path, text)
    except (SyntaxError, ValueError):  # for a newer Python than this one, or no Python
        return None
