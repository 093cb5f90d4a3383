"""More worker processes, or fewer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from headrace.doctor.causes.case import Case, Change
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.causes.workers import demand_words, demanded_cores
from headrace.doctor.edits.changes import Wanted
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.predict.setup import Setup
from headrace.doctor.quantities import counted, number, percent, size, time
from headrace.doctor.remedies.proposal import HIGH, LOW, MEDIUM, Proposal, tried, would_not
from headrace.doctor.remedies.storage import waiting_share

CODE = "workers"
EVEN = 0.02
"""Share of a step within which two numbers of workers count as equally good: then the smaller one is."""
OFTEN_WAITING = 0.2
"""Share of making a batch that is waiting for storage, from which more workers may find it used up."""
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def workers(case: Case) -> Iterator[Proposal]:
    tries = {count: case.predict(_with(count)) for count in _candidates(case)}
    known = {count: one for count, one in tries.items() if one is not None}
    if not known:
        return
    best = min(one.step_us for one in known.values())
    count = min(count for count, one in known.items() if one.step_us <= (1 + EVEN) * best)
    if not case.is_faster(known[count]) or count == case.workers:
        yield would_not(CODE, "another number of workers", _why_not(case, known))
        return
    prediction, by_storage = _beside_storage(case, count, known[count])
    title = f"{counted(count, 'worker')} in place of {case.workers or 'none'}"
    yield tried(
        case,
        prediction,
        code=CODE,
        title=title,
        why=" ".join([_why(case, count), *by_storage]),
        confidence=LOW if by_storage else _confidence(case, prediction),
        change=_with(count),
        costs=_costs(case, count),
        wanted=Wanted({"num_workers": str(count)}),
        hint=f"DataLoader(…, num_workers={count})",
        changes=of_loaders(case, num_workers=count),
    )


def _confidence(case: Case, prediction: Prediction) -> str:
    """Return `medium` where handing batches over had to be assumed, or where the interval reaches the present step."""
    return HIGH if case.workers and prediction.high_us < case.step_us else MEDIUM


def of_loaders(case: Case, **arguments: Any) -> dict[str, Any]:
    """What a proof injects: the same for all loaders that count as this one."""
    return {"loaders": {str(loader): arguments for loader in case.loaders}}


def _with(count: int) -> Change:
    def change(setup: Setup) -> Setup:
        return replace(setup, workers=count)

    return change


def _beside_storage(case: Case, count: int, free: Prediction) -> tuple[Prediction, list[str]]:
    """Whether storage gives more to more readers cannot be seen in a run with as many as there are: where reading is a
    good part of the work, the prediction lies between both, and says so."""
    now = case.recorded
    if now is None or count <= case.workers or waiting_share(case) < OFTEN_WAITING:
        return free, []
    rate = now.batches_a_step / now.observed_us * 1e6
    held = case.predict(lambda setup: replace(setup, workers=count, storage=rate))
    if held is None:
        return free, []
    step_us = (free.step_us * max(held.step_us, free.step_us)) ** 0.5
    high_us = max(free.high_us, held.high_us)
    between = Prediction(step_us, free.low_us, high_us, now.observed_us / step_us)
    waits = f"Reading waits for storage {percent(waiting_share(case))} of the time"
    return between, [f"{waits}; assumed is that storage gives more to more workers, or no more than now."]


def _candidates(case: Case) -> list[int]:
    """Return counts up to twice the cores, or to twice the workers there are; where batches compute, no more than
    cores, since the others that wait for storage need none."""
    cores = case.cores
    most = 2 * max(case.workers, 1 if cores is None else int(cores) + 1)
    enough = None if case.recorded is None else case.recorded.most_workers()
    if enough is not None:
        most = max(min(most, enough), 1)
    return [
        count
        for count in sorted({*STEPS, case.workers} - {0})
        if (count <= most or count == case.workers) and _fits(case, count)
    ]


def _fits(case: Case, count: int) -> bool:
    each, free = bytes_a_worker(case), _free_bytes(case)
    return count <= case.workers or each is None or free is None or (count - case.workers) * each <= free


def _why(case: Case, count: int) -> str:
    if not case.workers:
        handed = 0.0 if case.recorded is None else case.recorded.sharing_us()
        assumed = f" Handing them over is assumed to take {time(handed)} of a core a step."
        return f"Batches are made in the training thread: nothing is trained meanwhile.{assumed if handed else ''}"
    used = f"{counted(case.workers, 'worker')} used {case.making.cores:.1f}"
    of = f" of {number(case.cores)} cores" if case.cores is not None else " cores"
    if count < case.workers:
        cores = "cores" if case.cores is None else f"{number(case.cores)} cores"
        return f"{counted(case.workers, 'worker')} share {cores} with the training thread: fewer are less in its way."
    return (
        f"{used}{of}, busy {percent(case.making.busy)} of the time, and each step waits {time(case.wait_us)} for them."
    )


def _why_not(case: Case, known: dict[int, Prediction]) -> str:
    if case.wait_share < BOUND:
        return f"A step waits {percent(case.wait_share)} for data: that is all that workers could gain."
    demand, cores = demanded_cores(case.view, case.making), case.cores
    if demand is not None and cores is not None and demand > cores:
        return f"{demand_words(demand, cores)}: more workers cannot help."
    if (
        cores is not None
        and case.recorded is not None
        and 0 < case.recorded.floor_us() < case.recorded.lower_bound_us()
    ):
        return f"Making batches and training on them fill {counted(int(cores), 'core')}: more workers cannot help."
    best = min(known, key=lambda count: known[count].step_us)
    would = f"{counted(best, 'worker')} would give {time(known[best].step_us)} a step"
    return f"{would}, and the {case.workers} that there are give {time(case.step_us)}."


def _costs(case: Case, count: int) -> list[str]:
    each = bytes_a_worker(case)
    if count < case.workers or each is None:
        return []
    return [f"{size((count - case.workers) * each)} of memory, {size(each)} a worker"]


def bytes_a_worker(case: Case) -> float | None:
    """Memory that a worker has for itself, the mean of those there are."""
    if case.host is None:
        return None
    told = [case.host.figures(maker.pid).get("private_bytes_peak") for maker in case.host.worker_makers]
    known = [float(value) for value in told if value is not None]
    return fmean(known) if known else None


def _free_bytes(case: Case) -> float | None:
    return None if case.host is None else min(case.host.known("memory_available_bytes"), default=None)
