"""View of a report: what its forms show of a session, a diagnosis and a prescription."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headrace.doctor.causes import Prescription, hanging_batches
from headrace.doctor.measure import Diagnosis, Finding, Host, RankView, hosts
from headrace.doctor.quantities import counted, duration
from headrace.doctor.report.remedy_text import FirstScreen, RemedyRows, bound_rows, first_screen, remedy_rows
from headrace.doctor.report.run_text import cost_text, ending, note_texts
from headrace.doctor.session.after_run import DataCheck
from headrace.doctor.session.model import Session


@dataclass(frozen=True)
class ReportView:
    """The whole report. Unknown texts are empty."""

    session: Session
    diagnosis: Diagnosis
    screen: FirstScreen
    ended: str
    again: str
    """Command that renders the report again, or how to get one."""
    waits: float | None = None
    """Share of a step that waits for data, for the verdict's colour; 0 if data is not worth a change."""
    ranks: Sequence[RankView] = ()
    """Ranks if there are several, the latest first."""
    hosts: Sequence[Host] = ()
    findings: Sequence[Finding] = ()
    """Findings, without the advice that the first screen gives."""
    bounds: Sequence[str] = ()
    """Baseline and lower bounds of a step, or the reason that there are none."""
    remedies: RemedyRows = field(default_factory=RemedyRows)
    notes: Sequence[tuple[str, str]] = ()
    """Code and text of each note; the code may be empty."""

    @property
    def command(self) -> str:
        return shlex.join(self.session.outcome.command)

    @property
    def hanging(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Title and stack of each process that hangs."""
        batches = hanging_batches(self.session)
        return [(f"Process {one.process.pid} hangs here", one.stack.rstrip().splitlines()) for one in batches]


def report_view(
    session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None, *, again: str = ""
) -> ReportView:
    """Return the view of a session. The report of a check says nothing on speed, but how the command ended."""
    outcome, check = session.outcome, session.check
    if check is not None:
        screen = _check_screen(session, check, diagnosis)
        is_checked = outcome.why == "steps"
        ended = f"ended by the check in {duration(outcome.duration)}" if is_checked else ending(outcome)
        return ReportView(session, diagnosis, screen, ended, again)
    screen = first_screen(diagnosis, prescription)
    first = "" if screen.recommendation is None else screen.recommendation.text
    waits = diagnosis.wait_share if diagnosis.data_share is None else diagnosis.data_share
    is_stopped = prescription is not None and bool(prescription.stop)
    bounds = [f"{name} {duration(us)}" for name, us in bound_rows(prescription) if us is not None]
    why_not = "" if prescription is None else prescription.why_no_windows
    cost = diagnosis.cost
    return ReportView(
        session,
        diagnosis,
        screen,
        ending(outcome),
        again,
        waits=0.0 if is_stopped and waits is not None else waits,
        ranks=sorted(diagnosis.ranks, key=lambda rank: (-rank.late, rank.rank)) if len(diagnosis.ranks) > 1 else [],
        hosts=list(hosts(session)),
        findings=[replace(one, advice="") if one.advice == first else one for one in diagnosis.findings],
        bounds=[*bounds, f"no lower bounds: {why_not}"] if why_not else bounds,
        remedies=remedy_rows(prescription),
        notes=[
            *(("", text) for text in screen.rest),
            *note_texts(session),
            *([("", cost_text(cost))] if cost.evidence_bytes > 0 else []),
        ],
    )


def _check_screen(session: Session, check: DataCheck, diagnosis: Diagnosis) -> FirstScreen:
    certain = sum(fault.certainty == "certain" for fault in session.faults)
    sentence = "No fault found in what was looked at." if check.looked_at else "Nothing was looked at."
    if session.faults:
        sentence = f"{counted(len(session.faults), 'fault')} of the data, {certain} certain."
    texts = [*(one.text for one in diagnosis.ending), sentence]
    return FirstScreen(texts[0], texts[1:], None)
