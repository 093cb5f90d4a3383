"""What was unpacked, in a few lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.filesize import decimal

from headrace.unpack.report import Report

_NAMED_MOST = 5


def summary(reports: Sequence[Report], to: str) -> Iterator[str]:
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
