"""Members of an archive that `tarfile` searches for."""

from __future__ import annotations

from headrace.doctor.causes.case import LOW, WORTH, Case, sample_us, share_of
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind
from headrace.doctor.causes.remedy import ONE_LINE
from headrace.doctor.edits import WantedEdit
from headrace.doctor.quantities import duration, percent
from headrace.doctor.simulate import Change, chained, scaled, untimed

COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
ASSUMED = (0.0, 0.05)
"""Share of a search that remains: a look-up in an index takes some microseconds."""
SCAN_ASSUMED = (0.0, 0.2)
"""Share of a header scan that remains: listing all members creates one object each, even with an index."""


def indexed_tar(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose an index of the archive in place of `tarfile`'s search."""
    lookups, scans = case.stages("lookup", label="tarfile"), case.stages("scan", label="tarfile")
    searching = [*lookups, *scans]
    if not searching and not case.stages("read", label="tarfile"):
        return None
    if case.facts.get("iterable") is True and share_of(lookups) < WORTH:
        return None  # a stream reads members in sequence without look-ups
    share = share_of(searching)
    if share < WORTH:
        return None
    files = {path for maker in case.session.makers for batch in maker.first for path in batch.files}
    archives = [path for path in files if path.endswith((".tar", *COMPRESSED))]
    if archives and all(path.endswith(COMPRESSED) for path in archives):
        return None  # members can be found only by unpacking what is before
    factors = ((lookups, untimed(*ASSUMED)), (scans, untimed(*SCAN_ASSUMED)))
    parts = [part for part in factors if share_of(part[0]) >= WORTH]
    bases = " ".join(dict.fromkeys(left.basis for _, left in parts))

    def leaving(which: str) -> Change:
        """Return the change that scales each stage by its factor's `least`, `usual` or `most`."""
        return chained(scaled(stages)(getattr(left, which)) for stages, left in parts)

    return kind.tried(
        case,
        leaving("usual"),
        prediction=case.predict_between(*(leaving(which) for which in ("usual", "least", "most"))),
        why=f"tarfile finds members by reading its way through the archive: {duration(sample_us(searching))} a sample, "
        f"{percent(share)} of making a batch. {bases}".rstrip(),
        confidence=LOW,
        wanted=WantedEdit(indexed_tar=True),
        injects=True,
    )


CAUSE = Cause(
    remedies=[
        RemedyKind(
            "indexed-tar",
            "an index of the tar in place of tarfile's search",
            ONE_LINE,
            indexed_tar,
            hint="headrace.IndexedTar(path) in place of tarfile.open(path), of an archive that is not compressed",
            costs=("an index alongside the archive, made once by one pass over its headers",),
            key="indexed_tar",
            value="`true`",
        )
    ]
)
