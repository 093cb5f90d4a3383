"""`unpack`: from archives to the files that they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from headrace.cores import default_threads
from headrace.data.compressed import compression_of
from headrace.errors import DatasetError, NotFoundError, UsageError
from headrace.tools.unpack.target import Target
from headrace.tools.unpack.unpacking import unpack_streamed
from headrace.tools.unpack.zip_archive import ZipArchive
from headrace.unpack.indexed import unpack_indexed
from headrace.unpack.job import Job
from headrace.unpack.members import IndexedArchive
from headrace.unpack.report import Report
from headrace.unpack.tar_archive import TarArchive

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
    tick: Callable[[Sequence[Report]], None] | None = None,
) -> list[Report]:
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
    target = Target(os.fsencode(os.path.abspath(os.fsdecode(to))), overwrite=overwrite)
    job = Job(
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
                        unpack_indexed(_open(source, cache), job, source.report)
    finally:
        target.close()
    return reports


class _Source(NamedTuple):
    path: str
    compression: str | None
    """None: its members can be read in any order."""
    report: Report


def _source(path: str) -> _Source:
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected an archive, got nothing. Check the path")
    if not os.path.isfile(path):
        raise DatasetError(f"{path}: expected an archive, got a folder or a special file. Name tars and zips")
    compression = compression_of(path)
    size = os.path.getsize(path) if compression is None else None
    return _Source(path, compression, Report(path, total_bytes=size))


def _open(source: _Source, cache: Path | None) -> IndexedArchive:
    with open(source.path, "rb") as file:
        is_zip = file.read(4) in _ZIP_MAGICS
    folder = None if cache is None else os.path.abspath(os.fsdecode(cache))
    return (ZipArchive if is_zip else TarArchive)(source.path, cache=folder)


def _unpack_streams(sources: Sequence[_Source], job: Job, *, in_order: bool) -> None:
    """Several at a time, as each can use but one thread; `in_order` where a later one may replace what an earlier one
    has made."""

    def work(source: _Source) -> None:
        assert source.compression is not None
        with source.report.timed():
            unpack_streamed(source.path, source.compression, job, source.report)

    threads = 1 if in_order else min(job.threads, len(sources))
    job.work_through(sources, work, threads=threads, one_is_here=False)
