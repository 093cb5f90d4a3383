"""More worker processes, or fewer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from ..analyse.verdict import BOUND
from ..analyse.words import counted, number, percent, size, time
from ..predict.prediction import Prediction
from ..predict.setup import Setup
from .case import Case, Change
from .edits.changes import Wanted
from .proposal import HIGH, Proposal, tried, would_not

CODE = "workers"
EVEN = 0.02
"""Share of a step within which two numbers of workers count as equally good: then the smaller one is."""
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
    costs = _costs(case, count)
    title = f"{counted(count, 'worker')} in place of {case.workers or 'none'}"
    yield tried(
        case,
        known[count],
        code=CODE,
        title=title,
        why=_why(case, count),
        confidence=HIGH,
        change=_with(count),
        costs=costs,
        wanted=Wanted({"num_workers": str(count)}),
        hint=f"DataLoader(…, num_workers={count})",
        changes=of_loaders(case, num_workers=count),
    )


def of_loaders(case: Case, **arguments: Any) -> dict[str, Any]:
    """What a proof injects: the same for all loaders that count as this one."""
    return {"loaders": {str(loader): arguments for loader in case.loaders}}


def _with(count: int) -> Change:
    def change(setup: Setup) -> Setup:
        return replace(setup, workers=count)

    return change


def _candidates(case: Case) -> list[int]:
    """Up to twice the cores, since those that wait for storage need none; or to twice the workers there are."""
    cores = case.cores
    most = 2 * max(case.workers, 1 if cores is None else int(cores) + 1)
    return [count for count in sorted({*STEPS, case.workers} - {0}) if count <= most and _fits(case, count)]


def _fits(case: Case, count: int) -> bool:
    each, free = bytes_a_worker(case), _free_bytes(case)
    return count <= case.workers or each is None or free is None or (count - case.workers) * each <= free


def _why(case: Case, count: int) -> str:
    if not case.workers:
        return "Batches are made in the training thread: nothing is trained meanwhile."
    used = f"{counted(case.workers, 'worker')} used {case.making.cores:.1f}"
    of = f" of {number(case.cores)} cores" if case.cores is not None else " cores"
    if count < case.workers:
        return f"{used}{of}, and take them from each other and from the training thread."
    return (
        f"{used}{of}, busy {percent(case.making.busy)} of the time, and each step waits {time(case.wait_us)} for them."
    )


def _why_not(case: Case, known: dict[int, Prediction]) -> str:
    if case.wait_share < BOUND:
        return f"A step waits {percent(case.wait_share)} for data: that is all that workers could gain."
    demand, cores = _demand(case), case.cores
    if demand is not None and cores is not None and demand > cores:
        return f"{number(demand)} cores of work, {number(cores)} cores: more workers cannot help."
    best = min(known, key=lambda count: known[count].step_us)
    would = f"{counted(best, 'worker')} would give {time(known[best].step_us)} a step"
    return f"{would}, and the {case.workers} that there are give {time(case.step_us)}."


def _demand(case: Case) -> float | None:
    """Cores that would be busy if no step waited for data."""
    if case.recorded is None or case.recorded.floor_us() <= 0:
        return None
    return case.recorded.cores_of_work_at(case.recorded.floor_us())


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
