"""Everything worth knowing about a session, heaviest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.doctor.analyse import environment
from headrace.doctor.analyse.environment_storage import FROM_DISK
from headrace.doctor.analyse.find_notes import note_findings
from headrace.doctor.analyse.together import Together
from headrace.doctor.causes.cores import CROWDED
from headrace.doctor.causes.memory import OOM_KILL
from headrace.doctor.causes.prefetch import wait_findings
from headrace.doctor.causes.processes import process_findings
from headrace.doctor.causes.sequences import padding_findings
from headrace.doctor.causes.stage_names import category
from headrace.doctor.causes.uneven_ranks import rank_findings
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.causes.workers import FEW_WORKERS, loader_findings
from headrace.doctor.measure.diagnosis import Finding, RankView
from headrace.doctor.measure.view import View, main_view
from headrace.doctor.session.model import Session

READ = "read"
"""Category of stages."""


def findings(
    session: Session, views: Sequence[View], ranks: Together | None, by_rank: Sequence[RankView]
) -> list[Finding]:
    """Those of equal weight stay in the order: waits, loaders, ranks, processes, notes, machines. How a loader is
    set up, what was noted, and what a machine is short of, never comes before what the verdict calls the cause of the
    wait."""
    main = main_view(views)
    waits = [] if main is None else list(wait_findings(main))
    around = [] if main is None else [*loader_findings(session, main), *padding_findings(main)]
    of_run = [*([] if ranks is None else rank_findings(ranks, by_rank)), *process_findings(session)]
    notes = list(note_findings(session, main))
    of_machines = _of_machines(session, main)
    around = _agreeing(around, of_machines)
    is_bound = main is not None and (main.wait_share or 0.0) >= BOUND
    most = waits[0].weight if waits and is_bound else 1.0
    order = {id(finding): -finding.weight for finding in [*waits, *of_run]}
    order |= {id(finding): -min(finding.weight, most) for finding in [*around, *notes, *of_machines]}
    return sorted([*waits, *around, *of_run, *notes, *of_machines], key=lambda finding: order[id(finding)])


def _of_machines(session: Session, main: View | None) -> list[Finding]:
    """Without training, a machine that is short of something explains nothing but how the command ended. What is read
    from disk concerns as much of a step as is waited for reading."""
    found = environment.findings(session)
    if main is None:
        return [finding for finding in found if finding.code == OOM_KILL]
    reading = sum(part.share for part in main.causes.parts if category(part.name) == READ) * (main.wait_share or 0.0)
    return [replace(one, weight=max(one.weight, reading)) if one.code == FROM_DISK else one for one in found]


def _agreeing(around: list[Finding], of_machines: list[Finding]) -> list[Finding]:
    """Without the advice to take more workers, where those that there are have too few cores: the CPU time of threads
    that their libraries start is not known to be theirs, so that cores may seem free."""
    crowded = any(finding.code in CROWDED for finding in of_machines)
    return [finding for finding in around if not (crowded and finding.code == FEW_WORKERS)]
