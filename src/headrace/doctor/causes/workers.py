"""Workers and their queue: too few, too many, restarted each epoch; and threads of Headrace's own loaders."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from headrace.doctor.causes.case import HIGH, LOW, MEDIUM, WORTH_SAYING, Case, setting
from headrace.doctor.causes.finding_kinds import Figures
from headrace.doctor.causes.proposals import Proposal, RemedyKind
from headrace.doctor.causes.remote_reads import store_words
from headrace.doctor.causes.storage import waiting_share
from headrace.doctor.causes.training_kinds import TRAINING
from headrace.doctor.causes.transfers import unpinned_copies
from headrace.doctor.measure import (
    BOUND,
    MAP,
    PYTHON,
    SHUT_DOWN,
    START_UP,
    STORE,
    TEXT,
    WAIT,
    Finding,
    LoaderProduction,
    TrainerView,
    feed_sums,
    host_of,
    own_name,
)
from headrace.doctor.quantities import counted, duration, number, percent, size
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Prediction

FEW_WORKERS = "few-workers"
BUSY = 0.9
"""Share of time from which workers count as always busy."""
IDLE = 0.7
"""Maximum share of used cores at which more workers are worth a try."""
EVEN = 0.02
"""Share of a step within which two worker counts are equally good, so the smaller one wins."""
OFTEN_WAITING = 0.2
"""Share of making a batch that waits for storage, from which more workers may saturate the storage."""
OWN_LIMITS = {
    MAP: (
        "{name} waits for map= in {map_workers:count map worker}",
        "Look at map_workers (now {map_workers}), or at augmentations that the core does itself.",
    ),
    TEXT: (
        "{name} waits for the tokenizer",
        "Look at a pack of tokens, or at cache=: the same text is tokenised in every epoch.",
    ),
    PYTHON: (
        "{name}'s {threads} only {busy:percent} of the time: Python holds {name} up",
        "Look at map_workers= for what map= and batch_map= do in Python, and at what else holds the GIL.",
    ),
    "read": (
        "",
        "Look at cache=, or at where the files lie: headrace stage copies them to a faster disk.",
    ),
    "probe": ("", "Look at headrace pack: the sizes of images are then known without opening each."),
}
"""Sentence and advice by the limit of a Headrace loader."""
LONGER = (2, 4, 8)
"""Queue lengths to try, as multiples of the current one."""
EVEN_QUEUE = 0.01
"""Share of a step within which a shorter queue counts as equally good."""
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def loader_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield problems of the loaders that steps wait for."""
    fed, host = view.training.fed, host_of(session, view.trainer)
    cores = None if host is None else host.cores
    others = 0.0 if host is None else host.mean("cpu_cores_other") or 0.0
    for making in view.batch_production:
        loader = view.loader(making.loader)
        if loader is None or making.loader not in fed:
            continue
        if making.threads:
            yield _own_loader(view, making, cores)
            continue
        if making.workers and cores is not None and (view.wait_share or 0.0) >= BOUND:
            yield from _against_cores(view, making, cores, others)
        yield from _started_anew(view, making)
        yield from unpinned_copies(session, view, loader)


def _against_cores(view: TrainerView, making: LoaderProduction, cores: float, others: float) -> Iterator[Finding]:
    """Find a shortage of cores for a device that never waits, and always busy workers alongside idle cores.

    `others` is the number of cores that other programs keep busy.
    """
    demand = view.demanded_cores(making)
    figures = {"workers": making.workers, "used": making.cores, "busy": making.busy}
    if demand is not None and demand > cores:
        helps = "will not help" if making.cores > IDLE * cores else "help up to that only"
        yield TRAINING["cores"].found(view.wait_share, demand=demand_text(demand, cores), helps=helps, **figures)
    if making.busy >= BUSY and making.cores + others <= IDLE * cores:
        rest = "never rests, and uses" if making.workers == 1 else "never rest, and use"
        yield TRAINING[FEW_WORKERS].found(view.wait_share, rest=rest, cores=cores, batch=making.batch_us, **figures)


def demand_text(demand: float, cores: float) -> str:
    """Compare required with available cores, in the same words everywhere in a report."""
    work = f"{demand:.1f} cores' worth of work"
    return f"Making batches as fast as the trainer can take them is {work}, and there are {cores:g}"


def _started_anew(view: TrainerView, making: LoaderProduction) -> Iterator[Finding]:
    if not making.respawned or view.budget is None:
        return
    spent = sum(
        wait.parts.get(part, 0) for part in (START_UP, SHUT_DOWN) for wait in view.waits if wait.loader == making.loader
    )
    share = spent / view.training.total_us if view.training.total_us else 0.0
    yield TRAINING["respawn"].found(
        share if share >= WORTH_SAYING else 0.0,
        passes=making.passes,
        workers=making.workers,
        start=making.start_up_us,
        first=making.first_batch_us,
    )


def _own_loader(view: TrainerView, making: LoaderProduction, cores: float | None) -> Finding:
    """Return the finding that the loader keeps up, or that names the stage that limits it."""
    share, sums = view.wait_share or 0.0, feed_sums(view.training).get(making.loader)
    took = f"{duration(making.batch_us)} of its threads' time a batch, {making.cores:.1f} cores used"
    name = own_name(next(one for one in view.trainer.loaders if one.number == making.loader))
    threads = f"{counted(making.workers, 'thread')} {'works' if making.workers == 1 else 'work'}"
    busy = f"{threads} {percent(making.busy)} of the time"
    if share < BOUND:
        return TRAINING["loader-keeps-up"].found(name=name, work=busy, took=took)
    if sums is not None and sums.limit == STORE:
        said, took, change = store_words(name, sums)
        return TRAINING["loader-limit"].found(share, said=said, took=took, change=change)
    limit, map_workers = ("", 0) if sums is None else (sums.limit, sums.map_workers)
    figures = {"name": name, "threads": threads, "busy": making.busy, "map_workers": map_workers}
    said, change = (Figures().vformat(one, (), figures) for one in OWN_LIMITS.get(limit, ("", "")))
    most = "" if not making.stages else f", {percent(making.stages[0].share)} of it {making.stages[0].category}"
    if not change and cores is not None and making.workers < int(cores):
        option = "num_workers" if sums is None else "threads"
        change = f"Look at {option}={int(cores)} (now {making.workers}): there are cores left for them."
    change = change or "Look at cache=, a smaller size of the files, or headrace pack: there is a thread for each core."
    return TRAINING["loader-limit"].found(share, said=said or f"{name}'s {busy}{most}", took=took, change=change)


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
    is_sure = case.workers and prediction.high_us < case.step_us
    each = bytes_a_worker(case)
    more = count - case.workers
    return kind.titled(f"{counted(count, 'worker')} in place of {case.workers or 'none'}").tried(
        case,
        setting(workers=count),
        prediction=prediction,
        why=" ".join([_why(case, count), *by_storage]),
        confidence=LOW if by_storage else HIGH if is_sure else MEDIUM,
        costs=[] if more < 0 or each is None else [f"{size(more * each)} of memory, {size(each)} a worker"],
        arguments={"num_workers": count},
    )


def _counts(case: Case) -> list[int]:
    """Return worker counts up to twice the cores or twice the current workers, as far as memory allows.

    If making batches is CPU-bound, the count is limited to the cores: only workers that wait for storage need none.
    """
    cores, each, free = case.cores, bytes_a_worker(case), case.free_bytes
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
    demand, cores, run = case.view.demanded_cores(case.making), case.cores, case.recorded
    if demand is not None and cores is not None and demand > cores:
        return f"{demand_text(demand, cores)}: more workers cannot help."
    if cores is not None and run is not None and 0 < run.unhindered_us() < run.lower_bound_us():
        return f"Making batches and training on them fill {counted(int(cores), 'core')}: more workers cannot help."
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


def persistent_workers(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to keep workers alive between epochs."""
    if not case.workers or case.facts.get("persistent_workers") is True or not case.making.respawned:
        return None
    each, passes = bytes_a_worker(case), counted(case.making.passes, "pass")
    why = f"Each of {passes} started {counted(case.workers, 'worker')} anew: {_start(case)} of each step."
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


def _start(case: Case) -> str:
    spent = case.split_us(START_UP, SHUT_DOWN)
    return f"{duration(spent)} ({percent(case.step_share(spent))})" if case.step_us else duration(spent)


def prefetch(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose a longer queue of batches ahead of the training thread."""
    if not case.workers:
        return None
    now = max(1, case.recorded.setup.prefetch if case.recorded is not None else 1)
    free = case.free_shared_bytes
    known = [] if case.batch_bytes is None else [case.batch_bytes * case.workers * now]
    """Bytes that doubling the current queue adds, if known."""
    fitting = [times for times in LONGER if free is None or all(one * (times - 1) <= free for one in known)]
    tries = {now * times: one for times in fitting if (one := case.predict(setting(prefetch=now * times))) is not None}
    if not tries:
        return None
    best = min(one.step_us for one in tries.values())
    factor = min(factor for factor, one in tries.items() if one.step_us <= (1 + EVEN_QUEUE) * best)
    return kind.titled(f"{factor} batches ahead for each worker in place of {now}").tried(
        case,
        setting(prefetch=factor),
        why=f"Single slow batches hold up the others: {counted(case.workers * now, 'batch')} ahead do not bridge them.",
        confidence=MEDIUM,
        prediction=tries[factor],
        costs=[f"{size(one * (factor / now - 1))} of shared memory for the batches that wait" for one in known],
        arguments={"prefetch_factor": factor},
    )
