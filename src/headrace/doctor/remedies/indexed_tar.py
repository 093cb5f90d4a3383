"""An index of the archive in place of `tarfile`'s search."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.doctor.causes.case import WORTH, Case, Change
from headrace.doctor.edits.changes import Wanted
from headrace.doctor.measure.diagnosis import StagePart
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.predict.setup import Setup
from headrace.doctor.quantities import percent, time
from headrace.doctor.remedies.factor import Factor, factor, over
from headrace.doctor.remedies.proposal import LOW, MEDIUM, Proposal, tried, would_not
from headrace.doctor.remedies.stages import scaled, share_of

CODE = "indexed-tar"
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
ASSUMED = (0.0, 0.2)
SCAN_ASSUMED = (0.0, 0.5)
"""Listing all members makes an object of each, whoever knows where they are."""


def indexed_tar(case: Case) -> Iterator[Proposal]:
    title = "an index of the tar in place of tarfile's search"
    lookups, scans = case.stages("lookup", label="tarfile"), case.stages("scan", label="tarfile")
    searching = [*lookups, *scans]
    if not searching and not case.stages("read", label="tarfile"):
        return
    share = share_of(searching)
    if share < WORTH:
        yield would_not(CODE, title, f"Looking members up is {percent(share)} of making a batch.")
        return
    per_lookup = sum(one.wall_us for one in lookups)
    packed = _packed(case)
    if packed is not None:
        yield would_not(CODE, title, f"{packed} is compressed: members can be found only by unpacking what is before.")
        return
    of_lookups = factor(case.calibrations, CODE, "look-up", assumed=ASSUMED, present_us=per_lookup)
    of_scans = factor(case.calibrations, CODE, "header", assumed=SCAN_ASSUMED)
    parts = [part for part in ((lookups, of_lookups), (scans, of_scans)) if share_of(part[0]) >= WORTH]
    bases = " ".join(dict.fromkeys(left.basis for _, left in parts))
    change = _leaving([(stages, left.usual) for stages, left in parts])
    yield tried(
        case,
        _predicted(case, parts),
        code=CODE,
        title=title,
        why=f"tarfile finds members by reading its way through the archive: "
        f"{time(sum(one.wall_us for one in searching))} a sample, {percent(share)} of making a batch. {bases}",
        confidence=MEDIUM if all(left.is_measured for _, left in parts) else LOW,
        change=change,
        costs=["an index beside the archive, made once by one pass over its headers"],
        wanted=Wanted(indexed_tar=True),
        hint="headrace.IndexedTar(path) in place of tarfile.open(path)",
        changes={"indexed_tar": True},
    )


def _packed(case: Case) -> str | None:
    """The compressed archive that is read, where no other one is."""
    read = [] if case.session.survey is None else [one.path for one in case.session.survey.files]
    archives = [path for path in read if path.endswith((".tar", *PACKED))]
    return archives[0] if archives and all(path.endswith(PACKED) for path in archives) else None


def _predicted(case: Case, parts: list[tuple[list[StagePart], Factor]]) -> Prediction | None:
    """The interval spans what is left of each stage."""

    def at(pick: Callable[[Factor], float]) -> Prediction | None:
        return case.predict(_leaving([(stages, pick(left)) for stages, left in parts]))

    return over(at(lambda left: left.usual), at(lambda left: left.least), at(lambda left: left.most))


def _leaving(parts: list[tuple[list[StagePart], float]]) -> Change:
    def change(setup: Setup) -> Setup:
        for stages, left in parts:
            setup = scaled(stages)(left)(setup)
        return setup

    return change
