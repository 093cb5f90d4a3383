"""`unpack`: from archives to the files that they hold.

A tar or a zip, whose members are all known, is planned first; then several threads make its files, and links come after
them. A compressed tar is unpacked in one pass and one thread, each member when it comes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from headrace.data import compression_of
from headrace.errors import DatasetError, NotFoundError, UnsafeMemberError, UsageError, WriteError
from headrace.system import Stop, default_threads, work_through
from headrace.tools.unpack.plan import (
    MemberKind,
    Piece,
    PlannedLink,
    Refusal,
    RefusedError,
    checked_path,
    decode,
    hard_link_target,
    link_target,
    make_plan,
)
from headrace.tools.unpack.tar_archive import StreamedMember, TarArchive, stream_tar
from headrace.tools.unpack.target import Placed, UnpackTarget
from headrace.tools.unpack.zip_archive import ZipArchive

T = TypeVar("T")
Path = str | os.PathLike[str]

_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of a local header, and of the end of a directory that is empty."""
_NAMED_MOST = 5
_LINK = -1
"""In place of a member's number: the path is a link."""


@dataclass
class UnpackReport:
    """What was done with one archive: counted by the threads that do it, read by the one that shows it."""

    archive: str
    total_bytes: int | None = None
    """Bytes of all its files, and before it is opened its own size; None: not known, as it is compressed as a whole."""
    made: int = 0
    """Files written."""
    made_bytes: int = 0
    kept: int = 0
    """Files that were there, complete. High after a run that was killed."""
    kept_bytes: int = 0
    verified: int | None = None
    """Files whose bytes were compared with the archive's; None: nobody asked for it."""
    verified_bytes: int = 0
    folders: int = 0
    """Folders that the archive names."""
    links: int = 0
    replaced: list[str] = field(default_factory=list)
    """Names whose path a later member makes."""
    refused: list[Refusal] = field(default_factory=list)
    made_s: float | None = None
    """Seconds until all was in its place. None: it is not yet."""
    wall_s: float | None = None
    """Seconds with the verification. None: it is not done yet."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def seen_bytes(self) -> int:
        """Bytes of files that are done with, twice where they were compared, too."""
        return self.made_bytes + self.kept_bytes + self.verified_bytes

    def count(self, placed: Placed, size: int) -> None:
        with self._lock:
            if placed is Placed.MADE:
                self.made += 1
                self.made_bytes += size
            else:
                self.kept += 1
                self.kept_bytes += size

    def count_verified(self, size: int) -> None:
        with self._lock:
            self.verified = (self.verified or 0) + 1
            self.verified_bytes += size

    def timed(self, run: Callable[[], None]) -> None:
        """Measure all that is done with the archive."""
        self._begin = time.perf_counter()
        run()
        self.wall_s = time.perf_counter() - self._begin

    def end_making(self) -> None:
        """Note that all is in its place."""
        self.made_s = time.perf_counter() - self._begin

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        names = ("made", "made_bytes", "kept", "kept_bytes", "verified", "folders", "links", "replaced")
        return {
            "archive": self.archive,
            "files": self.made + self.kept,
            **{name: getattr(self, name) for name in names},
            "refused": [refusal._asdict() for refusal in self.refused],
            "made_s": self.made_s,
            "wall_s": self.wall_s,
        }


def unpack(
    archives: Sequence[Path],
    *,
    to: Path = ".",
    threads: int | None = None,
    overwrite: bool = False,
    skip_refused: bool = False,
    verify: bool = False,
    cache: Path | None = None,
    tick: Callable[[Sequence[UnpackReport]], None] | None = None,
) -> list[UnpackReport]:
    """Make the files, folders and links that tars and zips hold below the folder `to`, and report on each archive.

    Every file is complete before it has its name. What is there already with the same size and time of modification is
    left alone, so a run that was killed goes on when it is run again; what is there and differs is an error, or with
    `overwrite` replaced. `verify` reads everything again at the end and compares it with the archive.

    Members are refused that would be made outside `to` or through a link, links that lead out of it, and what is
    neither file nor folder nor link: that is an error before anything of the archive is written (in a compressed one,
    when the member comes), or with `skip_refused` they are left out.

    `cache`: folder for the indices of tars; None: beside each, or in the default cache folder where that cannot be
    written. `tick` is called in this thread every tenth of a second with the reports as they are.

    Raises UsageError, NotFoundError, DatasetError (no archive, damaged), MemberError, WriteError or ReadError.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected 1 or more, got {threads}")
    sources = [_source(os.path.abspath(os.fsdecode(path))) for path in archives]
    reports = [report for report, _ in sources]
    job = UnpackJob(
        UnpackTarget(os.fsencode(os.path.abspath(os.fsdecode(to))), overwrite=overwrite),
        threads=default_threads() if threads is None else threads,
        verify=verify,
        skip_refused=skip_refused,
        tick=lambda: None if tick is None else tick(reports),
    )
    folder = None if cache is None else os.path.abspath(os.fsdecode(cache))
    # Several compressed ones at a time, as each can use but one thread, unless a later one may replace what an earlier
    # one has made.
    at_once = 1 if overwrite else job.threads
    try:
        for compressed, group in groupby(sources, lambda source: bool(source[1])):
            if compressed:
                streams = [_StreamedRun(report, job, compression) for report, compression in group]
                job.work_through(streams, _StreamedRun.run, threads=min(at_once, len(streams)), one_is_here=False)
            else:
                for report, _ in group:
                    report.timed(partial(_unpack_indexed, report, job, folder))
    finally:
        job.target.close()
    return reports


def _source(path: str) -> tuple[UnpackReport, str]:
    """Return an archive's report and what it is compressed with as a whole; empty: its members come in any order."""
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected an archive, got nothing. Check the path")
    if not os.path.isfile(path):
        raise DatasetError(f"{path}: expected an archive, got a folder or a special file. Name tars and zips")
    compression = compression_of(path)
    return UnpackReport(path, None if compression else os.path.getsize(path)), compression or ""


@dataclass(frozen=True)
class UnpackJob:
    """Where archives go, and what was asked for."""

    target: UnpackTarget
    threads: int
    verify: bool
    skip_refused: bool
    """Members that must not be made are counted and left out, instead of ending the run."""
    stop: Stop = field(default_factory=Stop)
    tick: Callable[[], None] = lambda: None

    def work_through(
        self, items: Iterable[T], work: Callable[[T], None], *, threads: int | None = None, one_is_here: bool = True
    ) -> None:
        threads = self.threads if threads is None else threads
        work_through(
            items, work, name="unpack", threads=threads, one_is_here=one_is_here, stop=self.stop, tick=self.tick
        )

    def stoppable(self, items: Iterable[T]) -> Iterator[T]:
        """Yield `items`, until the work is not wanted any more. Raises Stopped."""
        for item in items:
            self.stop.check()
            yield item


class _Run:
    """What both ways through an archive share."""

    def __init__(self, report: UnpackReport, job: UnpackJob) -> None:
        self._job = job
        self._target = job.target
        self._report = report

    def _refuse(self, refused: Iterable[Refusal]) -> None:
        """Raise UnsafeMemberError, unless such members are to be left out."""
        every = self._report.refused
        every += refused
        if every and not self._job.skip_refused:
            some = "; ".join(f"{refusal.name!r}: {refusal.why}" for refusal in every[:_NAMED_MOST])
            more = f"; and {len(every) - _NAMED_MOST:,} more" if len(every) > _NAMED_MOST else ""
            raise UnsafeMemberError(
                f"{self._report.archive}: expected members that can be made inside the target, got {some}{more}. "
                f"Leave such members out: --skip-refused"
            )

    def _place_link(self, link: PlannedLink, mtime_ns: int | None, *, replace: bool = False) -> None:
        """Make a symbolic link, or without a time a hard one."""
        path, target = link.path, link.target
        if mtime_ns is None:
            placed = self._target.place_hard_link(path, target, replace=replace)
        elif self._target.leads_inside(path, target):
            placed = self._target.place_symbolic_link(path, target, mtime_ns, replace=replace)
        else:
            why = f"it is a link to {decode(target)!r}, which leads out of the target through a link that is there"
            self._refuse([Refusal(decode(path), why)])
            return
        self._expect_placed(placed, path)
        self._report.links += 1

    def _expect_placed(self, placed: Placed, path: bytes) -> None:
        """Raise WriteError if something else is there."""
        if placed is Placed.DIFFERS:
            raise WriteError(
                f"{self._target.place(path)}: expected nothing there, or what the archive holds, got something else. "
                f"Move it away, or replace it: --overwrite"
            )

    def _verify_file(self, path: bytes, size: int, pieces: Iterable[Piece]) -> None:
        """Compare a file with the archive. Raises WriteError."""
        if not self._target.holds_file(path, size, lambda: self._job.stoppable(pieces)):
            raise WriteError(
                f"{self._target.place(path)}: expected the bytes that {self._report.archive} holds, got others. "
                f"Delete it and run this again; if it comes again, check the disk"
            )
        self._report.count_verified(size)


class _IndexedRun(_Run):
    """Of an archive whose members are all known. Nothing is written where a member is refused and that is an error."""

    def __init__(self, report: UnpackReport, job: UnpackJob, archive: TarArchive | ZipArchive) -> None:
        super().__init__(report, job)
        self._archive = archive
        self._plan = make_plan(len(archive), archive.member)

    def unpack(self) -> None:
        """Place all members. Raises UnsafeMemberError, WriteError, and what the archive raises."""
        plan, report, target, archive = self._plan, self._report, self._target, self._archive
        report.replaced += plan.replaced
        self._refuse(plan.refused)
        report.total_bytes = plan.total_bytes
        for number in plan.folders:
            target.place_folder(plan.path(number))
        report.folders = len(plan.folders)
        self._job.work_through(plan.all_files(), self._place)
        for link in plan.symbolic_links:
            self._place_link(link, archive.attributes(link.number).mtime_ns)
        for link in plan.hard_links:
            self._place_link(link, None)
        for number in plan.folders:
            target.set_folder_time(plan.path(number), archive.attributes(number).mtime_ns)
        report.end_making()
        if self._job.verify:
            report.verified = 0
            self._job.work_through(
                plan.all_files(),
                lambda file: self._verify_file(file[0], plan.sizes[file[1]], archive.pieces(file[1])),
            )

    def _place(self, file: tuple[bytes, int]) -> None:
        path, number = file
        size, archive = self._plan.sizes[number], self._archive
        placed = self._target.place_file(
            path, size, archive.attributes(number), lambda: self._job.stoppable(archive.pieces(number))
        )
        self._expect_placed(placed, path)
        self._report.count(placed, size)


def _unpack_indexed(report: UnpackReport, job: UnpackJob, cache: str | None) -> None:
    with open(report.archive, "rb") as file:
        is_zip = file.read(4) in _ZIP_MAGICS
    archive = ZipArchive(report.archive) if is_zip else TarArchive(report.archive, cache=cache)
    _IndexedRun(report, job, archive).unpack()


class _StreamedRun(_Run):
    """Of a compressed tar. Members that a later one replaces are made first and replaced then, as tar does."""

    def __init__(self, report: UnpackReport, job: UnpackJob, compression: str) -> None:
        super().__init__(report, job)
        self._compression = compression
        self._made: dict[bytes, int] = {}
        """By path, the number of the member whose bytes the file has, or `_LINK`."""
        self._differing: set[bytes] = set()
        """Where something else lies. A later member may explain it: after a run that was killed, a file may have been
        replaced by that already."""
        self._symbolic_links: dict[bytes, str] = {}
        self._folder_times: dict[bytes, int] = {}

    def run(self) -> None:
        self._report.timed(self._unpack)

    def _unpack(self) -> None:
        """Place each member when it comes. Raises MemberError, WriteError, ReadError or DatasetError."""
        for number, streamed in enumerate(self._members()):
            try:
                self._place(number, streamed)
            except RefusedError as error:
                self._refuse([Refusal(streamed.member.name, str(error))])
        for path in sorted(self._differing):
            self._expect_placed(Placed.DIFFERS, path)
        for path, mtime_ns in self._folder_times.items():
            self._target.set_folder_time(path, mtime_ns)
        self._report.end_making()
        if self._job.verify:
            self._report.verified = 0
            made = {number: path for path, number in self._made.items() if number != _LINK}
            for number, streamed in enumerate(self._members()):
                if number in made:
                    self._verify_file(made[number], streamed.member.size, streamed.pieces)

    def _members(self) -> Iterator[StreamedMember]:
        return self._job.stoppable(stream_tar(self._report.archive, self._compression))

    def _place(self, number: int, streamed: StreamedMember) -> None:
        """Place one member. Raises RefusedError, or as `_unpack` does."""
        member, mtime_ns = streamed.member, streamed.attributes.mtime_ns
        if member.kind is MemberKind.LABEL:
            return
        path = checked_path(member)
        if member.kind is MemberKind.FOLDER:
            self._target.place_folder(path)
            self._folder_times[path] = mtime_ns
            self._report.folders = len(self._folder_times)
            return
        replace = path in self._made
        if replace:
            self._report.replaced.append(member.name)
        # A hard link to a symbolic one is one itself, whose target is checked from where it lies.
        hard = hard_link_target(member.link) if member.kind is MemberKind.HARD_LINK else None
        link = self._symbolic_links.get(hard) if hard is not None else member.link
        if member.kind is MemberKind.FILE:
            placed = self._target.place_file(
                path, member.size, streamed.attributes, lambda: self._job.stoppable(streamed.pieces), replace=replace
            )
            if placed is Placed.DIFFERS:
                self._differing.add(path)
                return
            self._report.count(placed, member.size)
        elif link is not None:
            self._place_link(PlannedLink(path, link_target(path, link), number), mtime_ns, replace=replace)
        elif hard in self._made:
            self._place_link(PlannedLink(path, hard, number), None, replace=replace)
        else:
            raise RefusedError(f"it is a hard link to {member.link!r}, which is not ahead of it in the archive")
        is_file = member.kind is MemberKind.FILE
        self._made[path] = number if is_file else _LINK
        self._differing.discard(path)
        self._symbolic_links.pop(path, None)
        if link is not None and not is_file:
            self._symbolic_links[path] = link
