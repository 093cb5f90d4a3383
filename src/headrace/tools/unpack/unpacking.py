"""`unpack`: from archives to the files that they hold."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from rich.filesize import decimal

from headrace.data.sources.file_kind import compression_of
from headrace.errors import DatasetError, NotFoundError, UnsafeMemberError, UsageError, WriteError
from headrace.system.resources import default_threads
from headrace.system.threads import Stop, work_through
from headrace.tools.unpack.plan import (
    MemberKind,
    Piece,
    Refusal,
    RefusedError,
    StreamedMember,
    UnpackArchive,
    UnpackPlan,
    checked_path,
    decode,
    encode,
    hard_link_target,
    link_target,
    make_plan,
)
from headrace.tools.unpack.tar_archive import TarArchive, stream_tar
from headrace.tools.unpack.target import Placed, UnpackTarget
from headrace.tools.unpack.zip_archive import ZipArchive

# -- from unpack/report.py: What was done with one archive: counted by the threads that do it, read by the one that
# shows it.


@dataclass
class UnpackReport:
    archive: str
    total_files: int | None = None
    """Files that there will be; None: not known until the end, as the archive is compressed as a whole."""
    total_bytes: int | None = None
    """Of these; before an archive is opened its own size."""
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
    """That the archive names."""
    links: int = 0
    replaced: list[str] = field(default_factory=list)
    """Names whose path a later member makes."""
    refused: list[Refusal] = field(default_factory=list)
    made_s: float | None = None
    """Until all was in its place. None: it is not yet."""
    wall_s: float | None = None
    """With the verification. None: it is not done yet."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def seen_bytes(self) -> int:
        """For progress: of files that are done with, twice where they were compared, too."""
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

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around all that is done with the archive."""
        self._begin = time.perf_counter()
        yield
        self.wall_s = time.perf_counter() - self._begin

    def end_making(self) -> None:
        """All is in its place."""
        self.made_s = time.perf_counter() - self._begin

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "archive": self.archive,
            "files": self.made + self.kept,
            "made": self.made,
            "made_bytes": self.made_bytes,
            "kept": self.kept,
            "kept_bytes": self.kept_bytes,
            "verified": self.verified,
            "folders": self.folders,
            "links": self.links,
            "replaced": self.replaced,
            "refused": [refusal._asdict() for refusal in self.refused],
            "made_s": self.made_s,
            "wall_s": self.wall_s,
        }


# -- from unpack/job.py: What the two ways through an archive share: where it goes, what was asked for, and how its
# findings are told.


T = TypeVar("T")

_REFUSED_NAMED_MOST = 5


@dataclass(frozen=True)
class UnpackJob:
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
        work_through(
            items,
            work,
            name="unpack",
            threads=self.threads if threads is None else threads,
            one_is_here=one_is_here,
            stop=self.stop,
            tick=self.tick,
        )

    def stoppable(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """`pieces`, until the work is not wanted any more: a large file has many. Raises Stopped."""
        for piece in pieces:
            self.stop.check()
            yield piece

    def refuse(self, report: UnpackReport, refused: Iterable[Refusal]) -> None:
        """Raises UnsafeMemberError, unless such members are to be left out."""
        report.refused += refused
        if report.refused and not self.skip_refused:
            raise UnsafeMemberError(_refusals(report))

    def place_symbolic_link(
        self, report: UnpackReport, path: bytes, target: bytes, mtime_ns: int, *, replace: bool = False
    ) -> None:
        """Raises WriteError, or as `refuse` does."""
        if not self.target.leads_inside(path, target):
            why = f"it is a link to {decode(target)!r}, which leads out of the target through a link that is there"
            self.refuse(report, (Refusal(decode(path), why),))
            return
        self.expect_placed(self.target.place_symbolic_link(path, target, mtime_ns, replace=replace), path)
        report.links += 1

    def expect_placed(self, placed: Placed, path: bytes) -> None:
        """Raises WriteError if something else is there."""
        if placed is Placed.DIFFERS:
            raise WriteError(
                f"{self.target.place(path)}: expected nothing there, or what the archive holds, got something else. "
                f"Move it away, or replace it: --overwrite"
            )

    def differs(self, archive: str, path: bytes) -> WriteError:
        """What verification finds."""
        return WriteError(
            f"{self.target.place(path)}: expected the bytes that {archive} holds, got others. Delete it and run this "
            f"again; if it comes again, check the disk"
        )


def _refusals(report: UnpackReport) -> str:
    some = "; ".join(f"{refusal.name!r}: {refusal.why}" for refusal in report.refused[:_REFUSED_NAMED_MOST])
    more = (
        f"; and {len(report.refused) - _REFUSED_NAMED_MOST:,} more" if len(report.refused) > _REFUSED_NAMED_MOST else ""
    )
    return (
        f"{report.archive}: expected members that can be made inside the target, got {some}{more}. "
        f"Leave such members out: --skip-refused"
    )


# -- from unpack/streamed.py: Unpacks a compressed tar in one pass, in one thread: each member when it comes.


_OTHER = -1
"""In place of a member's number: the path is a link."""


def unpack_streamed(archive: str, compression: str, job: UnpackJob, report: UnpackReport) -> None:
    """Members that a later one replaces are made first and replaced then, as tar does.

    Raises UnsafeMemberError, WriteError, ReadError, DatasetError or DamagedMemberError.
    """
    run = _StreamedRun(job, report)
    for number, streamed in enumerate(_stoppable_members(archive, compression, job)):
        run.place(number, streamed)
    run.finish()
    report.end_making()
    if job.verify:
        report.verified = 0
        for number, streamed in enumerate(_stoppable_members(archive, compression, job)):
            run.verify(number, streamed)


def _stoppable_members(archive: str, compression: str, job: UnpackJob) -> Iterator[StreamedMember]:
    for streamed in stream_tar(archive, compression):
        job.stop.check()
        yield streamed


class _StreamedRun:
    def __init__(self, job: UnpackJob, report: UnpackReport) -> None:
        self._job = job
        self._report = report
        self._made: dict[bytes, int] = {}
        """By path, the number of the member whose bytes the file has, or `_OTHER`."""
        self._differing: set[bytes] = set()
        """Where something else lies. A later member may explain it: after a run that was killed, a file may have been
        replaced by that already."""
        self._symbolic_links: dict[bytes, str] = {}
        self._folder_times: dict[bytes, int] = {}

    def place(self, number: int, streamed: StreamedMember) -> None:
        member = streamed.member
        if member.kind is MemberKind.LABEL:
            return
        try:
            path = checked_path(member)
            if path in self._made and member.kind is not MemberKind.FOLDER:
                self._report.replaced.append(member.name)
            match member.kind:
                case MemberKind.FILE:
                    self._place_file(path, number, streamed)
                case MemberKind.FOLDER:
                    self._place_folder(path, streamed.attributes.mtime_ns)
                case MemberKind.SYMBOLIC_LINK:
                    self._place_symbolic_link(path, member.link, streamed.attributes.mtime_ns)
                case MemberKind.HARD_LINK:
                    self._place_hard_link(path, member.link, streamed.attributes.mtime_ns)
        except RefusedError as error:
            self._job.refuse(self._report, (Refusal(member.name, str(error)),))

    def finish(self) -> None:
        """Raises WriteError if anything is left that no member explains."""
        for path in sorted(self._differing):
            self._job.expect_placed(Placed.DIFFERS, path)
        for path, mtime_ns in self._folder_times.items():
            self._job.target.set_folder_time(path, mtime_ns)

    def verify(self, number: int, streamed: StreamedMember) -> None:
        """Once all are placed. Raises WriteError."""
        size = streamed.member.size
        if streamed.member.kind is not MemberKind.FILE:
            return
        try:
            path = checked_path(streamed.member)
        except RefusedError:
            return
        if self._made.get(path) != number:
            return  # a later member has replaced it
        if not self._job.target.holds_file(path, size, lambda: self._job.stoppable(streamed.pieces)):
            raise self._job.differs(self._report.archive, path)
        self._report.count_verified(size)

    def _place_file(self, path: bytes, number: int, streamed: StreamedMember) -> None:
        size = streamed.member.size
        placed = self._job.target.place_file(
            path,
            size,
            streamed.attributes,
            lambda: self._job.stoppable(streamed.pieces),
            replace=path in self._made,
        )
        if placed is Placed.DIFFERS:
            self._differing.add(path)
            return
        self._note(path, number)
        self._report.count(placed, size)

    def _place_folder(self, path: bytes, mtime_ns: int) -> None:
        self._job.target.place_folder(path)
        self._folder_times[path] = mtime_ns
        self._report.folders = len(self._folder_times)

    def _place_symbolic_link(self, path: bytes, link: str, mtime_ns: int) -> None:
        target = link_target(path, link)
        self._job.place_symbolic_link(self._report, path, target, mtime_ns, replace=path in self._made)
        self._note(path, _OTHER)
        self._symbolic_links[path] = link

    def _place_hard_link(self, path: bytes, link: str, mtime_ns: int) -> None:
        """As what it leads to: another name of a file, or a symbolic link, whose target is then checked from here."""
        target = encode(hard_link_target(link))
        if target in self._symbolic_links:
            self._place_symbolic_link(path, self._symbolic_links[target], mtime_ns)
            return
        if target not in self._made:
            raise RefusedError(f"it is a hard link to {link!r}, which is not ahead of it in the archive")
        self._job.expect_placed(self._job.target.place_hard_link(path, target, replace=path in self._made), path)
        self._note(path, _OTHER)
        self._report.links += 1

    def _note(self, path: bytes, number: int) -> None:
        self._made[path] = number
        self._differing.discard(path)
        self._symbolic_links.pop(path, None)


# -- from unpack/indexed.py: Unpacks an archive whose members are all known: several threads make its files, and links
# come after them.


class _File(NamedTuple):
    path: bytes
    number: int
    """Of the member whose bytes it has."""
    size: int


def unpack_indexed(archive: UnpackArchive, job: UnpackJob, report: UnpackReport) -> None:
    """Nothing is written where a member is refused and that is an error.

    Raises UnsafeMemberError, WriteError, and what `archive` raises.
    """
    plan = make_plan(len(archive), archive.member)
    report.replaced += plan.replaced
    job.refuse(report, plan.refused)
    report.total_files = len(plan.files) + len(plan.copies)
    report.total_bytes = plan.total_bytes
    for number in plan.folders:
        job.target.place_folder(plan.path(number))
    report.folders = len(plan.folders)
    job.work_through(_files(plan), lambda file: _place(archive, file, job, report))
    _place_links(archive, plan, job, report)
    for number in plan.folders:
        job.target.set_folder_time(plan.path(number), archive.attributes(number).mtime_ns)
    report.end_making()
    if job.verify:
        report.verified = 0
        job.work_through(_files(plan), lambda file: _verify(archive, file, job, report))


def _files(plan: UnpackPlan) -> Iterator[_File]:
    for number in plan.files:
        yield _File(plan.path(number), number, plan.sizes[number])
    for path, number in plan.copies:
        yield _File(path, number, plan.sizes[number])


def _place(archive: UnpackArchive, file: _File, job: UnpackJob, report: UnpackReport) -> None:
    placed = job.target.place_file(
        file.path,
        file.size,
        archive.attributes(file.number),
        lambda: job.stoppable(archive.pieces(file.number)),
    )
    job.expect_placed(placed, file.path)
    report.count(placed, file.size)


def _place_links(archive: UnpackArchive, plan: UnpackPlan, job: UnpackJob, report: UnpackReport) -> None:
    for link in plan.symbolic_links:
        job.place_symbolic_link(report, link.path, link.target, archive.attributes(link.number).mtime_ns)
    for link in plan.hard_links:
        job.expect_placed(job.target.place_hard_link(link.path, link.target), link.path)
        report.links += 1


def _verify(archive: UnpackArchive, file: _File, job: UnpackJob, report: UnpackReport) -> None:
    if not job.target.holds_file(file.path, file.size, lambda: job.stoppable(archive.pieces(file.number))):
        raise job.differs(archive.path, file.path)
    report.count_verified(file.size)


# -- from unpack/unpacking.py: `unpack`: from archives to the files that they hold.


Path = str | os.PathLike[str]
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
"""Of a local header, and of the end of a directory that is empty."""


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
    """Makes the files, folders and links that tars and zips hold below the folder `to`, and says for each archive what
    was done.

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
    reports = [source.report for source in sources]
    target = UnpackTarget(os.fsencode(os.path.abspath(os.fsdecode(to))), overwrite=overwrite)
    job = UnpackJob(
        target=target,
        threads=default_threads() if threads is None else threads,
        verify=verify,
        skip_refused=skip_refused,
        tick=lambda: None if tick is None else tick(reports),
    )
    try:
        for compressed, group in groupby(sources, lambda source: source.compression is not None):
            if compressed:
                _unpack_streams(list(group), job, in_order=overwrite)
            else:
                for source in group:
                    with source.report.timed():
                        unpack_indexed(_open_archive(source, cache), job, source.report)
    finally:
        target.close()
    return reports


class _Source(NamedTuple):
    path: str
    compression: str | None
    """None: its members can be read in any order."""
    report: UnpackReport


def _source(path: str) -> _Source:
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected an archive, got nothing. Check the path")
    if not os.path.isfile(path):
        raise DatasetError(f"{path}: expected an archive, got a folder or a special file. Name tars and zips")
    compression = compression_of(path)
    size = os.path.getsize(path) if compression is None else None
    return _Source(path, compression, UnpackReport(path, total_bytes=size))


def _open_archive(source: _Source, cache: Path | None) -> UnpackArchive:
    with open(source.path, "rb") as file:
        is_zip = file.read(4) in _ZIP_MAGICS
    folder = None if cache is None else os.path.abspath(os.fsdecode(cache))
    return (ZipArchive if is_zip else TarArchive)(source.path, cache=folder)


def _unpack_streams(sources: Sequence[_Source], job: UnpackJob, *, in_order: bool) -> None:
    """Several at a time, as each can use but one thread; `in_order` where a later one may replace what an earlier one
    has made."""

    def work(source: _Source) -> None:
        assert source.compression is not None
        with source.report.timed():
            unpack_streamed(source.path, source.compression, job, source.report)

    threads = 1 if in_order else min(job.threads, len(sources))
    job.work_through(sources, work, threads=threads, one_is_here=False)


# -- from unpack/summary.py: What was unpacked, in a few lines for people.


_NAMED_MOST = 5


def summary(reports: Sequence[UnpackReport], to: str) -> Iterator[str]:
    """The outcome first, then what is not as everybody would expect."""
    made, made_bytes = sum(report.made for report in reports), sum(report.made_bytes for report in reports)
    made_s = sum(report.made_s or 0.0 for report in reports)
    rate = f", {decimal(int(made_bytes / made_s))}/s" if made and made_s else ""
    yield f"{made:,} files of {decimal(made_bytes)} unpacked into {to} in {made_s:.1f} s{rate}"
    kept = sum(report.kept for report in reports)
    if kept:
        yield f"{kept:,} files were there already, with the same size and time"
    links = sum(report.links for report in reports)
    if links:
        yield f"{links:,} links"
    verified = [report.verified for report in reports if report.verified is not None]
    if verified:
        yield f"{sum(verified):,} files read again: each has the bytes of its archive"
    for report in reports:
        if report.refused:
            some = _some([f"{refusal.name!r} ({refusal.why})" for refusal in report.refused])
            yield f"{report.archive}: left out {len(report.refused):,} members: {some}"
        if report.replaced:
            some = _some([repr(name) for name in report.replaced])
            yield f"{report.archive}: {len(report.replaced):,} members gave way to later ones of the same path: {some}"


def _some(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - _NAMED_MOST:,} more" if len(texts) > _NAMED_MOST else ""
    return ", ".join(texts[:_NAMED_MOST]) + more
