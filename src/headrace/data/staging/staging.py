"""`stage` and `unstage`: copies that are complete and verified, and their removal."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.data.staging.copying import (
    PART_BYTES,
    FileCopier,
    StagePlan,
    StageReport,
    is_index_of,
    make_plan,
    parts_of,
    remove_copy,
    units,
)
from headrace.data.staging.journal import CopyRecord, JournalHeader, LockedFolder, locked_folder, partial_name
from headrace.data.staging.source_files import (
    STAGE_FOLDER,
    ExistingCopies,
    StageListing,
    StageSource,
    existing_copies,
    expect_apart,
    expect_room,
    free_space,
    list_sources,
)
from headrace.data.storage.file_writing import OutputFolders
from headrace.data.storage.open_file import printable_path
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
    """Copy `sources` into the folder `to`, which is made if it is missing, and report what was done.

    A copy has its name once it was read back and has the bytes of its source. What is there already, with the size and
    time of its source, is left alone, so a run that was killed goes on when it is run again; copies that have changed
    since are made anew, and those whose sources are gone are removed. `verify` reads what is left alone, too. Another
    process that stages into `to` is waited for.

    `reserve_bytes`: memory, or space on the disk, that the copies leave to others; None: of memory a tenth and at least
    1 GiB, of a disk 1 GiB. `tick` is called in this thread every tenth of a second.

    Raises UsageError, ReadError, EmptyDatasetError, ChangedError (a source that is being written), or WriteError: it
    would not fit (then nothing was written), something else lies in `to`, or it cannot be written.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected 1 or more, got {threads}")
    if reserve_bytes is not None and reserve_bytes < 0:
        raise UsageError(f"reserve_bytes: expected 0 or more, got {reserve_bytes}")
    expect_apart(sources, to)
    begin = time.perf_counter()
    report = StageReport(os.path.abspath(to))
    with locked_folder(os.fsencode(report.to), wait=True) as folder:
        run = _StageRun(folder, sources, report, default_threads() if threads is None else threads, tick)
        run.stage(verify=verify, reserve_bytes=reserve_bytes)
    report.wall_s = time.perf_counter() - begin
    return report


class _StageRun:
    def __init__(
        self,
        folder: LockedFolder,
        sources: Sequence[StageSource],
        report: StageReport,
        threads: int,
        tick: Callable[[StageReport], None] | None,
    ) -> None:
        self._locked = folder
        self._journal = folder.journal
        self._root = folder.folders.root.path
        self._sources = sources
        self._report = report
        self._threads = threads
        self._tick = None if tick is None else lambda: tick(report)
        self._stop = Stop()
        self._header = JournalHeader(
            tuple((os.fsdecode(source.name), os.fsdecode(source.path)) for source in sources), PART_BYTES, folder.made
        )
        self._copier = FileCopier(folder, report, self._stop, part_bytes=PART_BYTES)

    def stage(self, *, verify: bool, reserve_bytes: int | None) -> None:
        state = self._journal.state
        self._expect_same_sources()
        listing = list_sources(self._sources)
        copies = existing_copies(self._root)
        self._expect_no_strangers(copies)
        plan = make_plan(listing.files, state.files, copies.files)
        self._report.total_files = len(listing.files)
        self._report.total_bytes = sum(file.size for file in listing.files)
        self._report.skipped = dict(listing.skipped)
        if verify:
            self._verify(plan)
        self._report.kept = len(plan.kept)
        self._report.kept_bytes = sum(file.size for file in plan.kept)
        self._report.repaired = [printable_path(path) for path in plan.changed]
        self._expect_room(plan, reserve_bytes)
        if state.header is None:
            self._journal.begin(self._header)
        self._remove_gone(plan, copies)
        self._make_folders(listing)
        self._journal.clear_partial(map(partial_name, plan.copy))
        parts = (part for file in plan.copy for part in parts_of(file, PART_BYTES))
        self._work_through(units(parts), self._copier.copy)

    def _expect_same_sources(self) -> None:
        header = self._journal.state.header
        if header is None or (header.sources, header.part_bytes) == (self._header.sources, PART_BYTES):
            return
        there, here = (", ".join(path for _, path in one.sources[:_NAMED_MOST]) for one in (header, self._header))
        place = printable_path(self._root)
        raise WriteError(
            f"{place}: expected copies of {here}, got those of {there}. Stage into another folder, or remove them "
            f"first: headrace unstage {place}"
        )

    def _expect_no_strangers(self, copies: ExistingCopies) -> None:
        """Raise WriteError for what is neither a copy nor an index that was built beside one."""
        known = self._journal.state.files
        found = copies.others + [path for path in copies.files if path not in known and not is_index_of(path, known)]
        if found:
            some = ", ".join(map(printable_path, found[:_NAMED_MOST])) + (", …" if len(found) > _NAMED_MOST else "")
            raise WriteError(
                f"{printable_path(self._root)}: expected a new folder, or one that only staging has written, got "
                f"{len(found):,} other files: {some}. Move them away, or stage into another folder"
            )

    def _verify(self, plan: StagePlan) -> None:
        """Move what does not give back its bytes to what is copied."""
        known = self._journal.state.files
        damaged: set[int] = set()
        self._report.verified = 0

        def check(number: int) -> None:
            file = plan.kept[number]
            if self._copier.holds(file, known[file.path]):
                self._report.count_verified(file.size)
            else:
                damaged.add(number)

        self._work_through(range(len(plan.kept)), check)
        again = [plan.kept[number] for number in sorted(damaged)]
        plan.kept = [file for number, file in enumerate(plan.kept) if number not in damaged]
        plan.copy += again
        plan.changed += [file.path for file in again]

    def _expect_room(self, plan: StagePlan, reserve_bytes: int | None) -> None:
        space = free_space(self._root, in_memory=self._locked.in_memory, reserve_bytes=reserve_bytes)
        folder = self._journal.folder.descriptor
        partial = set(self._journal.partial_files()) & set(map(partial_name, plan.copy))
        blocks = sum(os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks for name in partial)
        expect_room(plan.copy, blocks * 512, space, self._root)

    def _remove_gone(self, plan: StagePlan, copies: ExistingCopies) -> None:
        gone = dict.fromkeys(plan.gone)
        indices = [path for path in copies.files if is_index_of(path, gone)] if gone else []
        for path in (*indices, *gone):
            remove_copy(self._locked.folders, path)
        self._journal.add({"gone": os.fsdecode(path)} for path in gone)
        self._report.gone = len(gone)

    def _make_folders(self, listing: StageListing) -> None:
        known = self._journal.state.folders
        self._journal.add({"folder": os.fsdecode(path)} for path in listing.folders if path not in known)
        for path in listing.folders:
            self._locked.folders.open(path)

    def _work_through(self, items: Iterable[T], work: Callable[[T], None]) -> None:
        work_through(
            items, work, name="stage", threads=self._threads, one_is_here=False, stop=self._stop, tick=self._tick
        )


@dataclass
class UnstageReport:
    to: str
    removed: int = 0
    removed_bytes: int = 0
    left: list[str] = field(default_factory=list)
    """Copies that have changed since they were staged, and stay."""

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        return {"to": self.to, "removed": self.removed, "removed_bytes": self.removed_bytes, "left": self.left}


def unstage(to: str, *, force: bool = False) -> UnstageReport:
    """Remove the copies that `stage` has made in the folder `to`, and nothing else.

    With them go the indices that were built beside them, the folders that this leaves empty, and `to` itself if staging
    made it. A copy that was written since then stays, with its entry in the journal, unless `force`. What somebody else
    put there stays in any case, and nothing is removed through a link.

    Raises NotFoundError where nothing is staged, or WriteError: another process stages there, the journal is damaged,
    or a file cannot be removed.
    """
    report = UnstageReport(os.path.abspath(to))
    root = os.fsencode(report.to)
    if not os.path.isdir(os.path.join(root, STAGE_FOLDER)):
        raise NotFoundError(f"{report.to}: expected a folder that was staged into, got none. Check the path")
    with locked_folder(root, wait=False) as folder:
        known = folder.journal.state
        removed = {path for path, record in known.files.items() if _remove(folder, path, record, report, force=force)}
        for path in existing_copies(root).files:
            if is_index_of(path, removed):
                remove_copy(folder.folders, path)
        _remove_folders(folder.folders, [*known.folders, *(path.rpartition(b"/")[0] for path in known.files)])
        if not report.left:
            folder.journal.remove()
    return report


def _remove(folder: LockedFolder, path: bytes, record: CopyRecord, report: UnstageReport, *, force: bool) -> bool:
    """Remove a copy, and return whether it is not there any more."""
    above, _, name = path.rpartition(b"/")
    place = folder.folders.find(above)
    found = None if place is None else place.find(name)
    if found is None:
        return place is not None
    is_ours = stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (record.size, record.mtime_ns)
    if not is_ours and (not force or stat.S_ISDIR(found.st_mode)):
        report.left.append(printable_path(path))
        return False
    remove_copy(folder.folders, path)
    report.removed += 1
    report.removed_bytes += found.st_size
    return True


def _remove_folders(folders: OutputFolders, paths: Iterable[bytes]) -> None:
    """Remove those that are empty, the deepest first."""
    every = set()
    for path in paths:
        while path and path not in every:
            every.add(path)
            path = path.rpartition(b"/")[0]
    for path in sorted(every, key=lambda path: path.count(b"/"), reverse=True):
        above, _, name = path.rpartition(b"/")
        place = folders.find(above)
        if place is None:
            continue
        try:
            os.rmdir(name, dir_fd=place.descriptor)
        except OSError:  # not empty, gone, or a link
            continue
