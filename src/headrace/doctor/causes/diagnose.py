"""From a session to its diagnosis: every finding, heaviest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.doctor.causes.cores import (
    CROWDED,
    other_processes,
    stolen_cores,
    throttled_cores,
    too_many_threads,
    too_many_workers,
)
from headrace.doctor.causes.gpu import gpu_findings
from headrace.doctor.causes.memory import (
    OOM_KILL,
    copied_memory,
    little_memory,
    little_shared_memory,
    out_of_memory,
    swapping,
)
from headrace.doctor.causes.prefetch import wait_findings
from headrace.doctor.causes.processes import note_findings, process_findings
from headrace.doctor.causes.sequences import padding_findings
from headrace.doctor.causes.stage_names import category
from headrace.doctor.causes.storage import FROM_DISK, busy_disks, network_storage, reads_from_disk
from headrace.doctor.causes.uneven_ranks import rank_findings
from headrace.doctor.causes.verdict import BOUND, verdict
from headrace.doctor.causes.workers import FEW_WORKERS, loader_findings
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.diagnosis import Diagnosis, Finding, RankView
from headrace.doctor.measure.host import Host, hosts
from headrace.doctor.measure.ranks import RanksTogether, rank_views, ranks_together
from headrace.doctor.measure.view import TrainerView, cost, main_view
from headrace.doctor.session.model import Session

# -- from doctor/analyse/environment.py: What the machine had to do with it: cores, memory, storage and GPUs that were
# short, slow or shared.


_CHECKS: list[Callable[[Host], list[Finding]]] = [
    out_of_memory,
    throttled_cores,
    too_many_threads,
    too_many_workers,
    other_processes,
    stolen_cores,
    swapping,
    little_memory,
    copied_memory,
    little_shared_memory,
    busy_disks,
    reads_from_disk,
    network_storage,
    gpu_findings,
]


def machine_findings(session: Session) -> list[Finding]:
    """Of all machines, heaviest first. What was not measured finds nothing."""
    found = [
        replace(finding, text=f"{host.machine.host}: {finding.text}") if len(session.machines) > 1 else finding
        for host in hosts(session)
        for check in _CHECKS
        for finding in check(host)
    ]
    return sorted(found, key=lambda finding: -finding.weight)


# -- from doctor/analyse/findings.py: Everything worth knowing about a session, heaviest first.


READ = "read"
"""Category of stages."""


def findings(
    session: Session, views: Sequence[TrainerView], ranks: RanksTogether | None, by_rank: Sequence[RankView]
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


def _of_machines(session: Session, main: TrainerView | None) -> list[Finding]:
    """Without training, a machine that is short of something explains nothing but how the command ended. What is read
    from disk concerns as much of a step as is waited for reading."""
    found = machine_findings(session)
    if main is None:
        return [finding for finding in found if finding.code == OOM_KILL]
    reading = sum(part.share for part in main.causes.parts if category(part.name) == READ) * (main.wait_share or 0.0)
    return [replace(one, weight=max(one.weight, reading)) if one.code == FROM_DISK else one for one in found]


def _agreeing(around: list[Finding], of_machines: list[Finding]) -> list[Finding]:
    """Without the advice to take more workers, where those that there are have too few cores: the CPU time of threads
    that their libraries start is not known to be theirs, so that cores may seem free."""
    crowded = any(finding.code in CROWDED for finding in of_machines)
    return [finding for finding in around if not (crowded and finding.code == FEW_WORKERS)]


# -- from doctor/analyse/analysis.py: From a session to what it means.


def diagnose(session: Session) -> Diagnosis:
    """Pure: the same session gives the same diagnosis."""
    join = Join(session)
    views = [TrainerView.of(session, trainer, join) for trainer in session.trainers]
    main = main_view(views)
    ranks = ranks_together(views)
    by_rank = rank_views(ranks)
    found = findings(session, views, ranks, by_rank)
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
