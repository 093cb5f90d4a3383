"""`unpack`: extraction of archives to files.

Tars and zips have an index, so they are planned first; then several threads create the files, and links follow. A
compressed tar is unpacked in one pass by one thread.
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
"""First bytes of a local header, and of the end record of an empty zip."""
_NAMED_MOST = 5
_LINK = -1
"""Marker for a link, in place of a member's number."""


@dataclass
class UnpackReport:
    """Progress and result for one archive, updated by worker threads and read by the displaying thread."""

    archive: str
    total_bytes: int | None = None
    """Bytes of all its files, or its own size before it is opened; None for a compressed tar, which is unknown."""
    made: int = 0
    """Files written."""
    made_bytes: int = 0
    kept: int = 0
    """Files that already existed, complete. High after a killed run."""
    kept_bytes: int = 0
    verified: int | None = None
    """Files compared byte by byte with the archive; None without `verify`."""
    verified_bytes: int = 0
    folders: int = 0
    """Folder members of the archive."""
    links: int = 0
    replaced: list[str] = field(default_factory=list)
    """Names of members with a later member at the same path."""
    refused: list[Refusal] = field(default_factory=list)
    made_s: float | None = None
    """Seconds until everything was created; None before."""
    wall_s: float | None = None
    """Seconds in total, verification included; None before the end."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def seen_bytes(self) -> int:
        """Bytes of finished files; verified files count twice."""
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
        """Run `run` and measure its duration."""
        self._begin = time.perf_counter()
        run()
        self.wall_s = time.perf_counter() - self._begin

    def end_making(self) -> None:
        """Record that everything has been created."""
        self.made_s = time.perf_counter() - self._begin

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
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
    """Extract tars and zips to the folder `to`: files, folders and links. Return a report for each archive.

    Every file is complete before it is named. Existing files with the same size and modification time are skipped, so
    running a killed command again resumes it. Existing files that differ are an error, or replaced with `overwrite`.
    `verify` reads all files at the end and compares them with the archive.

    Refused are members outside `to` or behind a link, links that lead out of `to`, and members other than files,
    folders and links. A refused member is an error before anything of the archive is written (in a compressed archive,
    when the member is reached); with `skip_refused`, such members are skipped.

    `cache`: folder for the indices of tars; None: next to each tar, or in the default cache folder if that is not
    writable. `tick` is called in this thread with the current reports every tenth of a second.

    Raises UsageError, NotFoundError, DatasetError (corrupt, not an archive), MemberError, WriteError or ReadError.
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
    # Compressed archives use one thread each, so several run in parallel, unless a later archive may overwrite files
    # of an earlier one.
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
    """Return an archive's report and its compression; "" for an archive with random access."""
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected an archive, got nothing. Check the path")
    if not os.path.isfile(path):
        raise DatasetError(f"{path}: expected an archive, got a folder or a special file. Name tars and zips")
    compression = compression_of(path)
    return UnpackReport(path, None if compression else os.path.getsize(path)), compression or ""


@dataclass(frozen=True)
class UnpackJob:
    """Target and options of one call of `unpack`."""

    target: UnpackTarget
    threads: int
    verify: bool
    skip_refused: bool
    """True to count and skip refused members instead of ending the run."""
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
        """Yield `items` until the job is stopped. Raises Stopped."""
        for item in items:
            self.stop.check()
            yield item


class _Run:
    """Base of the two ways to unpack an archive."""

    def __init__(self, report: UnpackReport, job: UnpackJob) -> None:
        self._job = job
        self._target = job.target
        self._report = report

    def _refuse(self, refused: Iterable[Refusal]) -> None:
        """Record refused members. Raises UnsafeMemberError unless they are to be skipped."""
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
        """Create a symbolic link, or a hard link if `mtime_ns` is None."""
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
        """Raise WriteError if a different entry exists."""
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
    """Run over an archive with an index. If a refused member is an error, nothing is written."""

    def __init__(self, report: UnpackReport, job: UnpackJob, archive: TarArchive | ZipArchive) -> None:
        super().__init__(report, job)
        self._archive = archive
        self._plan = make_plan(len(archive), archive.member)

    def unpack(self) -> None:
        """Create all members. Raises UnsafeMemberError, WriteError, and the archive's errors."""
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
    """Run over a compressed tar. Like tar, it creates members that a later one replaces and then replaces them."""

    def __init__(self, report: UnpackReport, job: UnpackJob, compression: str) -> None:
        super().__init__(report, job)
        self._compression = compression
        self._made: dict[bytes, int] = {}
        """Number of the member that created the file, or `_LINK`, by path."""
        self._differing: set[bytes] = set()
        """Paths with different entries. A later member may explain an entry: a killed run may already have replaced the
        earlier member."""
        self._symbolic_links: dict[bytes, str] = {}
        self._folder_times: dict[bytes, int] = {}

    def run(self) -> None:
        self._report.timed(self._unpack)

    def _unpack(self) -> None:
        """Create each member as it is read. Raises MemberError, WriteError, ReadError or DatasetError."""
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
        """Create one member. Raises RefusedError and the errors of `_unpack`."""
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
        # A hard link to a symbolic link becomes a symbolic link; its target is checked relative to its own path.
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
