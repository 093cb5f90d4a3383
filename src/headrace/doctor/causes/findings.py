"""Diagnosis of a session: all findings, heaviest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headrace.doctor.causes.case import WORTH_SAYING
from headrace.doctor.causes.cores import CROWDED, core_findings, memory_findings, with_spinning
from headrace.doctor.causes.costly_lines import line_findings
from headrace.doctor.causes.loop_work import call_findings, epoch_findings, loop_findings
from headrace.doctor.causes.processes import garbage_findings, note_findings, process_findings
from headrace.doctor.causes.remote_reads import remote_findings
from headrace.doctor.causes.stage_names import by_category, category, named, source_advice
from headrace.doctor.causes.storage import FROM_DISK, storage_findings
from headrace.doctor.causes.training_kinds import TRAINING
from headrace.doctor.causes.transfers import padding_findings
from headrace.doctor.causes.uneven_ranks import device_findings, rank_findings
from headrace.doctor.causes.verdict import ending, statements, verdict
from headrace.doctor.causes.workers import FEW_WORKERS, loader_findings
from headrace.doctor.measure import (
    BOUND,
    HELD_UP,
    MADE_HERE,
    PICKLE,
    REST,
    SAMPLER,
    SERIALISE,
    SHUT_DOWN,
    START_UP,
    UNPICKLE,
    WAIT_ORDER,
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
from headrace.doctor.quantities import duration, percent
from headrace.doctor.session.model import Session

OF_WAIT = {HELD_UP: "out-of-order", MADE_HERE: "no-workers"}
"""Finding codes for parts of the wait that no stage explains."""
SAID_ELSEWHERE = {START_UP, SHUT_DOWN, PICKLE, UNPICKLE, SAMPLER, *map(category, (SERIALISE, REST))}
"""Causes of a wait without a finding: the verdict names them, or `respawn` covers them."""


def diagnose(session: Session) -> Diagnosis:
    """Return the whole diagnosis. The function is pure: the same session gives the same diagnosis."""
    join = Join(session)
    views = [TrainerView.of(session, trainer, join) for trainer in session.trainers]
    main, ranks = main_view(views), ranks_together(views)
    by_rank = rank_views(ranks)
    found = _findings(session, main, ranks, by_rank)
    return Diagnosis(
        verdict=verdict(session, main),
        wait_share=None if main is None else main.wait_share,
        seen_by="gpu" if main is not None and main.has_gpu else "cpu",
        budgets=[view.budget for view in views if view.budget is not None],
        waits=[view.split for view in views if view.split is not None],
        causes=[view.causes for view in views if view.causes.parts],
        batch_production=[making for view in views for making in view.batch_production],
        ranks=by_rank,
        findings=found,
        cost=cost(session, views, join),
        data_share=None if main is None else main.data_share,
        ending=list(ending(session, main)),
        statements=list(statements(session, main, by_rank, found)),
    )


def _findings(
    session: Session, main: TrainerView | None, ranks: RanksTogether | None, by_rank: Sequence[RankView]
) -> list[Finding]:
    """Sort all findings by weight; ties stay in the order waits, loaders, ranks, processes, notes, machines.

    Findings about loader setup, notes and machine shortages never precede what the verdict names as the cause.
    """
    of_machines, notes = machine_findings(session), list(note_findings(session, main))
    of_run = [*([] if ranks is None else rank_findings(ranks, by_rank)), *process_findings(session)]
    waits: list[Finding] = []
    loop: list[Finding] = []
    lines: list[Finding] = []
    around: list[Finding] = []
    if main is None or main.budget is None:  # a machine shortage then explains only a crash
        of_machines = [finding for finding in of_machines if finding.code == "oom-kill"]
    if main is not None:
        # Reads from disk weigh at least the share of a step that waits for reading.
        read = sum(part.share for part in main.causes.parts if category(part.name) == "read") * (main.wait_share or 0.0)
        of_machines = [
            replace(one, weight=max(one.weight, read)) if one.code == FROM_DISK else one for one in of_machines
        ]
        of_machines = with_spinning(session, main, of_machines)
        waits = [*wait_findings(main), *epoch_findings(main)]
        loop = [*loop_findings(main), *call_findings(session, main)]
        lines = list(line_findings(main))
        around = [
            *loader_findings(session, main),
            *remote_findings(session, main),
            *padding_findings(main),
            *device_findings(main),
            *garbage_findings(session, main),
        ]
    if any(finding.code in CROWDED for finding in of_machines):
        # Threads that libraries start may use CPU time that is not counted for workers, so cores may only seem free.
        around = [finding for finding in around if finding.code != FEW_WORKERS]
    is_bound = main is not None and (main.data_share or 0.0) >= BOUND
    most = max((one.weight for one in [*waits[:1], *loop]), default=1.0) if is_bound else 1.0
    waits += [*loop, *lines]
    order = {id(finding): -finding.weight for finding in [*waits, *of_run]}
    order |= {id(finding): -min(finding.weight, most) for finding in [*around, *notes, *of_machines]}
    return sorted([*waits, *around, *of_run, *notes, *of_machines], key=lambda finding: order[id(finding)])


def machine_findings(session: Session) -> list[Finding]:
    """Return shortages of cores, memory and storage on all machines, heaviest first.

    A quantity that was not measured yields no finding.
    """
    found = [
        replace(finding, text=f"{host.machine.host}: {finding.text}") if len(session.machines) > 1 else finding
        for host in hosts(session)
        for check in (core_findings, memory_findings, storage_findings)
        for finding in check(host)
    ]
    return sorted(found, key=lambda finding: -finding.weight)


def wait_findings(view: TrainerView) -> Iterator[Finding]:
    """Yield causes of the loop's wait. The weight is the wait's share of a step times the cause's share of the wait.

    Times are CPU times. A GPU that is still behind does not wait for all of them.
    """
    share = view.wait_share or 0.0
    each = f"of each {view.training.unit}{' as the CPU sees it' if view.has_gpu else ''}"
    for cause in by_category(view.causes):
        head = category(cause.name)
        if cause.share * share < WORTH_SAYING or head in SAID_ELSEWHERE:
            continue
        is_stage = head not in WAIT_ORDER
        by = ", by the stages of the batches that were waited for" if is_stage else ""
        yield Finding(
            code=f"stage-{head}" if is_stage else head.replace(" ", "-"),
            weight=cause.share * share,
            text=f"{percent(cause.share)} of the wait for data is {named(cause.name)}.",
            evidence=f"{duration(cause.us)} {each}{by}",
            advice=source_advice(view, cause.name),
        )
    for part in view.split.parts if view.split is not None else []:
        if part.share * share >= WORTH_SAYING and part.name in OF_WAIT:
            yield TRAINING[OF_WAIT[part.name]].found(part.share * share, share=part.share, us=part.us, each=each)
