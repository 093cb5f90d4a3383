"""`stage` and `unstage`: copies that are complete and verified, and their removal."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from headrace.data.staging.copying import (
    PART_BYTES,
    FileCopier,
    StagePlan,
    StageReport,
    UnstageReport,
    is_index_of,
    make_plan,
    parts_of,
    remove_copy,
    strangers,
    units,
)
from headrace.data.staging.journal import (
    CopyRecord,
    FolderRecord,
    JournalHeader,
    LockedFolder,
    RemovedRecord,
    locked_folder,
    partial_name,
)
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
from headrace.system.resources import default_threads
from headrace.system.threads import Stop, work_through

# -- from stage/staging.py: `stage`: from sources to copies that are complete and verified.


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
    """Copies `sources` into the folder `to`, which is made if it is missing, and says what was done.

    A copy has its name once it was read back and has the bytes of its source. What is there already, with the size and
    time of its source, is left alone, so a run that was killed goes on when it is run again; copies that are not as
    they were left are made anew, and those whose sources are gone are removed. `verify` reads what is left alone, too.
    Another process that stages into `to` is waited for.

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
        self._held = folder
        self._root = folder.folders.root.path
        self._sources = sources
        self._report = report
        self._threads = threads
        self._tick = tick
        self._stop = Stop()
        self._header = JournalHeader(
            tuple((os.fsdecode(source.name), os.fsdecode(source.path)) for source in sources), PART_BYTES, folder.made
        )
        self._copier = FileCopier(folder, report, self._stop, part_bytes=PART_BYTES)

    def stage(self, *, verify: bool, reserve_bytes: int | None) -> None:
        journal = self._held.journal
        self._expect_same_sources()
        listing = list_sources(self._sources)
        copies = existing_copies(self._root)
        self._expect_no_strangers(copies)
        plan = make_plan(listing.files, journal.known.files, copies.files)
        self._count(listing)
        if verify:
            self._verify(plan)
        self._count_kept(plan)
        self._expect_room(plan, reserve_bytes)
        if journal.known.header is None:
            journal.begin(self._header)
        self._remove_gone(plan, copies)
        self._make_folders(listing)
        journal.clear_partial(map(partial_name, plan.copy))
        parts = (part for wanted in plan.copy for part in parts_of(wanted, PART_BYTES))
        self._work_through(units(parts), self._copier.copy)

    def _expect_same_sources(self) -> None:
        header = self._held.journal.known.header
        if header is None or (header.sources, header.part_bytes) == (self._header.sources, PART_BYTES):
            return
        there, here = (", ".join(path for _, path in one.sources[:_NAMED_MOST]) for one in (header, self._header))
        place = printable_path(self._root)
        raise WriteError(
            f"{place}: expected copies of {here}, got those of {there}. Stage into another folder, or remove them "
            f"first: headrace unstage {place}"
        )

    def _expect_no_strangers(self, copies: ExistingCopies) -> None:
        found = copies.others + strangers(copies.files, self._held.journal.known.files)
        if found:
            some = ", ".join(map(printable_path, found[:_NAMED_MOST])) + (", …" if len(found) > _NAMED_MOST else "")
            raise WriteError(
                f"{printable_path(self._root)}: expected a new folder, or one that only staging has written, got "
                f"{len(found):,} other files: {some}. Move them away, or stage into another folder"
            )

    def _count(self, listing: StageListing) -> None:
        self._report.total_files = len(listing.files)
        self._report.total_bytes = sum(wanted.size for wanted in listing.files)
        self._report.skipped = dict(listing.skipped)

    def _count_kept(self, plan: StagePlan) -> None:
        self._report.kept = len(plan.kept)
        self._report.kept_bytes = sum(wanted.size for wanted in plan.kept)
        self._report.repaired = [printable_path(path) for path in plan.changed]

    def _verify(self, plan: StagePlan) -> None:
        """What does not give back its bytes is to be copied."""
        known = self._held.journal.known.files
        damaged: set[int] = set()
        self._report.verified = 0

        def check(number: int) -> None:
            wanted = plan.kept[number]
            if self._copier.holds(wanted, known[wanted.path]):
                self._report.count_verified(wanted.size)
            else:
                damaged.add(number)

        self._work_through(range(len(plan.kept)), check)
        again = [plan.kept[number] for number in sorted(damaged)]
        plan.kept = [wanted for number, wanted in enumerate(plan.kept) if number not in damaged]
        plan.copy += again
        plan.changed += [wanted.path for wanted in again]

    def _expect_room(self, plan: StagePlan, reserve_bytes: int | None) -> None:
        room = free_space(self._root, in_memory=self._held.in_memory, reserve_bytes=reserve_bytes)
        there = self._held.journal.partial_bytes(map(partial_name, plan.copy))
        expect_room(plan.copy, there, room, self._root)

    def _remove_gone(self, plan: StagePlan, copies: ExistingCopies) -> None:
        gone = dict.fromkeys(plan.gone)
        indices = [path for path in copies.files if is_index_of(path, gone)] if gone else []
        for path in (*indices, *gone):
            remove_copy(self._held.folders, path)
        self._held.journal.add(map(RemovedRecord, plan.gone))
        self._report.gone = len(plan.gone)

    def _make_folders(self, listing: StageListing) -> None:
        known = self._held.journal.known.folders
        self._held.journal.add(FolderRecord(path) for path in listing.folders if path not in known)
        for path in listing.folders:
            self._held.folders.open(path)

    def _work_through(self, items: Iterable[T], work: Callable[[T], None]) -> None:
        work_through(
            items,
            work,
            name="stage",
            threads=self._threads,
            one_is_here=False,
            stop=self._stop,
            tick=None if self._tick is None else self._show,
        )

    def _show(self) -> None:
        assert self._tick is not None
        self._tick(self._report)


# -- from stage/unstaging.py: `unstage`: removes copies, and nothing else.


def unstage(to: str, *, force: bool = False) -> UnstageReport:
    """Removes the copies that `stage` has made in the folder `to`, the indices that were built beside them, and the
    folders that this leaves empty; `to` itself if staging made it.

    A copy that was written since then stays, with its entry in the journal, unless `force`. What somebody else put
    there stays in any case, and nothing is removed through a link.

    Raises NotFoundError where nothing is staged, or WriteError: another process stages there, the journal is damaged,
    or a file cannot be removed.
    """
    report = UnstageReport(os.path.abspath(to))
    root = os.fsencode(report.to)
    if not os.path.isdir(os.path.join(root, STAGE_FOLDER)):
        raise NotFoundError(f"{report.to}: expected a folder that was staged into, got none. Check the path")
    with locked_folder(root, wait=False) as folder:
        _remove_copies(folder, report, force=force)
        if not report.left:
            folder.journal.remove()
    return report


def _remove_copies(folder: LockedFolder, report: UnstageReport, *, force: bool) -> None:
    known = folder.journal.known
    removed = {record.path: record for record in known.files.values() if _remove(folder, record, report, force=force)}
    for path in existing_copies(folder.folders.root.path).files:
        if is_index_of(path, removed):
            remove_copy(folder.folders, path)
    _remove_folders(folder.folders, [*known.folders, *(path.rpartition(b"/")[0] for path in known.files)])


def _remove(folder: LockedFolder, record: CopyRecord, report: UnstageReport, *, force: bool) -> bool:
    """Whether it is not there any more."""
    above, _, name = record.path.rpartition(b"/")
    place = folder.folders.find(above)
    found = None if place is None else place.find(name)
    if found is None:
        return place is not None
    is_ours = stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (record.size, record.mtime_ns)
    if not is_ours and (not force or stat.S_ISDIR(found.st_mode)):
        report.left.append(printable_path(record.path))
        return False
    remove_copy(folder.folders, record.path)
    report.removed += 1
    report.removed_bytes += found.st_size
    return True


def _remove_folders(folders: OutputFolders, paths: Iterable[bytes]) -> None:
    """Those that are empty, the deepest first."""
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
