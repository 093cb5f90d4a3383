"""Stage all sources of one dataset, and return the arguments that open the copies."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence

from headrace.data import Where
from headrace.data.manifest.manifest_table import holds_bytes_of_samples
from headrace.data.sources.file_kind import ROW_KINDS, kind_of
from headrace.data.sources.image_folders import ALL_FILES, split_pattern
from headrace.data.sources.path_root import Root
from headrace.data.staging.source_files import sources_of
from headrace.data.staging.staging import stage
from headrace.data.storage.paths import local_path, resolve_paths
from headrace.errors import UsageError

Path = str | os.PathLike[str]

_EXPECTED = "a path, a pattern or a list of paths"


def stage_dataset(where: Where, *, root: Root | None, to: Path) -> tuple[Where, Root | None]:
    """Stage all sources in `to`, and return `where` and `root` of the copies for `headrace.data.open`.

    Raises UsageError, NotFoundError, and as `stage` does.
    """
    folder = os.path.abspath(local_path(to, "a folder as stage="))
    if isinstance(where, Mapping):
        return _stage_matched({name: local_path(path, _EXPECTED) for name, path in where.items()}, folder), root
    paths = _paths(where)
    roots = [] if root is None else _paths(root)
    for path in paths if root is None else ():
        kind = kind_of(path).kind if os.path.isfile(path) else "other"
        if kind in ("manifest", "json") or (kind in ROW_KINDS and not holds_bytes_of_samples(path)):
            raise UsageError(
                f"stage: expected root= beside it, got none: {paths[0]} names files that lie anywhere. Say which "
                f"folder or archives they are in"
            )
    sources = sources_of([*paths, *roots])
    stage(sources, to=folder)
    copies = [source.copy_in(folder) for source in sources]
    return _as_given(copies[: len(paths)]), None if root is None else _as_given(copies[len(paths) :])


def _paths(given: Where | Root) -> list[str]:
    assert not isinstance(given, Mapping)
    parts: Sequence[object] = given if isinstance(given, list | tuple) else [given]
    return [path for part in parts for path in resolve_paths(local_path(part, _EXPECTED))]


def _as_given(copies: list[str]) -> str | list[str]:
    return copies[0] if len(copies) == 1 else copies


def _stage_matched(columns: Mapping[str, str], folder: str) -> dict[str, str]:
    """Stage the files that patterns match; copies keep their paths relative to a pattern's folder."""
    split = [split_pattern(where) for where in columns.values()]
    if glob.has_magic(folder) and any(pattern != ALL_FILES for _, pattern in split):
        raise UsageError(f"stage: expected a folder without any of * ? [ beside patterns, got {folder!r}")
    only: list[tuple[bytes, ...] | None] = []
    for root, pattern in split:
        found = [] if pattern == ALL_FILES else glob.glob(pattern, root_dir=root, recursive=True)
        names = sorted(os.fsencode(name) for name in found if os.path.isfile(os.path.join(root, name)))
        only.append(None if pattern == ALL_FILES else tuple(names))
    sources = sources_of([root for root, _ in split], only=only)
    stage(sources, to=folder)
    copies = [source.copy_in(folder) for source in sources]
    patterns = ["" if pattern == ALL_FILES else f"/{pattern}" for _, pattern in split]
    return {name: copy + pattern for name, copy, pattern in zip(columns, copies, patterns, strict=True)}
