"""What became of the user's files, in sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.doctor.attach.hands_off import PutBack

NAMED = 5
"""Paths that a sentence names; of more it gives the number."""


def sentences(put_back: PutBack) -> Iterator[tuple[str, str]]:
    """Codes of notes, of docs/doctor/evidence.md, and what each says."""
    undone, root = put_back.undone, put_back.root
    if undone.restored or undone.taken:
        yield "put-back", _put_back(put_back)
    for path, why in undone.failed:
        yield "not-put-back", f"{_shown(path, root)}: {why}" if path else why
    for how in ("changed", "made", "removed"):
        paths = [path for path, what in put_back.changed if what == how]
        if paths:
            yield "unseen-write", f"{how} and left so: {_named(paths, root)}"
    if put_back.why_not_listed:
        yield "not-listed", f"{_text(root)} was not searched for changes of other programs: {put_back.why_not_listed}"


def _put_back(put_back: PutBack) -> str:
    undone, root = put_back.undone, put_back.root
    parts = []
    if undone.restored:
        parts.append(f"as before the run again: {_named(undone.restored, root)}")
    if undone.taken:
        parts.append(f"made by it and {_fate(put_back)}: {_named(undone.taken, root)}")
    return "; ".join(parts)


def _fate(put_back: PutBack) -> str:
    """Of what the command had made."""
    return "deleted" if put_back.written is None else f"moved to {_text(put_back.written)}"


def _named(paths: list[str], root: Path) -> str:
    names = ", ".join(_shown(path, root) for path in sorted(paths)[:NAMED])
    return names if len(paths) <= NAMED else f"{names} and {len(paths) - NAMED} more"


def _shown(path: str, root: Path) -> str:
    """As the user knows it: below the working directory without its name."""
    return _text(os.path.relpath(path, root) if Path(path).is_relative_to(root) else path)


def _text(path: str | Path) -> str:
    """A session holds Unicode; of a path that is none, the bytes that are not are shown as such."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
