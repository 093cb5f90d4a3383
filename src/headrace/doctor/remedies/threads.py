"""Fewer threads a process, where they are more than the cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from headrace.doctor.causes.case import Case
from headrace.doctor.causes.cores import too_many_threads
from headrace.doctor.edits.changes import Wanted
from headrace.doctor.measure.host import Host
from headrace.doctor.predict.setup import Setup, StageChange
from headrace.doctor.quantities import counted, number
from headrace.doctor.remedies.factor import Factor
from headrace.doctor.remedies.proposal import LOW, Proposal, tried, with_factor, would_not
from headrace.doctor.simulate.batch_work import SHARED

CODE = "threads"
LABELS = ("torch_threads", "omp_threads", "opencv_threads")
"""Facts of a process: the sizes of its pools."""


def threads(case: Case) -> Iterator[Proposal]:
    title = "one thread in each worker"
    if case.host is None or case.cores is None:
        return
    found = too_many_threads(case.host)
    if not found:
        yield would_not(CODE, title, _why_not(case))
        return
    pool = _pool(case.host)
    if pool is not None and pool <= 1:
        yield would_not(CODE, title, f"Workers have one thread each already; {_of_trainer(case)}.")
        return
    factor = _factor(case, case.host)

    def change(left: float) -> Any:
        return lambda setup: _with(setup, left)

    trainer = _trainer_threads(case)
    yield tried(
        case,
        with_factor(case, factor, change),
        code=CODE,
        title=title,
        why=f"{found[0].text} {found[0].evidence} {factor.basis}",
        confidence=LOW,
        change=change(factor.usual),
        wanted=Wanted(one_thread=True),
        hint="in the loader's worker_init_fn: torch.set_num_threads(1), cv2.setNumThreads(0); before the start: "
        "OMP_NUM_THREADS=1",
        changes={"threads": {"trainer": trainer, "worker": 1}},
    )


def _factor(case: Case, host: Host) -> Factor:
    """Of the workers' computing. Where threads were seen to share it its CPU time is known, and little of that goes."""
    if case.recorded is not None and case.recorded.setup.worker_threads > 1:
        basis = (
            "In one thread it takes the CPU time of all of them: assumed is that up to 45 % of that was their changes."
        )
        return Factor(0.55, 0.78, 1.0, False, basis)
    waited = host.waited_share() or 0.0
    basis = "Assumed is that half of that waiting goes; it may be all of it, or none."
    return Factor(max(0.0, 1 - waited), 1 - waited / 2, 1.0, False, basis)


def _with(setup: Setup, left: float) -> Setup:
    """Every stage of a worker, whatever has been changed of it."""
    computing = StageChange(cpu=left)
    return replace(setup, worker_threads=1.0, stages={**dict.fromkeys(SHARED, computing), **setup.stages})


def _pool(host: Host) -> int | None:
    """Threads of a worker's largest pool: the median worker's. None where none tells."""
    told = [host.told(maker.pid, "facts", label) for maker in host.worker_makers for label in LABELS]
    by_worker = [told[place : place + len(LABELS)] for place in range(0, len(told), len(LABELS))]
    pools = [max(known) for each in by_worker if (known := [one for one in each if isinstance(one, int)])]
    return int(median(pools)) if pools else None


def _trainer_threads(case: Case) -> int:
    """As many as now, and no more than there are cores: fewer may make the step itself longer."""
    told = case.host.told(case.view.trainer.pid, "facts", "torch_threads") if case.host is not None else None
    now = told if isinstance(told, int) else 1
    return max(1, min(now, int(case.cores or now)))


def _of_trainer(case: Case) -> str:
    return f"the training process computes with {counted(_trainer_threads(case), 'thread')}"


def _why_not(case: Case) -> str:
    made = f"{counted(case.workers, 'worker')} compute" if case.workers != 1 else "1 worker computes"
    return f"{made} {case.making.cores:.1f} cores' worth on {number(case.cores or 0)}: their threads are not too many."
