"""From a session to its diagnosis: every finding, heaviest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..measure import (
    BOUND,
    Diagnosis,
    Finding,
    Join,
    RanksTogether,
    RankView,
    TrainerView,
    cost,
    hosts,
    main_view,
    rank_views,
    ranks_together,
)
from ..session.model import Session
from .cores import CROWDED, core_findings
from .gpu import gpu_findings
from .memory import OOM_KILL, memory_findings
from .prefetch import wait_findings
from .processes import note_findings, process_findings
from .sequences import padding_findings
from .stage_names import category
from .storage import FROM_DISK, storage_findings
from .uneven_ranks import rank_findings
from .verdict import verdict
from .workers import FEW_WORKERS, loader_findings


def diagnose(session: Session) -> Diagnosis:
    """Return the whole diagnosis. It is pure: the same session gives the same diagnosis."""
    join = Join(session)
    views = [TrainerView.of(session, trainer, join) for trainer in session.trainers]
    main, ranks = main_view(views), ranks_together(views)
    by_rank = rank_views(ranks)
    found = _findings(session, main, ranks, by_rank)
    return Diagnosis(
        verdict=verdict(session, main, by_rank, found),
        wait_share=None if main is None else main.wait_share,
        seen_by="gpu" if main is not None and main.has_gpu else "cpu",
        budgets=[view.budget for view in views if view.budget is not None],
        waits=[view.split for view in views if view.split is not None],
        causes=[view.causes for view in views if view.causes.parts],
        makings=[making for view in views for making in view.makings],
        ranks=by_rank,
        findings=found,
        cost=cost(session, views, join),
    )


def _findings(
    session: Session, main: TrainerView | None, ranks: RanksTogether | None, by_rank: Sequence[RankView]
) -> list[Finding]:
    """Sort all findings by weight; those of equal weight stay as waits, loaders, ranks, processes, notes, machines.

    How a loader is set up, what was noted, and what a machine is short of, never comes before what the verdict calls
    the cause of the wait.
    """
    waits = [] if main is None else list(wait_findings(main))
    around = [] if main is None else [*loader_findings(session, main), *padding_findings(main)]
    of_run = [*([] if ranks is None else rank_findings(ranks, by_rank)), *process_findings(session)]
    notes, of_machines = list(note_findings(session, main)), _of_machines(session, main)
    if any(finding.code in CROWDED for finding in of_machines):
        # The CPU time of threads that libraries start is not known to be the workers', so cores may seem free.
        around = [finding for finding in around if finding.code != FEW_WORKERS]
    is_bound = main is not None and (main.wait_share or 0.0) >= BOUND
    most = waits[0].weight if waits and is_bound else 1.0
    order = {id(finding): -finding.weight for finding in [*waits, *of_run]}
    order |= {id(finding): -min(finding.weight, most) for finding in [*around, *notes, *of_machines]}
    return sorted([*waits, *around, *of_run, *notes, *of_machines], key=lambda finding: order[id(finding)])


def _of_machines(session: Session, main: TrainerView | None) -> list[Finding]:
    """Return what machines are short of, weighed by the training.

    Without training, a machine that is short of something explains nothing but how the command ended. What is read from
    disk concerns as much of a step as is waited for reading.
    """
    found = machine_findings(session)
    if main is None:
        return [finding for finding in found if finding.code == OOM_KILL]
    reading = sum(part.share for part in main.causes.parts if category(part.name) == "read") * (main.wait_share or 0.0)
    return [replace(one, weight=max(one.weight, reading)) if one.code == FROM_DISK else one for one in found]


def machine_findings(session: Session) -> list[Finding]:
    """Return what cores, memory, storage and GPUs of all machines were short of, heaviest first.

    What was not measured finds nothing.
    """
    found = [
        replace(finding, text=f"{host.machine.host}: {finding.text}") if len(session.machines) > 1 else finding
        for host in hosts(session)
        for check in (core_findings, memory_findings, storage_findings, gpu_findings)
        for finding in check(host)
    ]
    return sorted(found, key=lambda finding: -finding.weight)
