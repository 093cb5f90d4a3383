"""An index of the archive in place of `tarfile`'s search."""

from __future__ import annotations

from collections.abc import Iterator

from ..analyse.words import percent, time
from .case import WORTH, Case
from .edits.changes import Wanted
from .factor import factor
from .proposal import LOW, MEDIUM, Proposal, tried, with_factor, would_not
from .stages import scaled, share_of

CODE = "indexed-tar"
ASSUMED = (0.0, 0.2)


def indexed_tar(case: Case) -> Iterator[Proposal]:
    title = "an index of the tar in place of tarfile's search"
    searching = case.stages("lookup", "scan", label="tarfile")
    if not searching and not case.stages("read", label="tarfile"):
        return
    share = share_of(searching)
    if share < WORTH:
        yield would_not(CODE, title, f"Looking members up is {percent(share)} of making a batch.")
        return
    per_sample = sum(one.wall_us for one in searching)
    left = factor(case.calibrations, CODE, assumed=ASSUMED, present_us=per_sample)
    yield tried(
        case,
        with_factor(case, left, scaled(searching)),
        code=CODE,
        title=title,
        why=f"tarfile finds members by reading its way through the archive: {time(per_sample)} a sample, "
        f"{percent(share)} of making a batch. {left.basis}",
        confidence=MEDIUM if left.is_measured else LOW,
        change=scaled(searching)(left.usual),
        costs=["an index beside the archive, made once by one pass over its headers"],
        wanted=Wanted(indexed_tar=True),
        hint="headrace.IndexedTar(path) in place of tarfile.open(path)",
        changes={"indexed_tar": True},
    )
