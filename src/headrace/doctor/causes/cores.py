"""Cores of a machine: too few for the threads, held back by a limit, or used by others."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from headrace.doctor.causes.case import WORTH
from headrace.doctor.causes.cause import MACHINE, Cause, Run, of_machines
from headrace.doctor.measure import Finding, Host
from headrace.doctor.quantities import counted, number, percent

THREADS, WORKERS = "threads", "workers-cores"
CROWDED = {THREADS, WORKERS, "cpu-throttled"}
"""Codes of findings that report too few cores for the workers."""
POOLS = ("torch_threads", "omp_threads", "opencv_threads")
"""Names of the facts that hold a process's thread pool sizes."""
CONTENDED = 0.1
"""Reporting threshold: share of time that threads wait for a core."""
TAKEN = 0.15
"""Reporting threshold: share of the cores that other processes use."""


def _shortages(host: Host) -> Iterator[Finding]:
    for check in (throttled_cores, crowded_cores, stolen_cores):
        if (found := check(host)) is not None:
            yield found


core_findings = of_machines(_shortages)


def is_crowded(run: Run) -> bool:
    """Return True if a machine has too few cores for the threads of workers and training processes."""
    return any(one.code in CROWDED for one in core_findings(run))


def crowded_cores(host: Host) -> Finding | None:
    """Compare the cores with the threads that libraries keep ready in all processes that work concurrently.

    Libraries with separate pools take turns within a process, so only the largest pool of each process counts. More
    than one worker per core helps only if they wait for storage.
    """
    cores, workers, each, waited = host.cores, host.workers, worker_threads(host), _own_waiting(host)
    if cores is None or (waited is not None and waited < CONTENDED):
        return None
    # A trainer with a GPU counts as one thread, the one that launches kernels. Without a GPU, torch's pool counts.
    own = [
        1 if host.told(one.pid, "facts", "device") is not None else host.told(one.pid, "facts", "torch_threads") or 1
        for one in host.trainers
    ]
    # Workers with one thread each are no pools that a setting could shrink.
    has_pools = each is not None and (each > 1 or sum(own) > max(cores, len(own)))
    if each is not None and has_pools and workers * each + sum(own) > cores:
        makeup = [f"{counted(workers, 'worker')} × {each}"] if workers else []
        makeup += [f"{counted(len(own), 'training process')} with {sum(own)}"]
        return Finding(
            THREADS,
            waited or 0.0,
            f"{workers * each + sum(own)} threads want to run on {number(cores)} cores.",
            f"{' and '.join(makeup)} by what torch, OpenMP and OpenCV say; {_waited_text(host)}",
            "Set torch.set_num_threads(1), OMP_NUM_THREADS=1, and cv2.setNumThreads(0) where OpenCV is used, in the "
            "workers (worker_init_fn), and start as many workers as there are cores.",
        )
    if workers <= cores:
        return None
    return Finding(
        WORKERS,
        waited or 0.0,
        f"{workers} workers share {number(cores)} cores.",
        f"The process may use {number(cores)} of {number(host.fact('cores_online') or cores)} cores; "
        f"{_waited_text(host)}",
        "More workers than cores help only while they wait for storage: give the job more cores, or fewer workers.",
    )


def throttled_cores(host: Host) -> Finding | None:
    held, used = host.mean("cpu_throttled_cores"), host.mean("cpu_cores_command")
    periods, quota = host.mean("cpu_throttled_periods_share"), host.fact("cores_quota")
    if held is None or not periods or periods < WORTH:
        return None
    weight = min(held / (held + used), 1.0) if used else periods
    return Finding(
        "cpu-throttled",
        weight,
        f"The control group's CPU quota held the processes back in {percent(periods)} of its periods.",
        f"A quota of {number(quota)} cores; {number(held)} cores' worth of work stood still on average.",
        "Raise the CPU limit (docker --cpus, Kubernetes resources.limits.cpu), or use fewer workers and threads.",
    )


def stolen_cores(host: Host) -> Finding | None:
    cores, stolen = host.cores, host.mean("cpu_cores_stolen")
    if cores is None or stolen is None or stolen < WORTH * cores:
        return None
    return Finding(
        "cpu-stolen",
        stolen / cores,
        f"The hypervisor gave {number(stolen)} of {number(cores)} cores to other machines.",
        f"Steal time: {percent(stolen / cores)} of the cores' time.",
        "Use a machine with dedicated cores; timings on this one vary with its neighbours.",
    )


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


CAUSE = Cause(
    findings={
        "cpu-throttled": "The processes were throttled in 2 % of the CPU quota's periods or more.",
        THREADS: "The libraries' threads of workers and trainers exceed the cores, and work waited for a core (10 %), "
        "or that was not measured. A worker counts with its largest pool; with a GPU a trainer counts 1.",
        WORKERS: "There are more single-threaded workers than cores, and work waited for a core (10 %).",
        "cpu-stolen": "The hypervisor gave 2 % of the cores or more to other machines.",
    },
    find=core_findings,
    order=MACHINE,
    explains=CROWDED,
)
