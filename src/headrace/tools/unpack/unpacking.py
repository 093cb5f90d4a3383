"""`unpack`: extraction of archives to files.

Several threads create files; of a compressed tar, one thread, in one pass. Links follow once all files exist.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from headrace.errors import DatasetError, NotFoundError, UnsafeMemberError, UsageError
from headrace.system import Stop, default_threads, work_through
from headrace.tools.unpack.archives import FILE, FOLDER, HARD_LINK, KINDS, SYMBOLIC_LINK, Member, open_archive
from headrace.tools.unpack.target import RefusedError, UnpackTarget, link_target, member_path, unpack_target

Path = str | os.PathLike[str]

_NAMED_MOST = 5
_counting = threading.Lock()


@dataclass(frozen=True)
class Refusal:
    name: str
    why: str


@dataclass
class UnpackReport:
    """Progress and result for one archive, updated by worker threads and read by the displaying thread."""

    archive: str
    total_bytes: int | None = None
    """Bytes of all its files; None if unknown."""
    made: int = 0
    made_bytes: int = 0
    kept: int = 0
    """Files that already existed, complete."""
    kept_bytes: int = 0
    verified: int | None = None
    """Files compared byte by byte with the archive; None without `verify`."""
    verified_bytes: int = 0
    folders: int = 0
    links: int = 0
    replaced: list[str] = field(default_factory=list)
    """Names of members with a later member at the same path."""
    refused: list[Refusal] = field(default_factory=list)
    made_s: float | None = None
    """Seconds until everything was created."""
    wall_s: float | None = None
    """Seconds in total, once it has ended."""

    @property
    def seen_bytes(self) -> int:
        """Bytes of finished files; verified files count twice."""
        return self.made_bytes + self.kept_bytes + self.verified_bytes

    def count(self, what: str, size: int) -> None:
        """Count a file of `size` bytes as "made", "kept" or "verified"."""
        with _counting:
            setattr(self, what, (getattr(self, what) or 0) + 1)
            setattr(self, f"{what}_bytes", getattr(self, f"{what}_bytes") + size)

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        document = asdict(self) | {"files": self.made + self.kept}
        del document["total_bytes"], document["verified_bytes"]
        return document


def unpack(
    archives: Sequence[Path],
    *,
    to: Path = ".",
    threads: int | None = None,
    overwrite: bool = False,
    skip_refused: bool = False,
    verify: bool = False,
    tick: Callable[[Sequence[UnpackReport]], None] | None = None,
) -> list[UnpackReport]:
    """Extract tars and zips to the folder `to`: files, folders and links. Return a report for each archive.

    Every file is complete before it is named. Existing files with the same size and modification time are skipped, so
    running a killed command again resumes it. Existing files that differ are an error, or replaced with `overwrite`.
    `verify` reads all files at the end and compares them with the archive.

    Refused are members outside `to` or behind a link, links that lead out of `to`, and other kinds of members: an error
    before anything of the archive is written (in a compressed tar, when the member is reached), or with `skip_refused`
    skipped. `tick` is called in this thread with the current reports every tenth of a second.

    Raises UsageError, NotFoundError, DatasetError (corrupt, not an archive), MemberError, WriteError or ReadError.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected 1 or more, got {threads}")
    reports = [UnpackReport(os.path.abspath(os.fsdecode(path))) for path in archives]
    for report in reports:
        if not os.path.isfile(report.archive):
            missing, what = not os.path.exists(report.archive), "a folder or a special file. Name tars and zips"
            error = NotFoundError if missing else DatasetError
            raise error(f"{report.archive}: expected an archive, got {'nothing. Check the path' if missing else what}")
    with unpack_target(os.fsencode(os.path.abspath(os.fsdecode(to))), overwrite=overwrite) as target:
        for report in reports:
            run = _Run(report, target, threads=threads or default_threads(), skip_refused=skip_refused)
            run.unpack(None if tick is None else partial(tick, reports), verify=verify)
    return reports


class _Run:
    """Unpacking of one archive. Methods raise UnsafeMemberError, WriteError, and the archive's errors."""

    def __init__(self, report: UnpackReport, target: UnpackTarget, *, threads: int, skip_refused: bool) -> None:
        self._report, self._target, self._skip_refused = report, target, skip_refused
        self._archive = open_archive(report.archive)
        self._threads = 1 if self._archive.is_streamed else threads
        self._stop = Stop()
        self._last: dict[bytes, Member] = {}
        """Last member at each path, in the order of the archive."""
        self._replaced: set[bytes] = set()
        """Paths at which a compressed tar replaces what it has created."""

    def unpack(self, tick: Callable[[], None] | None, *, verify: bool) -> None:
        begin, report, streamed = time.perf_counter(), self._report, self._archive.is_streamed
        work_at = partial(
            work_through, name="unpack", threads=self._threads, one_is_here=not streamed, stop=self._stop, tick=tick
        )
        planned: Iterable[Member] = self._planned()
        if not streamed:
            for _ in planned:  # what is refused is known before anything is written
                pass
            self._expect_none_refused()
            planned = self._of_kind(FOLDER, FILE)
            report.total_bytes = sum(member.size for member in planned)
        work_at(planned, self._place)
        for member in self._of_kind(SYMBOLIC_LINK, HARD_LINK):
            self._target.place(member, self._pieces, replace=member.path in self._replaced)
            report.links += 1
        for member in self._of_kind(FOLDER):
            self._target.place_folder(member, timed=True)
            report.folders += 1
        report.made_s = time.perf_counter() - begin
        if verify:
            report.verified = 0
            files = {member.source: member for member in self._of_kind(FILE)}
            again = self._archive.members() if streamed else files.values()
            work_at((files[one.source] for one in again if one.source in files), self._verify)
        report.wall_s = time.perf_counter() - begin

    def _of_kind(self, *kinds: bytes) -> list[Member]:
        return [member for member in self._last.values() if member.kind in kinds]

    def _planned(self) -> Iterator[Member]:
        """Yield what is to be created, and record what is refused."""
        for found in self._archive.members():
            try:
                member = self._plan(found)
            except RefusedError as error:
                self._report.refused.append(Refusal(found.name, str(error)))
                if self._archive.is_streamed:
                    self._expect_none_refused()
                continue
            before = self._last.pop(member.path, None)
            if before is not None and not before.kind == member.kind == FOLDER:
                self._report.replaced.append(before.name)
                if self._archive.is_streamed:
                    self._replaced.add(member.path)
            self._last[member.path] = member
            yield member

    def _plan(self, member: Member) -> Member:
        """Return the member with its path in the target, and a link's target there. Raises RefusedError."""
        member = member._replace(path=member_path(member.name))
        if not member.path and member.kind != FOLDER:
            raise RefusedError("it has no name")
        if member.kind not in KINDS:
            raise RefusedError("it is neither a file nor a folder nor a link")
        above = member.path
        while above := above.rpartition(b"/")[0]:
            if above in self._last and (kind := self._last[above].kind) != FOLDER:
                raise RefusedError(f"it lies below {os.fsdecode(above)!r}, which is {KINDS[kind]} in the archive")
        if member.kind == HARD_LINK:
            linked = self._last.get(member_path(member.link))
            if linked is None or linked.kind == FOLDER:
                raise RefusedError(f"it is a hard link to {member.link!r}, no file that is ahead of it in the archive")
            if linked.kind != SYMBOLIC_LINK:
                return member._replace(link=os.fsdecode(linked.path))
            member = member._replace(kind=SYMBOLIC_LINK, link=linked.link)
        if member.kind == SYMBOLIC_LINK:
            return member._replace(link=link_target(member.path, member.link))
        return member

    def _place(self, member: Member) -> None:
        if member.kind == FOLDER:
            self._target.place_folder(member)
        elif member.kind == FILE:
            made = self._target.place(member, self._pieces, replace=member.path in self._replaced)
            self._report.count("made" if made else "kept", member.size)

    def _verify(self, member: Member) -> None:
        self._target.verify(member, self._pieces)
        self._report.count("verified", member.size)

    def _pieces(self, member: Member) -> Iterator[bytes]:
        for piece in self._archive.pieces(member):
            self._stop.check()
            yield piece

    def _expect_none_refused(self) -> None:
        every = self._report.refused
        if every and not self._skip_refused:
            some = "; ".join(f"{refusal.name!r}: {refusal.why}" for refusal in every[:_NAMED_MOST])
            more = f"; and {len(every) - _NAMED_MOST:,} more" if len(every) > _NAMED_MOST else ""
            raise UnsafeMemberError(
                f"{self._report.archive}: expected members that can be made inside the target, got {some}{more}. Leave "
                f"such members out: --skip-refused"
            )
