"""Remedies that go together: one prediction, and one change of the user's files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..predict.prediction import Prediction
from ..predict.setup import Setup
from .case import Case
from .edits.changes import Wanted
from .proposal import Proposal

INSTEAD_OF = {"native-decode": "cache", "staging": "cache"}
"""Remedies that have nothing left to do beside another."""


def together(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Those that help and whose gain could be computed, less what another of them makes needless."""
    helping = [one for one in proposals if one.remedy.helps and one.change is not None]
    codes = {one.remedy.code for one in helping}
    return [one for one in helping if INSTEAD_OF.get(one.remedy.code) not in codes]


def predicted_together(case: Case, proposals: Collection[Proposal]) -> Prediction | None:
    """None where there is nothing to predict."""
    changes = [one.change for one in proposals if one.change is not None]
    if not changes:
        return None

    def all_of_them(setup: Setup) -> Setup:
        for change in changes:
            setup = change(setup)
        return setup

    return case.predict(all_of_them)


def patch(case: Case, proposals: Sequence[Proposal]) -> str:
    """One diff of all files with what can be changed with certainty, each remedy's change beside the others'."""
    wanted = Wanted()
    for one in proposals:
        if one.remedy.edit is not None and one.wanted is not None:
            wanted = wanted.with_(one.wanted)
    return "".join(_diffs(case, wanted))


def _diffs(case: Case, wanted: Wanted) -> Iterator[str]:
    for file in case.changed(wanted) or []:
        yield file.diff(case.sources.root)
