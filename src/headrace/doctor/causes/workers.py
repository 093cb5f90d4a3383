"""Number of workers: too few, too many, none, or new ones for each pass; and too few cores for their work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from headrace.doctor.causes.case import HIGH, LEAST_STEPS, LOW, MEDIUM, WORTH_SAYING, Case
from headrace.doctor.causes.cause import LEADS, Cause, Proposal, RemedyKind, Run, of_steps
from headrace.doctor.causes.cores import is_crowded
from headrace.doctor.causes.remedy import SETTING
from headrace.doctor.causes.stages import each_words, part_of_wait
from headrace.doctor.causes.storage import waiting_share
from headrace.doctor.measure import (
    BOUND,
    MADE_HERE,
    SHUT_DOWN,
    START_UP,
    WAIT,
    Finding,
    LoaderProduction,
    TrainerView,
    host_of,
)
from headrace.doctor.quantities import counted, duration, number, percent, size
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Prediction, setting

FEW_WORKERS, RESPAWN = "few-workers", "respawn"
PERSISTENT = "DataLoader(…, persistent_workers=True), made once and not in each epoch"
BUSY = 0.9
"""Share of time from which workers count as always busy."""
IDLE = 0.7
"""Maximum share of used cores at which more workers are worth a try."""
EVEN = 0.02
"""Share of a step within which two worker counts are equally good, so the smaller one wins."""
OFTEN_WAITING = 0.2
"""Share of making a batch that waits for storage, from which more workers may saturate the storage."""
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def worker_findings(run: Run) -> Iterator[Finding]:
    """Yield a shortage of cores for a device that never waits, and always busy workers beside idle cores."""
    view = run.view
    host = None if view is None else host_of(run.session, view.trainer)
    if view is None or host is None or host.cores is None or (view.wait_share or 0.0) < BOUND:
        return
    if len(view.training.steps) < LEAST_STEPS:
        return
    for making in view.awaited_production:
        if making.workers:
            yield from _too_few_cores(view, making, host.cores)
            others = host.mean("cpu_cores_other") or 0.0
            # Threads that libraries start may use CPU time that is not counted for workers: cores may only seem free.
            is_idle = making.cores + others <= IDLE * host.cores and not is_crowded(run)
            if making.busy >= BUSY and is_idle:
                yield _too_few_workers(view, making, host.cores)


def no_workers(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find batches that are made in the training thread."""
    found = part_of_wait(view, MADE_HERE)
    if found is not None:
        part, weight = found
        yield Finding(
            "no-workers",
            weight,
            "Batches are made in the training thread (num_workers=0), so nothing is trained meanwhile.",
            f"{duration(part.us)} {each_words(view)}",
            "Look at num_workers: with workers, batches are made while the device computes.",
        )


def _too_few_cores(view: TrainerView, making: LoaderProduction, cores: float) -> Iterator[Finding]:
    demand = view.demanded_cores(making)
    if demand is not None and demand > cores:
        yield Finding(
            "cores",
            view.wait_share or 0.0,
            f"{demand_text(demand, cores)}.",
            f"{counted(making.workers, 'worker')} used {making.cores:.1f} cores, each busy {percent(making.busy)} of "
            "the time",
            "Look at the stages that use most CPU: less work a sample, or more cores.",
        )


def _too_few_workers(view: TrainerView, making: LoaderProduction, cores: float) -> Finding:
    rest = "never rests, and uses" if making.workers == 1 else "never rest, and use"
    return Finding(
        FEW_WORKERS,
        view.wait_share or 0.0,
        f"The loader's {counted(making.workers, 'worker')} {rest} {making.cores:.1f} of {cores:g} cores.",
        f"busy {percent(making.busy)} of the time, {duration(making.batch_us)} a batch",
        "Look at num_workers: the other cores are idle.",
    )


def demand_text(demand: float, cores: float) -> str:
    """Compare required with available cores, in the same words everywhere in a report."""
    work = f"{demand:.1f} cores' worth of work"
    return f"Making batches as fast as the trainer can take them is {work}, and there are {cores:g}"


def workers(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose the smallest number of workers that is as good as the best."""
    tries = ((count, case.predict(setting(workers=count))) for count in _counts(case))
    known = {count: one for count, one in tries if one is not None}
    if not known:
        return None
    best = min(one.step_us for one in known.values())
    count = min(count for count, one in known.items() if one.step_us <= (1 + EVEN) * best)
    if not case.is_faster(known[count]) or count == case.workers:
        return kind.would_not(_why_not(case, known))
    prediction, by_storage = _with_storage(case, count, known[count])
    # Without workers, the time to hand over batches is an assumption, and an interval may include the current step.
    is_sure = case.workers and prediction.is_certain_gain
    each = bytes_a_worker(case)
    more = count - case.workers
    return replace(kind, title=f"{counted(count, 'worker')} in place of {case.workers or 'none'}").tried(
        case,
        setting(workers=count),
        prediction=prediction,
        why=" ".join([_why(case, count), *by_storage]),
        confidence=LOW if by_storage else HIGH if is_sure else MEDIUM,
        costs=[] if more < 0 or each is None else [f"{size(more * each)} of memory, {size(each)} a worker"],
        arguments={"num_workers": count},
    )


def _counts(case: Case) -> list[int]:
    """Return worker counts up to twice the cores or workers, as memory allows; CPU-bound ones up to the cores."""
    cores, each = case.cores, bytes_a_worker(case)
    free = None if case.host is None else min(case.host.known("memory_available_bytes"), default=None)
    most = 2 * max(case.workers, 1 if cores is None else int(cores) + 1)
    enough = None if case.recorded is None else case.recorded.most_workers()
    if enough is not None:
        most = max(min(most, enough), 1)
    room = math.inf if not each or free is None else free / each
    return sorted({*(one for one in STEPS if one <= most and one - case.workers <= max(room, 0)), case.workers} - {0})


def _with_storage(case: Case, count: int, free: Prediction) -> tuple[Prediction, list[str]]:
    """Widen a prediction for storage that may not scale, and return the sentence that explains it.

    A run shows storage throughput only for its own number of readers. If reading is a large part of the work, the
    prediction is between full scaling and none.
    """
    now, share = case.recorded, waiting_share(case, "read", "remote")
    if now is None or count <= case.workers or share < OFTEN_WAITING:
        return free, []
    at_most = now.batches_a_step / now.observed_us * 1e6
    held = case.predict(setting(workers=count, storage=at_most)) or free
    step_us = (free.step_us * max(held.step_us, free.step_us)) ** 0.5
    between = Prediction(step_us, free.low_us, max(free.high_us, held.high_us), now.observed_us / step_us)
    said = (
        f"Reading waits for storage {percent(share)} of the time; the prediction assumes that storage gives more "
        "to more workers"
    )
    return between, [f"{said}, or no more than now."]


def _why(case: Case, count: int) -> str:
    workers = counted(case.workers, "worker")
    if not case.workers:
        handed = 0.0 if case.recorded is None else case.recorded.sharing_us()
        assumed = f" Handing them over is assumed to take {duration(handed)} of a core a step." if handed else ""
        return f"Batches are made in the training thread: nothing is trained meanwhile.{assumed}"
    cores = "cores" if case.cores is None else f"{number(case.cores)} cores"
    if count < case.workers:
        return f"{workers} share {cores} with the training thread: fewer are less in its way."
    used = f"{workers} used {case.making.cores:.1f} {'' if case.cores is None else 'of '}{cores}"
    busy = percent(case.making.busy)
    return f"{used}, busy {busy} of the time, and each step waits {duration(case.part_us(WAIT))} for them."


def _why_not(case: Case, known: dict[int, Prediction]) -> str:
    if case.wait_share < BOUND:
        return f"A step waits {percent(case.wait_share)} for data: that is all that workers could gain."
    demand, cores = case.view.demanded_cores(case.making), case.cores
    if demand is not None and cores is not None and demand > cores:
        return f"{demand_text(demand, cores)}: more workers cannot help."
    best = min(known, key=lambda count: known[count].step_us)
    would = f"{counted(best, 'worker')} would give {duration(known[best].step_us)} a step"
    return f"{would}, and the {case.workers} that there are give {duration(case.step_us)}."


def bytes_a_worker(case: Case) -> float | None:
    """Return the mean private memory of a worker."""
    if case.host is None:
        return None
    told = [case.host.figures(maker.pid).get("private_bytes_peak") for maker in case.host.worker_makers]
    known = [float(value) for value in told if value is not None]
    return fmean(known) if known else None


CAUSE = Cause(
    findings={
        "cores": "Making batches as fast as the trainer takes them needs more cores than there are.",
        FEW_WORKERS: "Workers never rest, and 30 % of the cores or more are free.",
    },
    find=worker_findings,
    explains=("cores", FEW_WORKERS),
    remedies=[
        RemedyKind(
            "workers",
            "another number of workers",
            SETTING,
            workers,
            key="loaders",
            value='`{"0": {"num_workers": 4}}`, by the loader\'s number in the evidence; other arguments of the same '
            "loader beside it",
            adds_hands=True,
        )
    ],
)
NO_WORKERS = Cause(
    findings={"no-workers": "Batches are made in the training thread (num_workers=0)."},
    find=of_steps(no_workers),
    order=LEADS,
)


def restart_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    for making in view.awaited_production:
        if not making.respawned or view.budget is None:
            continue
        waits = [one for one in view.waits if one.loader == making.loader]
        spent = sum(wait.parts.get(part, 0) for part in (START_UP, SHUT_DOWN) for wait in waits)
        share = spent / view.training.total_us if view.training.total_us else 0.0
        yield Finding(
            RESPAWN,
            share if share >= WORTH_SAYING else 0.0,
            f"{_restarts(making)}.",
            f"iter() took {duration(making.start_up_us)}, its first batch {duration(making.first_batch_us)}",
            f"Write {PERSISTENT}: workers, and what they have opened, persist between epochs.",
        )


def persistent_workers(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to keep workers alive between epochs."""
    if not case.workers or case.facts.get("persistent_workers") is True or not case.making.respawned:
        return None
    each, spent = bytes_a_worker(case), case.split_us(START_UP, SHUT_DOWN)
    why = f"{_restarts(case.making)}: {duration(spent)} ({percent(case.step_share(spent))}) of each step."
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


def _restarts(making: LoaderProduction) -> str:
    return f"Each of {counted(making.passes, 'pass')} started {counted(making.workers, 'worker')} anew"


RESTARTS = Cause(
    findings={RESPAWN: "Each pass over the data started its workers anew."},
    find=of_steps(restart_findings),
    remedies=[
        RemedyKind(
            "persistent-workers",
            "workers that persist between epochs",
            SETTING,
            persistent_workers,
            hint=PERSISTENT,
            key="loaders",
            value='`{"0": {"persistent_workers": true}}`',
        )
    ],
)
