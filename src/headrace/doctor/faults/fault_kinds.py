"""Kinds of faults of the data: code, sentence, change and proof, each declared where it is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.doctor.explain import MaskExplanation, PictureExplanation, PlaneExplanation
from headrace.doctor.explain.look import LeafPath, path_text
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.session.after_run import DataFault

Explained: TypeAlias = Mapping[LeafPath, LeafExplanation]
INTENDED = "unless intended"
"""Certainty of a fault that values prove, and that some scripts plant on purpose."""
MOST_SHOWN = 4
"""Maximum number of samples or files that a sentence names."""


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault. `evidence` is a template for `str.format`; `proof` is for the documentation."""

    code: str
    evidence: str
    mend: str
    proof: str

    def __post_init__(self) -> None:
        KINDS[self.code] = self

    def found(
        self,
        *leaves: LeafPath,
        certainty: str = "certain",
        place: str = "",
        some: Sequence[object] = (),
        **figures: Any,
    ) -> DataFault:
        """Return the fault with its figures. Leaves are named `{0}`, `{1}` in the template, examples `{some}`."""
        names = [leaf_name(path) for path in leaves]
        shown = ", ".join(map(str, some[:MOST_SHOWN]))
        evidence = self.evidence.format(*names, place=place, some=shown, **figures)
        return DataFault(self.code, certainty, evidence, [path_text(path) for path in leaves], place, self.mend)


def leaf_name(path: LeafPath) -> str:
    """Return a leaf's name in a sentence: `image`, `item 0`, or `the sample` if that is all of it."""
    text = path_text(path)
    return f"item {text}" if text[:1].isdigit() else text or "the sample"


def leaf_role(explained: LeafExplanation | None) -> str:
    """Return what the values of a leaf are, in brackets; empty if unknown."""
    by = None if explained is None else explained.by
    roles = {PictureExplanation: " (the image)", PlaneExplanation: " (depth or grey)", MaskExplanation: " (the mask)"}
    return next((role for kind, role in roles.items() if isinstance(by, kind)), "")


KINDS: dict[str, FaultKind] = {}
"""All kinds, by code."""
