"""Unpacks an archive whose members are all known: several threads make its files, and links come after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.tools.unpack.plan import Plan, make_plan
from headrace.unpack.job import Job
from headrace.unpack.members import IndexedArchive
from headrace.unpack.report import Report


class _File(NamedTuple):
    path: bytes
    number: int
    """Of the member whose bytes it has."""
    size: int


def unpack_indexed(archive: IndexedArchive, job: Job, report: Report) -> None:
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


def _files(plan: Plan) -> Iterator[_File]:
    for number in plan.files:
        yield _File(plan.path(number), number, plan.sizes[number])
    for path, number in plan.copies:
        yield _File(path, number, plan.sizes[number])


def _place(archive: IndexedArchive, file: _File, job: Job, report: Report) -> None:
    placed = job.target.place_file(
        file.path,
        file.size,
        archive.attributes(file.number),
        lambda: job.stoppable(archive.pieces(file.number)),
    )
    job.expect_placed(placed, file.path)
    report.count(placed, file.size)


def _place_links(archive: IndexedArchive, plan: Plan, job: Job, report: Report) -> None:
    for link in plan.symbolic_links:
        job.place_symbolic_link(report, link.path, link.target, archive.attributes(link.number).mtime_ns)
    for link in plan.hard_links:
        job.expect_placed(job.target.place_hard_link(link.path, link.target), link.path)
        report.links += 1


def _verify(archive: IndexedArchive, file: _File, job: Job, report: Report) -> None:
    if not job.target.holds_file(file.path, file.size, lambda: job.stoppable(archive.pieces(file.number))):
        raise job.differs(archive.path, file.path)
    report.count_verified(file.size)
