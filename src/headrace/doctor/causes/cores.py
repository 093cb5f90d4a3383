"""Cores: too few for the threads and workers that run, held back, or used by others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from headrace.doctor.causes.case import LOW, Case, Proposal, tried, with_factor, would_not
from headrace.doctor.causes.remedy import Factor
from headrace.doctor.edits.changes import WantedEdit
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.measure.host import Host
from headrace.doctor.quantities import counted, number, percent
from headrace.doctor.session.model import BatchProducer
from headrace.doctor.simulate.batch_work import SHARED
from headrace.doctor.simulate.work import FeedSetup, StageChange

# -- from doctor/analyse/environment_cores.py: Findings about cores: too few for what runs, held back, or used by
# others.


THREADS, WORKERS = "threads", "workers-cores"
CROWDED = {THREADS, WORKERS, "cpu-throttled"}
"""Codes of the findings that there are too few cores for the workers that there are."""
CONTENDED = 0.1
"""Share of time that threads waited for a core, from which it is worth a word."""
FULL = 0.85
"""Share of the cores that is busy, from which work waits for a core now and then."""
HELD_BACK = 0.02
TAKEN = 0.15
"""Share of the cores that others use."""


def too_many_threads(host: Host) -> list[Finding]:
    """Threads that libraries keep ready to run, of all processes that work at once, against cores. Libraries with pools
    of their own take turns in a process, so the largest pool of each counts."""
    each = _worker_threads(host)
    own = [_trainer_threads(host, trainer.pid) for trainer in host.trainers]
    cores = host.cores
    if cores is None or each is None or max([each, *own]) <= 1 or host.workers * each + sum(own) <= cores:
        return []
    waited = _own_waiting(host)
    if waited is not None and waited < CONTENDED:
        return []
    threads = host.workers * each + sum(own)
    makeup = [f"{counted(host.workers, 'worker')} × {each}"] if host.workers else []
    makeup += [f"{counted(len(own), 'training process')} with {sum(own)}"]
    return [
        Finding(
            THREADS,
            waited or 0.0,
            f"{threads} threads want to run on {number(cores)} cores.",
            f"{' and '.join(makeup)} by what {_tellers(host)} say; " + _waited_text(host),
            f"Set {_limits(host)} in the workers (worker_init_fn), and start as many workers as there are cores.",
        )
    ]


def too_many_workers(host: Host) -> list[Finding]:
    """More workers than cores is right where they wait for storage, and harmful where they compute. Said of workers
    of one thread each; else their threads are what is too many."""
    cores, workers = host.cores, host.workers
    if cores is None or workers <= cores or too_many_threads(host):
        return []
    waited = _own_waiting(host)
    if waited is not None and waited < CONTENDED:
        return []
    quota = host.fact("cores_quota")
    why = f"a quota of {number(quota)}" if quota == cores else f"an affinity of {number(cores)}"
    return [
        Finding(
            WORKERS,
            waited or 0.0,
            f"{workers} workers share {number(cores)} cores.",
            f"The process may use {why} of {number(host.fact('cores_online') or cores)} cores; {_waited_text(host)}",
            "More workers than cores help only while they wait for storage: give the job more cores, or fewer workers.",
        )
    ]


def throttled_cores(host: Host) -> list[Finding]:
    held, used = host.mean("cpu_throttled_cores"), host.mean("cpu_cores_command")
    periods, quota = host.mean("cpu_throttled_periods_share"), host.fact("cores_quota")
    if held is None or not periods or periods < HELD_BACK:
        return []
    limit = f"{number(quota)} cores" if quota is not None else "some cores, set where this process cannot see it"
    return [
        Finding(
            "cpu-throttled",
            min(held / (held + used), 1.0) if used else periods,
            f"The control group's CPU quota held the processes back in {percent(periods)} of its periods.",
            f"A quota of {limit}; {number(held)} cores' worth of work stood still on average.",
            "Raise the CPU limit (docker --cpus, Kubernetes resources.limits.cpu), or use fewer workers and threads.",
        )
    ]


def other_processes(host: Host) -> list[Finding]:
    cores, busy, other = host.cores, host.mean("cpu_cores_busy"), host.mean("cpu_cores_other")
    command = host.mean("cpu_cores_command")
    if cores is None or busy is None or other is None or command is None:
        return []
    if busy < FULL * cores or other < TAKEN * cores:
        return []
    return [
        Finding(
            "cpu-others",
            (_waited(host) or 0.0) * min(other / busy, 1.0),
            f"Other processes use {number(other)} of {number(cores)} cores.",
            f"{percent(min(busy / cores, 1.0))} of the cores were busy; the command itself had {number(command)}.",
            "See with top what else runs here, and stop it, or give this job cores of its own.",
        )
    ]


def stolen_cores(host: Host) -> list[Finding]:
    cores, stolen = host.cores, host.mean("cpu_cores_stolen")
    if cores is None or stolen is None or stolen < HELD_BACK * cores:
        return []
    return [
        Finding(
            "cpu-stolen",
            stolen / cores,
            f"The hypervisor gave {number(stolen)} of {number(cores)} cores to other machines.",
            f"Steal time: {percent(stolen / cores)} of the cores' time.",
            "Take a machine with cores of its own; timings taken on this one vary with its neighbours.",
        )
    ]


def _worker_threads(host: Host) -> int | None:
    """Of a worker, the median; without workers 0, since the trainer makes the batches then."""
    told = [threads for maker in host.worker_makers if (threads := _pool(host, maker)) is not None]
    return int(median(told)) if told else 0 if not host.workers else None


def _pool(host: Host, maker: BatchProducer) -> int | None:
    pools = [host.told(maker.pid, "facts", name) for name in ("torch_threads", "omp_threads", "opencv_threads")]
    return max((threads for threads in pools if threads is not None), default=None)


def _tellers(host: Host) -> str:
    return "torch, OpenMP and OpenCV" if _calls_opencv(host) else "torch and OpenMP"


def _limits(host: Host) -> str:
    own = "torch.set_num_threads(1), OMP_NUM_THREADS=1 and cv2.setNumThreads(0)"
    return own if _calls_opencv(host) else "torch.set_num_threads(1) and OMP_NUM_THREADS=1"


def _calls_opencv(host: Host) -> bool:
    """Tell whether workers call OpenCV: one that imports it and calls none of it runs none of its threads."""
    return any(host.told(maker.pid, "facts", "opencv_threads") is not None for maker in host.worker_makers)


def _trainer_threads(host: Host, pid: int) -> int:
    """A trainer with a GPU has one thread that launches; one without computes with torch's pool."""
    if host.told(pid, "facts", "device") is not None:
        return 1
    return host.told(pid, "facts", "torch_threads") or 1


def _waited(host: Host) -> float | None:
    """Share of time that work waited for a core: the makers' own, else of the whole control group or machine."""
    waited = host.waited_share()
    return waited if waited is not None else host.mean("pressure_cpu_some_share")


def _own_waiting(host: Host) -> float | None:
    """The part of it that is not due to other processes, as far as it is known what they took."""
    waited, busy, other = _waited(host), host.mean("cpu_cores_busy"), host.mean("cpu_cores_other")
    if waited is None or not busy or other is None:
        return waited
    return waited * max(1 - other / busy, 0.0)


def _waited_text(host: Host) -> str:
    waited = _waited(host)
    if waited is None:
        return "how long they waited for a core was not measured."
    return f"work that was ready to run waited for a core {percent(waited)} of the time."


# -- from doctor/remedies/threads.py: Fewer threads a process, where they are more than the cores.


THREAD_POOLS = "threads"
LABELS = ("torch_threads", "omp_threads", "opencv_threads")
"""Facts of a process: the sizes of its pools."""


def threads(case: Case) -> Iterator[Proposal]:
    title = "one thread in each worker"
    if case.host is None or case.cores is None:
        return
    found = too_many_threads(case.host)
    if not found:
        yield would_not(THREAD_POOLS, title, _why_not(case))
        return
    pool = _limited_pool(case.host)
    if pool is not None and pool <= 1:
        yield would_not(THREAD_POOLS, title, f"Workers have one thread each already; {_of_trainer(case)}.")
        return
    factor = _factor(case, case.host)

    def change(left: float) -> Any:
        return lambda setup: _with(setup, left)

    trainer = _limited_trainer_threads(case)
    yield tried(
        case,
        with_factor(case, factor, change),
        code=THREAD_POOLS,
        title=title,
        why=f"{found[0].text} {found[0].evidence} {factor.basis}",
        confidence=LOW,
        change=change(factor.usual),
        wanted=WantedEdit(one_thread=True),
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


def _with(setup: FeedSetup, left: float) -> FeedSetup:
    """Every stage of a worker, whatever has been changed of it."""
    computing = StageChange(cpu=left)
    return replace(setup, worker_threads=1.0, stages={**dict.fromkeys(SHARED, computing), **setup.stages})


def _limited_pool(host: Host) -> int | None:
    """Threads of a worker's largest pool: the median worker's. None where none tells."""
    told = [host.told(maker.pid, "facts", label) for maker in host.worker_makers for label in LABELS]
    by_worker = [told[place : place + len(LABELS)] for place in range(0, len(told), len(LABELS))]
    pools = [max(known) for each in by_worker if (known := [one for one in each if isinstance(one, int)])]
    return int(median(pools)) if pools else None


def _limited_trainer_threads(case: Case) -> int:
    """As many as now, and no more than there are cores: fewer may make the step itself longer."""
    told = case.host.told(case.view.trainer.pid, "facts", "torch_threads") if case.host is not None else None
    now = told if isinstance(told, int) else 1
    return max(1, min(now, int(case.cores or now)))


def _of_trainer(case: Case) -> str:
    return f"the training process computes with {counted(_limited_trainer_threads(case), 'thread')}"


def _why_not(case: Case) -> str:
    made = f"{counted(case.workers, 'worker')} compute" if case.workers != 1 else "1 worker computes"
    return f"{made} {case.making.cores:.1f} cores' worth on {number(case.cores or 0)}: their threads are not too many."
