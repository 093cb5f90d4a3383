"""Workers that each pass over the data starts anew."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.case import HIGH, WORTH_SAYING, Case
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import SETTING
from headrace.doctor.causes.workers import bytes_a_worker
from headrace.doctor.measure import SHUT_DOWN, START_UP, Finding, TrainerView
from headrace.doctor.quantities import counted, duration, percent, size
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import setting


def restart_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    for making in view.awaited_production:
        if not making.respawned or view.budget is None:
            continue
        waits = [one for one in view.waits if one.loader == making.loader]
        spent = sum(wait.parts.get(part, 0) for part in (START_UP, SHUT_DOWN) for wait in waits)
        share = spent / view.training.total_us if view.training.total_us else 0.0
        yield Finding(
            "respawn",
            share if share >= WORTH_SAYING else 0.0,
            f"Each of {counted(making.passes, 'pass')} started {counted(making.workers, 'worker')} anew.",
            f"iter() took {duration(making.start_up_us)}, its first batch {duration(making.first_batch_us)}",
            "Look at persistent_workers=True, on a DataLoader that is made once: workers, and what they have opened, "
            "persist between epochs.",
        )


def persistent_workers(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to keep workers alive between epochs."""
    if not case.workers or case.facts.get("persistent_workers") is True or not case.making.respawned:
        return None
    each, passes = bytes_a_worker(case), counted(case.making.passes, "pass")
    why = f"Each of {passes} started {counted(case.workers, 'worker')} anew: {_start(case)} of each step."
    prediction = case.predict(setting(persistent=True))
    if len(case.loaders) > 1 and prediction is not None and case.is_faster(prediction):
        hint = "make the DataLoader once, before the loop over epochs, with persistent_workers=True"
        return kind.unpredicted(f"{why} A new DataLoader has new workers.", hint=hint, prediction=prediction)
    held = [] if each is None else [f"{size(case.workers * each)} of workers' memory stay in use between epochs"]
    return kind.tried(
        case,
        setting(persistent=True),
        why=why,
        confidence=HIGH,
        prediction=prediction,
        costs=held,
        arguments={"persistent_workers": True},
    )


def _start(case: Case) -> str:
    spent = case.split_us(START_UP, SHUT_DOWN)
    return f"{duration(spent)} ({percent(case.step_share(spent))})" if case.step_us else duration(spent)


CAUSE = Cause(
    findings={"respawn": "Each pass over the data started its workers anew."},
    find=of_steps(restart_findings),
    remedies=[
        RemedyKind(
            "persistent-workers",
            "workers that persist between epochs",
            SETTING,
            persistent_workers,
            hint="DataLoader(…, persistent_workers=True), made once and not in each epoch",
            key="loaders",
            value='`{"0": {"persistent_workers": true}}`',
        )
    ],
)
