"""What was staged or removed, in a few lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.filesize import decimal

from headrace.stage.report import Report, Unstaged
from headrace.stage.sources import Source

_NAMED_MOST = 5


def staged_lines(report: Report, sources: Sequence[Source]) -> Iterator[str]:
    """The outcome first, then what is not as everybody would expect, and where the copies are."""
    took = report.wall_s or 0.0
    rate = f", {decimal(int(report.copied_bytes / took))}/s" if report.copied and took else ""
    yield f"{report.copied:,} files of {decimal(report.copied_bytes)} copied and read back in {took:.1f} s{rate}"
    if report.kept:
        yield f"{report.kept:,} files were there already, with the size and time of their sources"
    if report.verified is not None:
        yield f"{report.verified:,} of them read again: each has the bytes that were staged"
    if report.repaired:
        yield f"{len(report.repaired):,} copies were not as they had been staged, and were made anew: " + _some(
            report.repaired
        )
    if report.gone:
        yield f"{report.gone:,} copies removed, as their sources are gone"
    for what, count in report.skipped.items():
        yield f"not copied: {count:,} {what}"
    copies = [source.copy_in(report.to) for source in sources]
    yield f"→ {copies[0]}" + (f" and {len(copies) - 1:,} more in {report.to}" if len(copies) > 1 else "")


def unstaged_lines(report: Unstaged) -> Iterator[str]:
    yield f"{report.removed:,} files of {decimal(report.removed_bytes)} removed from {report.to}"
    if report.left:
        yield f"left, as they are not as they were staged: {_some(report.left)}"


def _some(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - _NAMED_MOST:,} more" if len(texts) > _NAMED_MOST else ""
    return ", ".join(texts[:_NAMED_MOST]) + more
