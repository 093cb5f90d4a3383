"""`stage` and `unstage`: make complete and verified copies, and remove them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from headrace.data.staging.copying import PART_BYTES, FileCopier, StageReport, parts_of, units
from headrace.data.staging.journal import CopyRecord, JournalHeader, StageJournal, locked_folder, partial_name
from headrace.data.staging.source_files import (
    STAGE_FOLDER,
    SourceFile,
    StageListing,
    StageSource,
    existing_copies,
    expect_room,
    free_space,
)
from headrace.data.storage.file_writing import OutputFolders, writing
from headrace.data.storage.open_file import printable_path
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import NotFoundError, UsageError, WriteError
from headrace.system import Stop, default_threads, work_through

T = TypeVar("T")

_NAMED_MOST = 5


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
    copied again, and copies without a source are removed. `verify` also reads the skipped copies. Another process that
    stages into `to` is waited for.

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
    begin = time.perf_counter()
    report, stop = StageReport(os.path.abspath(to)), Stop()

    def work_at(items: Iterable[T], work: Callable[[T], None]) -> None:
        work_through(
            items,
            work,
            name="stage",
            threads=default_threads() if threads is None else threads,
            one_is_here=False,
            stop=stop,
            tick=None if tick is None else lambda: tick(report),
        )

    with locked_folder(os.fsencode(report.to), wait=True) as journal:
        copier = FileCopier(journal, report, stop, part_bytes=PART_BYTES)
        named = tuple((os.fsdecode(source.name), os.fsdecode(source.path)) for source in sources)
        _expect_same_sources(journal, named)
        listing = StageListing(sources)
        there = _existing(journal)
        report.total_files, report.total_bytes = len(listing.files), sum(file.size for file in listing.files)
        report.skipped = dict(listing.skipped)
        kept, copy, changed = _plan(listing.files, journal, there)
        if verify:
            report.verified, intact = 0, {}
            work_at(kept, lambda file: intact.update({file: copier.is_intact(file, journal.files[file.path])}))
            damaged = [file for file in kept if not intact[file]]
            kept = [file for file in kept if intact[file]]
            copy, changed = copy + damaged, changed + damaged
        report.kept, report.kept_bytes = len(kept), sum(file.size for file in kept)
        report.repaired = [printable_path(file.path) for file in changed]
        _expect_room(journal, copy, reserve_bytes)
        if journal.header is None:
            journal.begin(JournalHeader(named, PART_BYTES, journal.made))
        report.gone = _remove_gone(journal, listing, there)
        for path in listing.folders:
            journal.folders.open(path)
        journal.clear_partial(map(partial_name, copy))
        work_at(units(part for file in copy for part in parts_of(file, PART_BYTES)), copier.copy)
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


def _expect_same_sources(journal: StageJournal, named: tuple[tuple[str, str], ...]) -> None:
    header = journal.header
    if header is None or (header.sources, header.part_bytes) == (named, PART_BYTES):
        return
    there, here = (", ".join(path for _, path in one[:_NAMED_MOST]) for one in (header.sources, named))
    place = printable_path(journal.folders.root.path)
    raise WriteError(
        f"{place}: expected copies of {here}, got those of {there}. Stage into another folder, or remove them "
        f"first: headrace unstage {place}"
    )


def _existing(journal: StageJournal) -> dict[bytes, tuple[int, int]]:
    """Return the existing copies. Raises WriteError for other files, except indices built next to copies."""
    root, known = journal.folders.root.path, journal.files
    files, others = existing_copies(root)
    found = others + [path for path in files if path not in known and not _is_index_of(path, known)]
    if found:
        some = ", ".join(map(printable_path, found[:_NAMED_MOST])) + (", …" if len(found) > _NAMED_MOST else "")
        raise WriteError(
            f"{printable_path(root)}: expected a new folder, or one that only staging has written, got "
            f"{len(found):,} other files: {some}. Move them away, or stage into another folder"
        )
    return files


def _is_index_of(path: bytes, known: Container[bytes]) -> bool:
    """Return True if `path` is `NAME.headrace` or `NAME.VARIANT.headrace`, the index of a known file."""
    for suffix in map(str.encode, INDEX_SUFFIXES):
        if path.endswith(suffix):
            stem = path[: -len(suffix)]
            return stem in known or stem.rpartition(b".")[0] in known
    return False


def _plan(
    files: Sequence[SourceFile], journal: StageJournal, there: dict[bytes, tuple[int, int]]
) -> tuple[list[SourceFile], list[SourceFile], list[SourceFile]]:
    """Return the complete files, by size and modification time; the files to copy; and the changed ones of these."""
    kept, copy, changed = [], [], []
    for file in files:
        record, found = journal.files.get(file.path), there.get(file.path)
        if record is not None and found == record.version == file.version:
            kept.append(file)
            continue
        copy.append(file)
        if record is not None and found is not None and found != record.version:
            changed.append(file)
    return kept, copy, changed


def _expect_room(journal: StageJournal, copy: Sequence[SourceFile], reserve_bytes: int | None) -> None:
    root = journal.folders.root.path
    space = free_space(root, in_memory=journal.in_memory, reserve_bytes=reserve_bytes)
    there = [found.st_blocks for file in copy if (found := journal.folder.find(partial_name(file))) is not None]
    expect_room(copy, sum(there) * 512, space, root)


def _remove_gone(journal: StageJournal, listing: StageListing, there: Iterable[bytes]) -> int:
    """Remove copies without a source, with the indices next to them, and return the number of copies."""
    names = {file.path for file in listing.files}
    gone = dict.fromkeys(path for path in journal.files if path not in names)
    for path in (*(path for path in there if _is_index_of(path, gone)), *gone):
        _remove_copy(journal.folders, path)
    journal.add({"gone": os.fsdecode(path)} for path in gone)
    return len(gone)


def _remove_copy(folders: OutputFolders, path: bytes) -> None:
    """Remove a copy if it exists. Raises WriteError."""
    folder, name = folders.find(os.path.dirname(path)), os.path.basename(path)
    if folder is not None:
        with writing(folder.place(name)), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder.descriptor)


@dataclass
class UnstageReport:
    to: str
    removed: int = 0
    removed_bytes: int = 0
    left: list[str] = field(default_factory=list)
    """Copies that changed since they were staged, and were not removed."""

    def document(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        return asdict(self)


def unstage(to: str, *, force: bool = False) -> UnstageReport:
    """Remove the copies that `stage` made in the folder `to`, and nothing else.

    Also remove the indices that were built next to the copies, folders left empty, and `to` itself if staging created
    it. A copy that was written since then stays, with its journal entry, unless `force` is set. Other files always
    stay, and nothing is removed through a link.

    Raises NotFoundError if nothing is staged, or WriteError: another process stages there, the journal is damaged, or a
    file cannot be removed.
    """
    report = UnstageReport(os.path.abspath(to))
    root = os.fsencode(report.to)
    if not os.path.isdir(os.path.join(root, STAGE_FOLDER)):
        raise NotFoundError(f"{report.to}: expected a folder that was staged into, got none. Check the path")
    with locked_folder(root, wait=False) as journal:
        known = journal.files
        removed = {path for path, record in known.items() if _remove(journal, path, record, report, force=force)}
        for path in existing_copies(root)[0]:
            if _is_index_of(path, removed):
                _remove_copy(journal.folders, path)
        _remove_folders(journal)
        if not report.left:
            journal.remove()
    return report


def _remove(journal: StageJournal, path: bytes, record: CopyRecord, report: UnstageReport, *, force: bool) -> bool:
    """Remove a copy, and return True if it no longer exists."""
    place = journal.folders.find(os.path.dirname(path))
    found = None if place is None else place.find(os.path.basename(path))
    if found is None:
        return place is not None
    is_ours = stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == record.version
    if not is_ours and (not force or stat.S_ISDIR(found.st_mode)):
        report.left.append(printable_path(path))
        return False
    _remove_copy(journal.folders, path)
    report.removed += 1
    report.removed_bytes += found.st_size
    return True


def _remove_folders(journal: StageJournal) -> None:
    """Remove the empty folders of the copies, deepest first."""
    root = journal.folders.root.path
    for name, _ in () if journal.header is None else journal.header.sources:
        top = os.path.join(root, os.fsencode(name))
        below = [] if os.path.islink(top) else [folder for folder, _, _ in os.walk(top, topdown=False)]
        for folder in [*below, os.path.dirname(top)]:
            with suppress(OSError):  # not empty, gone, or a link
                os.rmdir(folder)
