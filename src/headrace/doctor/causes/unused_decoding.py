"""Columns that a Hugging Face dataset decodes, and that no batch holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.doctor.causes.case import MEDIUM, WORTH, Case
from headrace.doctor.causes.cause import LEADS, Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import ONE_LINE
from headrace.doctor.causes.stages import category
from headrace.doctor.measure import Finding, TrainerView, tensors_of
from headrace.doctor.quantities import percent
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import scaled

UNUSED = "unused-decoding"
"""Code of the finding and of the remedy."""
PICTURE_DIMS = 3
"""Least dimensions of a batch's array that may hold pictures or sound."""


def unused_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find columns that are decoded for each sample of the loader that steps wait for, without pixels in a batch."""
    making = next(iter(view.awaited_production), None)
    loader = None if making is None else view.loader(making.loader)
    described = {} if loader is None else loader.facts.get("described") or {}
    sizes = [size for shape in view.trainer.shapes for _, size in tensors_of(shape)]
    if not sizes or any(len(size) > PICTURE_DIMS or _is_of_pixels(size) for size in sizes):
        return
    decoded, plain = described.get("decoded"), described.get("plain")
    weight = sum(part.share for part in view.causes.parts if category(part.name) == "decode") * (view.wait_share or 0.0)
    if decoded and weight >= WORTH:
        those = f"dataset.select_columns({plain!r})" if plain else "select_columns"
        yield Finding(
            UNUSED,
            weight,
            f"Columns are decoded for each sample, though no array of a batch holds pixels: {', '.join(decoded)}.",
            f"columns of a Hugging Face dataset, which decodes them at each access; {percent(weight)} of each "
            f"{view.training.unit}",
            f"Leave them out by {those}, unless __getitem__ computes something of their pixels.",
        )


def _is_of_pixels(size: Sequence[int]) -> bool:
    """Return True if the last two dimensions may be those of a picture."""
    return len(size) == PICTURE_DIMS and min(size[1:]) >= 16  # smaller are vectors of a sequence


def select_columns(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to leave out the columns that a finding names."""
    found = next((one for one in case.diagnosis.findings if one.code == UNUSED), None)
    if found is None:
        return None
    without = scaled(case.stages("decode"))(0.0)
    return kind.tried(case, without, why=found.text, confidence=MEDIUM, hint=found.advice)


CAUSE = Cause(
    findings={
        UNUSED: "Columns of a Hugging Face dataset are decoded for 2 % of a step or more, and no batch has pixels."
    },
    find=of_steps(unused_findings),
    order=LEADS,
    explains=(UNUSED,),
    remedies=[RemedyKind(UNUSED, "columns that are not used left out", ONE_LINE, select_columns)],
)
