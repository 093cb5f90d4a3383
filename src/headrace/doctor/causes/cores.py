"""Cores and memory of a machine: too few, held back by a limit, or used by other processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from headrace.doctor.causes.case import WORTH, Case, Change
from headrace.doctor.causes.finding_kinds import MACHINE
from headrace.doctor.causes.proposals import Proposal, RemedyKind
from headrace.doctor.causes.remedy import Factor
from headrace.doctor.edits import WantedEdit
from headrace.doctor.measure import (
    Finding,
    Host,
    TrainerView,
    at_hand_us,
    host_of,
    replayed_threads,
    spun_us,
)
from headrace.doctor.quantities import counted, duration, percent, size
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import Trainer
from headrace.doctor.simulate import SHARED, FeedSetup, StageChange

THREADS, SPINNING, WORKERS = "threads", "spinning-threads", "workers-cores"
CROWDED = {THREADS, WORKERS, SPINNING, "cpu-throttled"}
"""Codes of findings that report too few cores for the workers."""
POOLS = ("torch_threads", "omp_threads", "opencv_threads")
"""Names of the facts that hold a process's thread pool sizes."""
CONTENDED = 0.1
"""Reporting threshold: share of time that threads wait for a core."""
FULL = 0.85
"""Share of busy cores from which runnable work sometimes waits for a core."""
SPUN = 0.05
"""Reporting threshold: share of a step that spinning threads take."""
SHARED_WORK = 1.2
"""Mean number of busy threads in a step alone, from which threads share the step's work."""
TAKEN = 0.15
"""Reporting threshold: share of the cores that other processes use."""

MIB = 1 << 20
DOCKER_SHM_BYTES = 64 * MIB
"""Default size of /dev/shm in a Docker container."""
NEARLY_FULL = 0.8
SWAP_BYTES_PER_S = 1 * MIB
COPIED_BYTES = 64 * MIB
COPIED_SHARE = 0.01
"""Share of total memory. Copying is reported if it exceeds this and `COPIED_BYTES`."""


def core_findings(host: Host) -> Iterator[Finding]:
    """Yield shortages of a machine's cores."""
    for check in (throttled_cores, too_many_threads, too_many_workers, stolen_cores):
        if (found := check(host)) is not None:
            yield found


def too_many_threads(host: Host) -> Finding | None:
    """Compare the cores with the threads that libraries keep ready in all processes that work concurrently.

    Libraries with separate pools take turns within a process, so only the largest pool of each process counts.
    """
    each = worker_threads(host)
    # A trainer with a GPU counts as one thread, the one that launches kernels. Without a GPU, torch's pool counts.
    own = [
        1 if host.told(one.pid, "facts", "device") is not None else host.told(one.pid, "facts", "torch_threads") or 1
        for one in host.trainers
    ]
    cores = host.cores
    if cores is None or each is None or max([each, *own]) <= 1 or host.workers * each + sum(own) <= cores:
        return None
    waited = _own_waiting(host)
    if waited is not None and waited < CONTENDED:
        return None
    makeup = [f"{counted(host.workers, 'worker')} × {each}"] if host.workers else []
    makeup += [f"{counted(len(own), 'training process')} with {sum(own)}"]
    return MACHINE[THREADS].found(
        waited or 0.0,
        threads=host.workers * each + sum(own),
        cores=cores,
        makeup=" and ".join(makeup),
        waited=_waited_text(host),
    )


def with_spinning(session: Session, view: TrainerView, findings: Sequence[Finding]) -> list[Finding]:
    """Return the machine findings, with the spinning threads of a training process in place of the thread count.

    The thread count stays if workers have thread pools: those are too many threads in any case.
    """
    host = host_of(session, view.trainer)
    found = None if host is None else spinning_threads(host, view)
    if host is None or found is None:
        return list(findings)
    is_trainers_alone = (worker_threads(host) or 1) <= 1
    return [found, *(one for one in findings if not (is_trainers_alone and one.code == THREADS))]


def spinning_threads(host: Host, view: TrainerView) -> Finding | None:
    """Find threads of a training process that spin while they wait for each other or for the next step.

    Spinning does harm if no core is free: it takes cores from workers. A thread that shares its core with a worker also
    delays all other threads.
    """
    pid, busy, bound_us = view.trainer.pid, host.mean("cpu_cores_busy"), at_hand_us(view)
    is_full = busy is None or busy >= FULL * (host.cores or math.inf)
    in_threads = not host.workers and any(one.threads for one in view.batch_production)
    if view.budget is None or not is_full or host.pool(pid) <= 1 or host.wait_policy(pid) is not None:
        return None
    if not host.workers and not in_threads:
        return None
    step_us = view.budget.mean_us
    own_us = step_us * (1 - (view.wait_share or 0.0))
    # A Loader's threads compute in the same process, so CPU time used during a wait includes theirs.
    spun = 0.0 if in_threads else spun_us(view.training) / step_us
    slowed = 0.0 if bound_us is None else (own_us - bound_us) / step_us
    if not _share_work(view.trainer) or spun + max(slowed, 0.0) < SPUN:
        return None
    makers = "the Loader's threads" if in_threads else "workers"
    spinning = f"for {percent(spun)} of each step while it waits for data"
    if slowed > spun:
        alongside = f"a step takes {duration(own_us)} alongside {makers}, and {duration(bound_us)} without them"
        spinning = f"while they wait for each other: without data waits {alongside}"
    used = (
        f"; besides the training thread they used {duration(spun_us(view.training))} of CPU time a step in such waits"
    )
    figures = {"spinning": spinning, "pool": host.pool(pid), "used": "" if in_threads else used}
    return MACHINE[SPINNING].found(min(spun + max(slowed, 0.0), 1.0), **figures)


def _share_work(trainer: Trainer) -> bool:
    """Return True if threads share the work of a step alone, or if this was not measured."""
    threads = replayed_threads(trainer)
    return threads is None or threads >= SHARED_WORK


def too_many_workers(host: Host) -> Finding | None:
    """Compare single-threaded workers with the cores: more than one per core helps only if they wait for storage."""
    cores, workers = host.cores, host.workers
    if cores is None or workers <= cores or too_many_threads(host):
        return None
    waited = _own_waiting(host)
    if waited is not None and waited < CONTENDED:
        return None
    online, said = host.fact("cores_online") or cores, _waited_text(host)
    return MACHINE[WORKERS].found(waited or 0.0, workers=workers, cores=cores, online=online, waited=said)


def throttled_cores(host: Host) -> Finding | None:
    held, used = host.mean("cpu_throttled_cores"), host.mean("cpu_cores_command")
    periods, quota = host.mean("cpu_throttled_periods_share"), host.fact("cores_quota")
    if held is None or not periods or periods < WORTH:
        return None
    weight = min(held / (held + used), 1.0) if used else periods
    return MACHINE["cpu-throttled"].found(weight, periods=periods, quota=quota, held=held)


def stolen_cores(host: Host) -> Finding | None:
    cores, stolen = host.cores, host.mean("cpu_cores_stolen")
    if cores is None or stolen is None or stolen < WORTH * cores:
        return None
    return MACHINE["cpu-stolen"].found(stolen / cores, stolen=stolen, cores=cores, share=stolen / cores)


def threads(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose one thread per worker if there are more threads than cores."""
    host = case.host
    found = None if host is None else too_many_threads(host)
    if host is None or case.cores is None or found is None:
        return None
    pool = worker_threads(host) if host.worker_makers else None
    if pool is not None and pool <= 1:
        return None
    waited = host.waited_share() or 0.0
    basis = "The prediction assumes that half of that waiting goes; it may be all of it, or none."
    left = Factor(max(0.0, 1 - waited), 1 - waited / 2, 1.0, False, basis)
    if case.recorded is not None and case.recorded.setup.worker_threads > 1:  # then CPU time is known
        basis = (
            "One thread takes the CPU time of all of them: the prediction assumes that up to 45 % of that went into "
            "switching between them."
        )
        left = Factor(0.55, 0.78, 1.0, False, basis)
    return kind.leaving(
        case,
        left,
        _one_thread,
        why=f"{found.text} {found.evidence}",
        wanted=WantedEdit(one_thread=True),
    )


def _one_thread(left: float) -> Change:
    """Return the change that scales the CPU time of all worker stages without an earlier change."""

    def change(setup: FeedSetup) -> FeedSetup:
        computing = dict.fromkeys(SHARED, StageChange(cpu=left))
        return replace(setup, worker_threads=1.0, stages={**computing, **setup.stages})

    return change


def worker_threads(host: Host) -> int | None:
    """Return the median over workers of the largest pool; 0 without workers, when the trainer makes the batches."""
    pools = [[host.told(maker.pid, "facts", name) for name in POOLS] for maker in host.worker_makers]
    told = [max(known) for each in pools if (known := [one for one in each if isinstance(one, int)])]
    return int(median(told)) if told else 0 if not host.workers else None


def _waited(host: Host) -> float | None:
    """Return the share of time that work waited for a core: per process if known, else of the cgroup or machine."""
    waited = host.waited_share()
    return waited if waited is not None else host.mean("pressure_cpu_some_share")


def _own_waiting(host: Host) -> float | None:
    """Return the waiting share that other processes did not cause, as far as their usage is known."""
    waited, busy, other = _waited(host), host.mean("cpu_cores_busy"), host.mean("cpu_cores_other")
    if waited is None or not busy or other is None:
        return waited
    return waited * max(1 - other / busy, 0.0)


def _waited_text(host: Host) -> str:
    waited = _waited(host)
    if waited is None:
        return "how long they waited for a core was not measured."
    return f"work that was ready to run waited for a core {percent(waited)} of the time."


def memory_findings(host: Host) -> Iterator[Finding]:
    """Yield shortages of a machine's memory."""
    kills, limit = host.fact("oom_kills"), host.fact("memory_limit_bytes")
    if kills:
        where = f"In a control group of {size(limit)}" if limit is not None else "On this machine"
        yield MACHINE["oom-kill"].found(killed=kills, where=where, held=host.peak("command_pss_bytes"))
    stalled = host.mean("pressure_memory_some_share") or 0.0
    moved = sum(host.mean(f"swap_{way}_bytes_per_s") or 0.0 for way in ("in", "out"))
    if moved >= SWAP_BYTES_PER_S:
        in_use = host.peak("swap_used_bytes")
        yield MACHINE["swapping"].found(stalled, moved=moved, used=in_use, free=host.least_free_bytes)
    yield from _copied(host)
    yield from _shared_memory(host)


def _copied(host: Host) -> Iterator[Finding]:
    """Find workers that write to memory inherited from their parent, which Python does by counting references."""
    makers = host.worker_makers
    copied, shared = host.summed(makers, "cow_bytes"), host.summed(makers, "shared_bytes_first")
    most = host.fact("memory_limit_bytes") or host.fact("memory_bytes")
    if copied is None or shared is None or most is None or copied < max(COPIED_BYTES, COPIED_SHARE * most):
        return
    share = shared / most
    yield MACHINE["copy-on-write"].found(copied=copied, workers=len(makers), shared=shared, most=most, share=share)


def _shared_memory(host: Host) -> Iterator[Finding]:
    """Find a small or full /dev/shm, where workers put batches. Without space, a worker dies with a bus error."""
    total, used = host.fact("shm_bytes"), host.peak("shm_used_bytes")
    is_full = total is not None and used is not None and used >= NEARLY_FULL * total
    if total is None or not host.workers or not (is_full or total <= DOCKER_SHM_BYTES):
        return
    state = "nearly full" if is_full else "small"
    yield MACHINE["shm"].found(state=state, used=used, total=total, workers=host.workers)
