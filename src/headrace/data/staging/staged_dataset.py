"""Stages all that one dataset is opened from, and says where to open it then."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence

from headrace.data import Where
from headrace.data.manifest.formats import holds_bytes_of_samples
from headrace.data.sources.file_kind import ROWS, kind_of
from headrace.data.sources.path_root import Root
from headrace.data.staging.staging import stage
from headrace.data.stems import ALL, split_pattern
from headrace.data.storage.paths import path_text, resolve
from headrace.errors import UsageError
from headrace.stage.sources import Source, sources_of

Path = str | os.PathLike[str]

_EXPECTED = "a path, a pattern or a list of paths"


def stage_dataset(where: Where, *, root: Root | None, to: Path) -> tuple[Where, Root | None]:
    """`where` and `root` as `headrace.data.open` is to be given them, once all is staged below `to`.

    Raises UsageError, NotFoundError, and as `stage` does.
    """
    folder = os.path.abspath(path_text(to, "a folder as stage="))
    if isinstance(where, Mapping):
        return _stage_matched({name: path_text(path, _EXPECTED) for name, path in where.items()}, folder), root
    paths = _paths(where)
    roots = [] if root is None else _paths(root)
    if root is None and any(_lists_files(path) for path in paths if os.path.isfile(path)):
        raise UsageError(
            f"stage: expected root= beside it, got none: {paths[0]} names files that lie anywhere. Say which folder or "
            f"archives they are in"
        )
    sources = sources_of([*paths, *roots])
    stage(sources, to=folder)
    copies = [source.copy_in(folder) for source in sources]
    return _as_given(copies[: len(paths)]), None if root is None else _as_given(copies[len(paths) :])


def _lists_files(path: str) -> bool:
    """Whether what lies at `path` names files, and holds no bytes of samples itself."""
    kind = kind_of(path).kind
    return kind in ("manifest", "json") or (kind in ROWS and not holds_bytes_of_samples(path))


def _paths(given: Where | Root) -> list[str]:
    assert not isinstance(given, Mapping)
    parts: Sequence[object] = given if isinstance(given, list | tuple) else [given]
    return [path for part in parts for path in resolve(path_text(part, _EXPECTED))]


def _as_given(copies: list[str]) -> str | list[str]:
    return copies[0] if len(copies) == 1 else copies


def _stage_matched(columns: Mapping[str, str], folder: str) -> dict[str, str]:
    """Of a pattern, the files that it matches: their paths below its folder are what it is matched with later."""
    split = [split_pattern(where) for where in columns.values()]
    if glob.has_magic(folder) and any(pattern != ALL for _, pattern in split):
        raise UsageError(f"stage: expected a folder without any of * ? [ beside patterns, got {folder!r}")
    only = [None if pattern == ALL else _matches(root, pattern) for root, pattern in split]
    sources = sources_of([root for root, _ in split], only=only)
    stage(sources, to=folder)
    return {
        name: _pattern_in(source, folder, pattern)
        for name, source, (_, pattern) in zip(columns, sources, split, strict=True)
    }


def _matches(root: str, pattern: str) -> tuple[bytes, ...]:
    found = glob.glob(pattern, root_dir=root, recursive=True)
    return tuple(sorted(os.fsencode(name) for name in found if os.path.isfile(os.path.join(root, name))))


def _pattern_in(source: Source, folder: str, pattern: str) -> str:
    copy = source.copy_in(folder)
    return copy if pattern == ALL else os.path.join(copy, pattern)
