"""Columns that a Hugging Face dataset decodes, and that no batch holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.doctor.causes.case import MEDIUM, WORTH, Case, share_of
from headrace.doctor.causes.cause import LEADS, Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import ONE_LINE
from headrace.doctor.causes.stage_names import category
from headrace.doctor.measure import Finding, TrainerView, tensors_of
from headrace.doctor.quantities import percent
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import scaled

UNUSED = "unused-decoding"
"""Code of the finding and of the remedy."""
PICTURE_DIMS = 3
"""Least dimensions of a batch's array that may hold pictures or sound."""


def unused_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find columns that are decoded for each sample, though no array of a batch has pixels."""
    columns, _ = _columns(view)
    decoded = [part for part in view.causes.parts if category(part.name) == "decode"]
    weight = sum(part.share for part in decoded) * (view.wait_share or 0.0)
    if columns and weight >= WORTH:
        yield Finding(
            UNUSED,
            weight,
            f"{_named(columns)} decoded for each sample, and no array of a batch holds pixels.",
            f"columns of a Hugging Face dataset, which decodes them at each access; {percent(weight)} of each "
            f"{view.training.unit}",
            "Leave them out, by select_columns, unless __getitem__ computes something of their pixels.",
        )


def _columns(view: TrainerView) -> tuple[Sequence[str], Sequence[str]]:
    """Return the decoded columns that no batch holds, and the others, of the loader that steps wait for."""
    making = next(iter(view.awaited_production), None)
    loader = None if making is None else view.loader(making.loader)
    described = {} if loader is None else loader.facts.get("described") or {}
    sizes = [size for shape in view.trainer.shapes for _, size in tensors_of(shape)]
    if not sizes or any(len(size) > PICTURE_DIMS or _is_of_pixels(size) for size in sizes):
        return (), ()
    return described.get("decoded") or (), described.get("plain") or ()


def _is_of_pixels(size: Sequence[int]) -> bool:
    """Return True if the last two dimensions may be those of a picture."""
    return len(size) == PICTURE_DIMS and min(size[1:]) >= 16  # smaller are vectors of a sequence


def _named(columns: Sequence[str]) -> str:
    return f"The column {columns[0]} is" if len(columns) == 1 else f"The columns {', '.join(columns)} are"


def select_columns(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to leave out columns that are decoded for nothing."""
    (columns, others), decoding = _columns(case.view), case.stages("decode")
    if not columns or share_of(decoding) < WORTH:
        return None
    return kind.titled(f"without decoding {', '.join(columns)}").tried(
        case,
        scaled(decoding)(0.0),
        why=f"{_named(columns)} decoded for each sample, {percent(share_of(decoding))} of making a batch, and no array "
        "of a batch holds pixels.",
        confidence=MEDIUM,
        hint=f"dataset = dataset.select_columns({list(others)!r})" if others else "",
    )


CAUSE = Cause(
    findings={
        UNUSED: "Columns of a Hugging Face dataset are decoded for 2 % of a step or more, and no batch has pixels."
    },
    find=of_steps(unused_findings),
    order=LEADS,
    explains=(UNUSED,),
    remedies=[
        RemedyKind(
            UNUSED,
            "columns that are not used left out",
            "Leave out columns that are decoded for nothing",
            ONE_LINE,
            select_columns,
            hint="dataset.select_columns([…]) with the columns that __getitem__ reads",
        )
    ],
)
