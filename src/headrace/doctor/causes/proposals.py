"""Kinds of remedy, each declared once in `remedies.REMEDIES`, and what they propose of a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..edits import WantedEdit
from ..measure import BOUND
from ..quantities import duration, percent
from ..simulate import Prediction
from .case import HIGH, LOW, MEDIUM, Case, Change
from .remedy import Factor, Remedy

EFFORTS = SETTING, ONE_LINE, FEW_LINES, ANOTHER_LOADER, CACHED_COPY = (
    *("a setting", "one line of code", "a few lines of code", "another loader", "a cached copy of the data"),
)
"""What a remedy asks of its user, the least first."""


@dataclass(frozen=True)
class Proposal:
    """A remedy with what its prescription is put together from."""

    remedy: Remedy
    change: Change | None = None
    """Predicts it together with others."""
    wanted: WantedEdit | None = None
    """Edits the user's files for it together with others."""


@dataclass(frozen=True)
class RemedyKind:
    """One kind of remedy. Its row in `REMEDIES` is all that reports, proofs and docs/doctor/remedies.md know of it."""

    code: str
    title: str
    """The change in a few words, as long as no figure is known."""
    what: str
    """What to do, for the documentation."""
    effort: str
    """One of `EFFORTS`."""
    propose: Callable[[Case, RemedyKind], Proposal | None] | None = None
    """Computes it; None for one that a finding alone calls for."""
    finding: str = ""
    """Code of the finding that calls for it, where nothing is computed."""
    why: str = ""
    """Reason, where nothing is computed; `{share}` is the finding's weight. The finding's own text by default."""
    fed_only: bool = False
    """True if it helps only while a step does not wait for data."""
    hint: str = ""
    """The change in words or a line of code; `propose` may give another."""
    costs: tuple[str, ...] = ()
    """What it takes, where that has no figures."""
    key: str = ""
    """Key in `changes`, where a proof can inject it."""
    value: str = ""
    """Example of the value, and what it means, for the documentation."""
    in_place_of: str = ""
    """What it does in place of the script: of several with the same, only the one that gains most is taken."""
    adds_hands: bool = False
    """True if it leaves the work as it is: what makes less work is taken before it."""
    does_all: bool = False
    """True if it leaves the others nothing to do: it is taken before them where it gains most."""

    def proposal(self, case: Case) -> Proposal | None:
        """Return what it proposes of a case; None where nothing in the run concerns it."""
        if self.propose is not None:
            return self.propose(case, self)
        found = next((one for one in case.diagnosis.findings if one.code == self.finding), None)
        if found is not None and self.fed_only and case.wait_share >= BOUND:
            return self.would_not(f"{found.text} But a step waits {percent(case.wait_share)} of its time for data.")
        return None if found is None else self.unpredicted(self.why.format(share=percent(found.weight)) or found.text)

    def titled(self, title: str) -> RemedyKind:
        """Return it under a title with figures."""
        return replace(self, title=title)

    def would_not(self, why: str) -> Proposal:
        """Say why it would not help."""
        return Proposal(Remedy(self.code, self.title, helps=False, why=why, prediction=None, confidence=HIGH))

    def too_little(self, what: str, share: float) -> Proposal:
        """Say that what it makes shorter is hardly any of making a batch."""
        return self.would_not(f"{what} is {percent(share)} of making a batch.")

    def unpredicted(
        self, why: str, costs: Sequence[str] = (), hint: str = "", prediction: Prediction | None = None
    ) -> Proposal:
        """Propose it where its gain is not simulated, and nothing or only a range is known of it."""
        return self._helps(why=why, prediction=prediction, confidence=LOW, costs=costs, hint=hint)

    def leaving(
        self, case: Case, left: Factor, change: Callable[[float], Change], *, why: str, **more: Any
    ) -> Proposal:
        """Propose it by what it leaves of something; the interval spans what the factor may be."""
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
    ) -> Proposal:
        """Propose it where the prediction says that it helps; else say what was predicted.

        `change` is simulated by itself, unless `prediction` says more, and together with others. `arguments` of the
        DataLoader, where it sets nothing else, make its edit, hint and injection; else `injects` is the value of its
        key in `changes`.
        """
        prediction = prediction or case.predict(change)
        if prediction is None:
            return self.would_not(f"{why} Its gain cannot be computed: no production of a batch was recorded.")
        if not case.is_faster(prediction):
            would = f"It would give {duration(prediction.step_us)} a step"
            return self.would_not(f"{why} {would}, and there are {duration(case.step_us)} now: no gain.")
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
