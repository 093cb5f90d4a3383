"""Causes of lost time and their remedies, as the files of this package declare them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from headrace.doctor.causes.case import HIGH, LEAST_SPEEDUP, LOW, MEDIUM, Case, Change
from headrace.doctor.causes.remedy import Remedy
from headrace.doctor.edits import WantedEdit
from headrace.doctor.measure import Finding, Host, RanksTogether, RankView, TrainerView, hosts
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Factor, Prediction

LEADS, APART, FOLLOWS, MACHINE = "leads", "apart", "follows", "machine"
"""Order of a cause's findings. Those that lead are what the verdict names. Those apart keep their weight. Those that
follow weigh at most as much as what leads; a machine's follow, and say nothing without measured steps."""


@dataclass(frozen=True)
class Run:
    """Run in which causes are sought, with the trainer that waits longest for data."""

    session: Session
    view: TrainerView | None
    ranks: RanksTogether | None
    by_rank: Sequence[RankView]


Find = Callable[[Run], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Cause of lost time: its signs in a run, their sentences, and its remedies."""

    findings: Mapping[str, str] = field(default_factory=dict)
    """Condition of each finding by its code, for the documentation."""
    find: Find | None = None
    """Function that yields the findings."""
    order: str = FOLLOWS
    explains: Collection[str] = ()
    """Codes of findings that explain slow stages, or time that a step loses besides waiting."""
    remedies: Sequence[RemedyKind] = ()


@cache
def all_causes() -> list[Cause]:
    """Return the causes that the files of this package declare, by file name."""
    package = sys.modules[__package__]
    modules = [import_module(f"{__package__}.{one.name}") for one in iter_modules(package.__path__)]
    return [value for module in modules for value in vars(module).values() if isinstance(value, Cause)]


def of_steps(find: Callable[[Session, TrainerView], Iterable[Finding]]) -> Find:
    """Return a function that finds nothing in a run without training."""
    return lambda run: () if run.view is None else find(run.session, run.view)


def of_machines(find: Callable[[Host], Iterable[Finding]]) -> Find:
    """Return a function that looks at each machine, and names it if there are several."""

    def found(run: Run) -> Iterator[Finding]:
        machines = run.session.machines
        for host in hosts(run.session):
            for one in find(host):
                yield one if len(machines) < 2 else replace(one, text=f"{host.machine.host}: {one.text}")

    return found


@dataclass(frozen=True)
class Proposal:
    """Remedy with the parts that its prescription is built from."""

    remedy: Remedy
    change: Change | None = None
    """Change that predicts the remedy together with others."""
    wanted: WantedEdit | None = None
    """Arguments that the remedy sets, which combine with those of others."""


@dataclass(frozen=True)
class RemedyKind:
    """Kind of remedy. Reports, proofs and docs/doctor/remedies.md take everything from its declaration."""

    code: str
    title: str
    """Short name of the change without figures."""
    effort: str
    propose: Callable[[Case, RemedyKind], Proposal | None]
    """Function that computes the proposal; None if the remedy does not apply to the run."""
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
            prediction=case.predict_between(*map(change, (left.usual, left.least, left.most))),
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
        hint: str = "",
        injects: Any = None,
        least: float = LEAST_SPEEDUP,
    ) -> Proposal | None:
        """Propose the remedy if the prediction shows a speedup of at least `least`.

        `change` is simulated alone, unless `prediction` is given, and together with other remedies. If the remedy only
        sets `arguments` of the DataLoader, these provide its edit, hint and injection. Otherwise `injects` is the value
        for the kind's key in `changes`.
        """
        prediction = prediction or case.predict(change)
        if not case.is_faster(prediction, least):
            return None
        wanted: WantedEdit | None = None
        if arguments is not None:
            wanted = {name: f'"{one}"' if isinstance(one, str) else str(one) for name, one in arguments.items()}
            hint = hint or self.hint or f"DataLoader(…, {', '.join(f'{name}={text}' for name, text in wanted.items())})"
            injects = {str(loader): arguments for loader in case.loaders}
        options = None if wanted is None else case.script.run_with(wanted)
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
        return Proposal(
            Remedy(self.code, self.title, helps=True, costs=costs, hint=hint or self.hint, effort=self.effort, **fields)
        )
