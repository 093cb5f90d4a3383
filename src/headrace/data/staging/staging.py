"""`stage`, `stage_dataset` and `unstage`: make complete and verified copies, and remove them."""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Callable, Container, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from headrace.data import Where
from headrace.data.manifest.manifest_table import holds_bytes_of_samples
from headrace.data.sources.file_kind import ROW_KINDS, kind_of
from headrace.data.sources.image_folders import ALL_FILES, split_pattern
from headrace.data.sources.pack_source import pack_files
from headrace.data.sources.path_root import Root
from headrace.data.staging.source_files import (
    STAGE_FOLDER,
    SourceFile,
    StageListing,
    StageSource,
    Version,
    expect_room,
    sources_of,
)
from headrace.data.staging.stage_folder import (
    FileCopier,
    StageFolder,
    StageReport,
    locked_folder,
    partial_name,
    parts_of,
)
from headrace.data.storage.file_writing import PARTIAL_SUFFIX
from headrace.data.storage.open_file import printable_path
from headrace.data.storage.paths import local_path, resolve_paths
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import NotFoundError, UsageError, WriteError
from headrace.system import Stop, default_threads, work_through

Existing = Mapping[bytes, Version | None]
"""Files in the folder of copies by path; None: a link or a special file, which staging never creates."""
_NAMED_MOST = 5
_EXPECTED = "a path, a pattern or a list of paths"


def stage(
    sources: Sequence[StageSource],
    *,
    to: str,
    threads: int | None = None,
    verify: bool = False,
    reserve_bytes: int | None = None,
    tick: Callable[[StageReport], None] | None = None,
) -> StageReport:
    """Copy `sources` into the folder `to`, created if missing, and report the result.

    A copy gets its name only after it was read back and matches its source. Existing copies with the size and
    modification time of their sources are skipped, so running again resumes a killed run. Copies that changed since are
    copied again, and copies without a source are removed. `verify` compares the skipped copies with their sources.
    Another process that stages into `to` is waited for.

    `reserve_bytes`: memory, or disk space, to leave free; None: a tenth of memory and at least 1 GiB, or 1 GiB of a
    disk. `tick` is called in this thread every tenth of a second.

    Raises UsageError, ReadError, EmptyDatasetError, ChangedError (a source that is being written), or WriteError: the
    copies would not fit (then nothing was written), `to` has other files, or it cannot be written.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected 1 or more, got {threads}")
    if reserve_bytes is not None and reserve_bytes < 0:
        raise UsageError(f"reserve_bytes: expected 0 or more, got {reserve_bytes}")
    _expect_apart(sources, to)
    begin, stop = time.perf_counter(), Stop()
    report = StageReport(os.path.abspath(to), verified=verify)
    work = partial(
        work_through,
        name="stage",
        threads=default_threads() if threads is None else threads,
        one_is_here=False,
        stop=stop,
        tick=None if tick is None else partial(tick, report),
    )
    root, named = os.fsencode(report.to), {os.fsdecode(each.name): os.fsdecode(each.path) for each in sources}
    with locked_folder(root, wait=True) as folder:
        _expect_same_sources(folder, named, report.to)
        listing, there = StageListing(sources), _existing(root)
        files, unchanged = listing.files, folder.unchanged(there)
        changed = files.keys() & folder.files.keys() & there.keys() - unchanged
        _expect_ours(folder, there, unchanged | changed, report.to)
        report.files, report.bytes = len(files), sum(file.size for file in files.values())
        report.skipped = dict(listing.skipped)
        kept = {path for path in unchanged & files.keys() if there[path] == files[path].version}
        copier = FileCopier(folder, report, stop)
        if verify:
            work(kept, lambda path: None if copier.is_intact(files[path]) else changed.add(path))
            kept -= changed
        report.kept, report.kept_bytes = len(kept), sum(files[path].size for path in kept)
        report.repaired = sorted(map(printable_path, changed))
        remaining = [file for path, file in files.items() if path not in kept]
        taken = folder.clear({partial_name(file) for file in remaining})
        expect_room(root, [file.size for file in remaining], taken, reserve_bytes=reserve_bytes)
        gone = folder.files.keys() - files.keys()
        report.gone = len(gone & there.keys())
        _remove(folder, gone, there)
        folder.write(named, {path: _versions(file, there.get(path), folder) for path, file in files.items()})
        for path in listing.folders:
            folder.folders.open(path)
        work((part for file in remaining for part in parts_of(file)), copier.copy)
    report.wall_s = time.perf_counter() - begin
    return report


def _expect_apart(sources: Sequence[StageSource], to: str) -> None:
    """Raise UsageError if the copies would be inside a source, or a source inside the copies."""
    target = os.path.realpath(to)
    for source in sources:
        path = os.fsdecode(os.path.realpath(source.path))
        if os.path.commonpath((path, target)) in (path, target):
            raise UsageError(
                f"expected a folder for copies that lies apart from what is copied, got {to} and "
                f"{printable_path(source.path)}. Name another folder, such as /dev/shm/NAME"
            )


def _expect_same_sources(folder: StageFolder, named: dict[str, str], to: str) -> None:
    if folder.sources is not None and folder.sources != named:
        here, staged = (", ".join([*paths.values()][:_NAMED_MOST]) for paths in (named, folder.sources))
        raise WriteError(
            f"{to}: expected copies of {here}, got those of {staged}. Stage into another folder, or remove them "
            f"first: headrace unstage {to}"
        )


def _existing(root: bytes) -> Existing:
    """List the files in the folder of copies, without following links. Raises WriteError for an unlistable folder."""
    found: dict[bytes, Version | None] = {}

    def fail(error: OSError) -> None:
        raise WriteError(
            f"{printable_path(error.filename)}: could not be listed: {error.strerror}. Stage into a folder of your own"
        ) from error

    for folder, folders, names in os.walk(root, onerror=fail):
        if folder == root:
            folders[:] = [name for name in folders if name != STAGE_FOLDER]
            names[:] = [name for name in names if name != STAGE_FOLDER + os.fsencode(PARTIAL_SUFFIX)]
        for place in [os.path.join(folder, name) for name in folders + names]:
            status = os.lstat(place)
            if not stat.S_ISDIR(status.st_mode):
                is_file = stat.S_ISREG(status.st_mode)
                found[os.path.relpath(place, root)] = (status.st_size, status.st_mtime_ns) if is_file else None
    return found


def _expect_ours(folder: StageFolder, there: Existing, ours: Set[bytes], to: str) -> None:
    """Raise WriteError for links, and for files that were not staged, except indices next to copies."""
    found = [
        path
        for path, version in there.items()
        if version is None or not (path in ours or _is_index_of(path, folder.files))
    ]
    if found:
        some = ", ".join(map(printable_path, found[:_NAMED_MOST])) + (", …" if len(found) > _NAMED_MOST else "")
        raise WriteError(
            f"{to}: expected a new folder, or one that only staging has written, got {len(found):,} other files: "
            f"{some}. Move them away, or stage into another folder"
        )


def _is_index_of(path: bytes, known: Container[bytes]) -> bool:
    """Return True if `path` is `NAME.headrace` or `NAME.VARIANT.headrace`, the index of a known file."""
    for suffix in map(str.encode, INDEX_SUFFIXES):
        if path.endswith(suffix):
            stem = path[: -len(suffix)]
            return stem in known or stem.rpartition(b".")[0] in known
    return False


def _versions(file: SourceFile, version: Version | None, folder: StageFolder) -> list[Version]:
    """Return the versions that a copy may have, which has this `version` until the file is copied."""
    return [file.version, *(each for each in folder.files.get(file.path, ()) if each == version != file.version)]


def _remove(folder: StageFolder, paths: Container[bytes], there: Existing) -> None:
    """Remove the indices next to copies, then the copies. Raises WriteError."""
    for path in sorted(there, key=lambda path: path in paths):
        if path in paths or _is_index_of(path, paths):
            above, name = folder.folders.find(os.path.dirname(path)), os.path.basename(path)
            if above is not None:
                above.remove(name)


class UnstageReport(NamedTuple):
    to: str
    removed: int
    removed_bytes: int
    left: list[str]
    """Copies that changed since they were staged, and were not removed."""


def unstage(to: str, *, force: bool = False) -> UnstageReport:
    """Remove the copies that `stage` made in the folder `to`, and nothing else.

    Also remove the indices that were built next to the copies, folders left empty, and `to` itself if staging created
    it. A copy that was written since then stays, with its entry in the manifest, unless `force` is set. Other files
    always stay, and nothing is removed through a link.

    Raises NotFoundError if nothing is staged, or WriteError: another process stages there, the manifest is damaged, or
    a file cannot be removed.
    """
    place = os.path.abspath(to)
    root = os.fsencode(place)
    if not os.path.isdir(os.path.join(root, STAGE_FOLDER)):
        raise NotFoundError(f"{place}: expected a folder that was staged into, got none. Check the path")
    with locked_folder(root, wait=False) as folder:
        there = _existing(root)
        left = [] if force else sorted((folder.files.keys() & there.keys()) - folder.unchanged(there))
        paths = folder.files.keys() - left
        _remove(folder, paths, there)
        for name in folder.sources or ():  # the empty folders of the copies, deepest first
            top = os.path.join(root, os.fsencode(name))
            below = [] if os.path.islink(top) else [each for each, _, _ in os.walk(top, topdown=False)]
            for each in [*below, os.path.dirname(top)]:
                with suppress(OSError):  # not empty, gone, or a link
                    os.rmdir(each)
        if not left:
            folder.remove()
    sizes = [version[0] if (version := there[path]) else 0 for path in paths & there.keys()]
    return UnstageReport(place, len(sizes), sum(sizes), [*map(printable_path, left)])


def stage_dataset(where: Where, *, root: Root | None, to: str | os.PathLike[str]) -> tuple[Where, Root | None]:
    """Stage all sources in `to`, and return `where` and `root` of the copies for `headrace.data.open`.

    Raises UsageError, NotFoundError, and as `stage` does.
    """
    target = os.path.abspath(local_path(to, "a folder as stage="))
    if isinstance(where, Mapping):
        return _stage_matched({name: local_path(path, _EXPECTED) for name, path in where.items()}, target), root
    paths = _paths(where)
    roots = [] if root is None else _paths(root)
    for path in paths if root is None else ():
        kind = kind_of(path).kind if os.path.isfile(path) else "other"
        if kind in ("manifest", "json") or (kind in ROW_KINDS and not holds_bytes_of_samples(path)):
            raise UsageError(
                f"stage: expected root= beside it, got none: {paths[0]} names files that lie anywhere. Say which "
                f"folder or archives they are in"
            )
    sources = sources_of([*paths, *roots, *map(str, pack_files(paths))])
    stage(sources, to=target)
    copies = [source.copy_in(target) for source in sources[: len(paths) + len(roots)]]
    return _as_given(copies[: len(paths)]), None if root is None else _as_given(copies[len(paths) :])


def _paths(given: Where | Root) -> list[str]:
    assert not isinstance(given, Mapping)
    parts: Sequence[object] = given if isinstance(given, list | tuple) else [given]
    return [path for part in parts for path in resolve_paths(local_path(part, _EXPECTED))]


def _as_given(copies: list[str]) -> str | list[str]:
    return copies[0] if len(copies) == 1 else copies


def _stage_matched(columns: Mapping[str, str], target: str) -> dict[str, str]:
    """Stage the files that patterns match; copies keep their paths relative to a pattern's folder."""
    split = [split_pattern(where) for where in columns.values()]
    if glob.has_magic(target) and any(pattern != ALL_FILES for _, pattern in split):
        raise UsageError(f"stage: expected a folder without any of * ? [ beside patterns, got {target!r}")
    only: list[tuple[bytes, ...] | None] = []
    for root, pattern in split:
        found = [] if pattern == ALL_FILES else glob.glob(pattern, root_dir=root, recursive=True)
        names = sorted(os.fsencode(name) for name in found if os.path.isfile(os.path.join(root, name)))
        only.append(None if pattern == ALL_FILES else tuple(names))
    sources = sources_of([root for root, _ in split], only=only)
    stage(sources, to=target)
    patterns = ["" if pattern == ALL_FILES else f"/{pattern}" for _, pattern in split]
    copies = [source.copy_in(target) for source in sources]
    return {name: copy + pattern for name, copy, pattern in zip(columns, copies, patterns, strict=True)}
