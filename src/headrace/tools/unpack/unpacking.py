"""Unpacks a compressed tar in one pass, in one thread: each member when it comes."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.tools.unpack.plan import Refusal
from headrace.tools.unpack.tar_archive import stream_tar
from headrace.tools.unpack.target import Placed
from headrace.unpack.job import Job
from headrace.unpack.member_paths import RefusedError, checked_path, encode, hard_link_target, link_target
from headrace.unpack.members import Kind, StreamedMember
from headrace.unpack.report import Report

_OTHER = -1
"""In place of a member's number: the path is a link."""


def unpack_streamed(archive: str, compression: str, job: Job, report: Report) -> None:
    """Members that a later one replaces are made first and replaced then, as tar does.

    Raises UnsafeMemberError, WriteError, ReadError, DatasetError or DamagedMemberError.
    """
    run = _Run(job, report)
    for number, streamed in enumerate(_stoppable(archive, compression, job)):
        run.place(number, streamed)
    run.finish()
    report.end_making()
    if job.verify:
        report.verified = 0
        for number, streamed in enumerate(_stoppable(archive, compression, job)):
            run.verify(number, streamed)


def _stoppable(archive: str, compression: str, job: Job) -> Iterator[StreamedMember]:
    for streamed in stream_tar(archive, compression):
        job.stop.check()
        yield streamed


class _Run:
    def __init__(self, job: Job, report: Report) -> None:
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
        if member.kind is Kind.LABEL:
            return
        try:
            path = checked_path(member)
            if path in self._made and member.kind is not Kind.FOLDER:
                self._report.replaced.append(member.name)
            match member.kind:
                case Kind.FILE:
                    self._place_file(path, number, streamed)
                case Kind.FOLDER:
                    self._place_folder(path, streamed.attributes.mtime_ns)
                case Kind.SYMBOLIC_LINK:
                    self._place_symbolic_link(path, member.link, streamed.attributes.mtime_ns)
                case Kind.HARD_LINK:
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
        if streamed.member.kind is not Kind.FILE:
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
