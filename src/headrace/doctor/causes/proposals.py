"""Kinds of remedy, each declared once in `remedies.REMEDIES`, and their proposals for a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.doctor.causes.case import HIGH, LOW, MEDIUM, Case, Change
from headrace.doctor.causes.remedy import Factor, Remedy
from headrace.doctor.edits import WantedEdit
from headrace.doctor.quantities import percent
from headrace.doctor.simulate import Prediction

EFFORTS = SETTING, ONE_LINE, FEW_LINES, ANOTHER_LOADER, CACHED_COPY = (
    *("a setting", "one line of code", "a few lines of code", "another loader", "a cached copy of the data"),
)
"""Levels of effort for the user, least first."""


@dataclass(frozen=True)
class Proposal:
    """Remedy with the parts that its prescription is built from."""

    remedy: Remedy
    change: Change | None = None
    """Change that predicts the remedy together with others."""
    wanted: WantedEdit | None = None
    """Edit of the user's files for the remedy, which combines with others."""


@dataclass(frozen=True)
class RemedyKind:
    """Kind of remedy. Reports, proofs and docs/doctor/remedies.md take everything from its row in `REMEDIES`."""

    code: str
    title: str
    """Short name of the change without figures."""
    what: str
    """Instruction for the documentation."""
    effort: str
    """Level of effort from `EFFORTS`."""
    propose: Callable[[Case, RemedyKind], Proposal | None] | None = None
    """Function that computes the proposal; None if a finding alone triggers it."""
    finding: str = ""
    """Code of the finding that triggers the remedy, if nothing is computed."""
    why: str = ""
    """Reason if nothing is computed. `{share}` is the finding's weight. The default is the finding's own text."""
    hint: str = ""
    """Change in words or a line of code; `propose` may override it."""
    costs: tuple[str, ...] = ()
    """Costs that need no figures."""
    key: str = ""
    """Key in `changes`, if a proof can inject the remedy."""
    value: str = ""
    """Example value and its meaning, for the documentation."""
    adds_hands: bool = False
    """True if the remedy leaves the work unchanged. Remedies that reduce work are chosen first."""
    does_all: bool = False
    """True if the remedy makes the others redundant. It is chosen first if it gains most."""

    def proposal(self, case: Case) -> Proposal | None:
        """Return the proposal for a case; None if the remedy does not apply to the run."""
        if self.propose is not None:
            return self.propose(case, self)
        found = next((one for one in case.diagnosis.findings if one.code == self.finding), None)
        return None if found is None else self.unpredicted(self.why.format(share=percent(found.weight)) or found.text)

    def titled(self, title: str) -> RemedyKind:
        """Return the kind with a title that has figures."""
        return replace(self, title=title)

    def would_not(self, why: str) -> Proposal:
        """Return a proposal with the reason that the remedy would not help, for remedies that users ask about."""
        return Proposal(Remedy(self.code, self.title, helps=False, why=why, prediction=None, confidence=HIGH))

    def unpredicted(
        self, why: str, costs: Sequence[str] = (), hint: str = "", prediction: Prediction | None = None
    ) -> Proposal:
        """Propose the remedy without a simulated gain: the gain is unknown, or only a range is known."""
        return self._helps(why=why, prediction=prediction, confidence=LOW, costs=costs, hint=hint)

    def leaving(
        self, case: Case, left: Factor, change: Callable[[float], Change], *, why: str, **more: Any
    ) -> Proposal | None:
        """Propose the remedy by the share of time that remains; the interval spans the factor's range."""
        return self.tried(
            case,
            change(left.usual),
            prediction=case.predict_factor(left, change),
            why=f"{why} {left.basis}",
            **{"confidence": MEDIUM if left.is_measured else LOW, **more},
        )

    def tried(
        self,
        case: Case,
        change: Change,
        *,
        why: str,
        confidence: str,
        prediction: Prediction | None = None,
        costs: Sequence[str] = (),
        arguments: dict[str, Any] | None = None,
        wanted: WantedEdit | None = None,
        hint: str = "",
        injects: Any = None,
    ) -> Proposal | None:
        """Propose the remedy if the prediction shows a gain.

        `change` is simulated alone, unless `prediction` is given, and together with other remedies. If the remedy only
        sets `arguments` of the DataLoader, these provide its edit, hint and injection. Otherwise `injects` is the value
        for the kind's key in `changes`.
        """
        prediction = prediction or case.predict(change)
        if not case.is_faster(prediction):
            return None
        if arguments is not None:
            texts = {name: f'"{one}"' if isinstance(one, str) else str(one) for name, one in arguments.items()}
            wanted = WantedEdit(texts)
            hint = hint or self.hint or f"DataLoader(…, {', '.join(f'{name}={text}' for name, text in texts.items())})"
            injects = {str(loader): arguments for loader in case.loaders}
        options = None if wanted is None else case.script.run_with(wanted.keywords)
        proposal = self._helps(
            why=why,
            prediction=prediction,
            confidence=confidence,
            costs=costs,
            edit=None if wanted is None else case.edit(wanted),
            hint=hint if options is None else f"run it with {options}",
            changes=None if injects is None else {self.key: injects},
        )
        return replace(proposal, change=change, wanted=wanted)

    def _helps(self, *, costs: Sequence[str], hint: str, **fields: Any) -> Proposal:
        costs = [*(costs or self.costs)]
        return Proposal(Remedy(self.code, self.title, helps=True, costs=costs, hint=hint or self.hint, **fields))
