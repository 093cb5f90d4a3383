"""Diagnosis of a session: every finding, heaviest first, and the verdict that a report opens with."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from ..measure import (
    BOUND,
    OBSERVE,
    SOURCE,
    UNSEEN,
    WAIT,
    Diagnosis,
    Finding,
    Join,
    RanksTogether,
    RankView,
    TimePart,
    TrainerView,
    cost,
    host_of,
    hosts,
    is_late,
    main_view,
    rank_views,
    ranks_together,
    window,
)
from ..quantities import counted, duration, percent, times
from ..session.model import Session
from .cores import CROWDED, TAKEN, core_findings, with_spinning
from .epochs import EVALUATION, FIRST_STEPS, SLOWER_LOADER, epoch_findings
from .garbage import FULL_GC, garbage_findings
from .gpu import gpu_findings
from .library_loaders import shard_findings
from .loop_calls import PRINTS, READS, call_findings
from .loop_work import at_line, loop_findings, loop_verdict
from .memory import COPIED, OOM_KILL, memory_findings
from .prefetch import wait_findings
from .processes import (
    EXCEPTION,
    NOT_KNOWN,
    NOT_SEEN,
    failed_process,
    gone_first,
    hanging,
    lost_peer,
    note_findings,
    process_findings,
)
from .remedy import cached_step_us
from .remote_reads import AGAIN, BANDWIDTH, LATENCY, remote_findings
from .sample_functions import SAMPLE_FUNCTION, function_findings, in_short
from .sequences import padding_findings
from .stage_names import by_category, category, named, who
from .storage import FROM_DISK, storage_findings
from .uneven_ranks import DEVICE_PARTS, RANKS_APART, device_findings, rank_findings
from .workers import FEW_WORKERS, KEEPS_UP, LOADER_LIMIT, loader_findings

WORTH_NAMING = 0.1
"""Share of the wait from which a cause is named beside the first."""
FUNCTION = 0.15
"""Share of a step that goes away with a function, from which the verdict names it."""
OUT_OF_ORDER = "out-of-order"
BEHIND = CROWDED | {
    AGAIN,
    BANDWIDTH,
    "cores",
    "data-parallel",
    DEVICE_PARTS,
    EVALUATION,
    FEW_WORKERS,
    FIRST_STEPS,
    FULL_GC,
    LATENCY,
    LOADER_LIMIT,
    OUT_OF_ORDER,
    "padding",
    PRINTS,
    READS,
    FROM_DISK,
    "shapes-differ",
    SLOWER_LOADER,
}
"""Codes of findings that say why stages take as long as they do, or what a step loses besides waiting."""
BEYOND = 0.1
"""Share of a step that cached batches may save beyond the wait for data, before the report names the rest."""
DIFFER = 1.15
"""Ratio of the means of two runs of the same command, from which it is worth a word."""
MOST_WORDS = 300
"""Characters of the command's own last line."""


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
        batch_production=[making for view in views for making in view.batch_production],
        ranks=by_rank,
        findings=found,
        cost=cost(session, views, join),
        data_share=None if main is None else main.data_share,
    )


def _findings(
    session: Session, main: TrainerView | None, ranks: RanksTogether | None, by_rank: Sequence[RankView]
) -> list[Finding]:
    """Sort all findings by weight; those of equal weight stay as waits, loaders, ranks, processes, notes, machines.

    How a loader is set up, what was noted, and what a machine is short of, never comes before what the verdict calls
    the cause of the wait.
    """
    of_machines, notes = machine_findings(session), list(note_findings(session, main))
    of_run = [*([] if ranks is None else rank_findings(ranks, by_rank)), *process_findings(session)]
    waits: list[Finding] = []
    loop: list[Finding] = []
    functions: list[Finding] = []
    around: list[Finding] = []
    if main is None or main.budget is None:  # then what a machine is short of explains nothing but the command's end
        of_machines = [finding for finding in of_machines if finding.code == OOM_KILL]
    if main is not None:
        # What is read from disk concerns as much of a step as is waited for reading.
        read = sum(part.share for part in main.causes.parts if category(part.name) == "read") * (main.wait_share or 0.0)
        of_machines = [
            replace(one, weight=max(one.weight, read)) if one.code == FROM_DISK else one for one in of_machines
        ]
        of_machines = with_spinning(session, main, of_machines)
        waits = [*wait_findings(main), *epoch_findings(main)]
        loop = [*loop_findings(main), *call_findings(session, main)]
        functions = list(function_findings(session, main, by_rank))
        around = [
            *loader_findings(session, main),
            *shard_findings(main),
            *remote_findings(session, main),
            *padding_findings(main),
            *device_findings(session, main),
            *garbage_findings(session, main),
        ]
    if any(finding.code in CROWDED for finding in of_machines):
        # The CPU time of threads that libraries start is not known to be the workers', so cores may seem free.
        around = [finding for finding in around if finding.code != FEW_WORKERS]
    is_bound = main is not None and (main.data_share or 0.0) >= BOUND
    most = max((one.weight for one in [*waits[:1], *loop]), default=1.0) if is_bound else 1.0
    waits += [*loop, *functions]
    order = {id(finding): -finding.weight for finding in [*waits, *of_run]}
    order |= {id(finding): -min(finding.weight, most) for finding in [*around, *notes, *of_machines]}
    return sorted([*waits, *around, *of_run, *notes, *of_machines], key=lambda finding: order[id(finding)])


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


def verdict(session: Session, view: TrainerView | None, ranks: Sequence[RankView], findings: Sequence[Finding]) -> str:
    """Say how the command ended, where it did not end well; then what it waits for; then what stands behind that.

    `findings` come heaviest first.
    """
    said = [*_ending(session, view), *_gap(session, view), *_waiting(session, view)]
    functions = [in_short(one) for one in findings if one.code == SAMPLE_FUNCTION and one.weight >= FUNCTION]
    said += [*functions[:1], *_noise(session, view)]
    # What no figure can tell, since a library is newer than the probe.
    said += dict.fromkeys(note.text for note in session.notes if note.code in (NOT_KNOWN, NOT_SEEN))
    for rank in ranks:
        if is_late(rank, len(ranks)):  # all others wait for it
            peers = [other.peer_wait_us for other in ranks if other.peer_wait_us is not None and other is not rank]
            waiting = f"; the others wait {duration(fmean(peers))} of each step for a peer" if peers else ""
            said.append(f"Rank {rank.rank} is the last in {percent(rank.late)} of the steps{waiting}.")
    # The heaviest finding that no stage and no part of a step says. That batches are unequal comes last: whatever
    # disturbs the workers makes them so. Then what may end the run without costing time.
    heavy = [finding for finding in findings if finding.code in BEHIND and finding.weight >= BOUND]
    said += [finding.text for finding in sorted(heavy, key=lambda finding: finding.code == OUT_OF_ORDER)[:1]]
    said += [finding.text for finding in findings if finding.code in (COPIED, KEEPS_UP, RANKS_APART)]
    return " ".join(said)


def _ending(session: Session, view: TrainerView | None) -> Iterator[str]:
    yield from (f"{who(session, process)} hangs." for process, _ in hanging(session))
    outcome = session.outcome
    steps = 0 if view is None else view.training.seen
    after = f" after {counted(steps, view.training.unit)}" if view is not None and steps else ""
    if outcome.why == "not found":
        yield f"The command could not be started: {outcome.command[0] if outcome.command else 'nothing'} was not found."
    elif outcome.why == "interrupted":
        yield f"The run was interrupted{after}."
    elif outcome.status not in (None, 0) and outcome.why != "steps":
        yield f"The command failed with {status_words(outcome.status or 0)}{after}{_last_line(session)}"


def status_words(status: int) -> str:
    """Name an exit status as a shell has it: 128 + n for signal n."""
    try:
        return f"exit status {status} ({signal.Signals(status - 128).name})"
    except ValueError:
        return f"exit status {status}"


def _last_line(session: Session) -> str:
    """Return what ended the command: an exception of the script's own; else what was written last."""
    failed = failed_process(session)
    if failed is not None and lost_peer(failed) and (gone := gone_first(session)):
        return f": {gone}."
    lines = session.outcome.last_lines if failed is None else (failed.error or "").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    raised = [line for line in lines if EXCEPTION.match(line)]
    last = (raised or said or [""])[-1][:MOST_WORDS]
    return f": {last}{'' if last.endswith(('.', '!', '?')) else '.'}" if last else "."


def _waiting(session: Session, view: TrainerView | None) -> Iterator[str]:
    if view is None:
        yield _untrained(session)
        return
    unit, budget = view.training.unit, view.budget
    if budget is None:
        yield "No step was completed and no batch was received, so there is nothing to say about its data."
        return
    parts: Sequence[TimePart] = budget.device or budget.parts
    heaviest = max((part for part in parts if part.name != WAIT), key=lambda part: part.share, default=None)
    most = [] if heaviest is None else [f"The largest part of a {unit} is {heaviest.name} ({percent(heaviest.share)})."]
    if view.wait_share is None:
        steps = counted(budget.steps, f"measured {budget.unit}")
        unasked = (
            f"No DataLoader was iterated in {steps}, and no other source of batches was found: a wait for them, if "
            "any, "
            "is in what is called not seen, or in other."
        )
        if view.trainer.passes:
            unasked = (
                "A DataLoader was iterated, but the training thread received none of its batches in "
                f"{steps}: its wait for data was not seen."
            )
        before = view.share(UNSEEN)
        where = at_line(view)
        model = [f"{percent(before)} of each {unit} passes before the model is called{where}."] if where else most
        yield from (unasked, *model)
        return
    waiting = f"the {'GPU' if view.has_gpu else 'training loop'}{'' if view.only else f' of rank {view.trainer.rank}'}"
    share = percent(view.wait_share)
    work = loop_verdict(view)
    if view.wait_share < BOUND and work:
        yield f"{waiting[0].upper()}{waiting[1:]} waits {share} of each {unit} for data."
    elif view.wait_share < BOUND:
        yield from (f"Not input-bound: {waiting} waits {share} of each {unit} for data.", *most)
    else:
        causes = cause_words(view)
        why = f"; {causes}" if causes else ""
        yield f"{waiting[0].upper()}{waiting[1:]} waits {share} of each {unit} for data{why}."
    if work:
        yield work
    measured = len(view.training.steps)
    said = {note.code for note in session.notes}
    if "enough" in said:
        yield f"{counted(measured, unit).capitalize()} were enough to say so; --steps measures more."
    elif "long-enough" in said:
        yield f"Measured over {counted(measured, unit)}, which took long; --steps measures more."
    elif window(view.trainer, OBSERVE) is not None and measured < session.steps:
        yield f"{counted(measured, unit).capitalize()} gave a mean that is close enough; --steps measures more."
    elif session.mode == "measure" and measured < session.steps:  # its figures bear less
        yield f"Measured over {counted(measured, unit)} of the {session.steps} asked for: the run ended first."


def _gap(session: Session, view: TrainerView | None) -> Iterator[str]:
    """Compare the observed step with one whose batches are at hand."""
    bound_us = None if view is None else cached_step_us(session, view)
    if view is None or view.budget is None or bound_us is None or (view.data_share or 0.0) < BOUND:
        return
    unit, step_us = view.training.unit, view.budget.mean_us
    most, unhindered = step_us / max(bound_us, 1.0), 1 - (view.data_share or 0.0)
    gap = f"up to {times(most)} as fast" if most > 1 else "no loader makes it shorter"
    if unhindered - bound_us / step_us > BEYOND:
        gap += f", {times(1 / unhindered)} without the wait, the rest with the cores that workers use now"
    yield f"A {unit} takes {duration(step_us)}, {duration(bound_us)} with batches at hand: {gap}."


def _noise(session: Session, view: TrainerView | None) -> Iterator[str]:
    """Say by how much figures of another run may differ: what else used the cores, and the run without changes again.

    What others used is said from the share at which it makes a step longer or shorter by itself.
    """
    if view is None or view.budget is None or view.wait_share is None:
        return
    noise, host = [], host_of(session, view.trainer)
    others = None if host is None else host.mean("cpu_cores_other")
    if host is not None and host.cores is not None and others is not None and others >= TAKEN * host.cores:
        noise.append(f"other programs used {percent(min(others / host.cores, 1.0))} of the machine")
    if session.control is not None and session.control.steps:
        both = sorted([view.budget.mean_us, fmean(session.control.steps)])
        if both[1] >= DIFFER * both[0]:
            noise.append(f"two runs without changes differ by {times(both[1] / both[0])}")
    if noise:
        yield f"Figures are noisy: {'; '.join(noise)}."


def _untrained(session: Session) -> str:
    if session.outcome.why == "not found":
        return "Nothing was run."
    seen = "no Python process that could be observed imported torch"
    if any("torch" in process.facts for process in session.processes):
        seen = "torch was imported, but no DataLoader was iterated and no optimizer stepped"
    unreached = f"; {counted(len(session.unreached), 'process')} could not be observed" if session.unreached else ""
    return f"No training was seen: {seen}{unreached}."


def cause_words(view: TrainerView) -> str:
    """Return `58 % of that is archive lookup (tarfile) in 2 workers, 21 % decode (PIL)`."""
    parts = by_category(view.causes)
    if not parts:
        return ""
    first, *others = parts
    rest = [f"{percent(part.share)} {named(part.name)}" for part in others[:2] if part.share >= WORTH_NAMING]
    return ", ".join([f"{percent(first.share)} of that is {named(first.name)}{_where(view, first.name)}", *rest])


def _where(view: TrainerView, cause: str) -> str:
    """Say where a stage runs; a part of the wait itself has its place in its name."""
    is_stage = ":" in cause or any(category(part.name) == cause and ":" in part.name for part in view.causes.parts)
    if not is_stage or category(cause) == SOURCE:
        return ""
    first = next(iter(view.batch_production), None)
    if first is not None and first.workers:
        return f" in {counted(first.workers, first.makers)}"
    return " in the training process, which has no workers"
