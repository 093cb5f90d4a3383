"""Workers: too few, too many, or started anew in each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from headrace.doctor.causes.case import HIGH, LOW, MEDIUM, Case, Change, Proposal, tried, with_factor, would_not
from headrace.doctor.causes.remedy import Factor
from headrace.doctor.causes.stage_names import named
from headrace.doctor.causes.storage import waiting_share
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.edits.changes import WantedEdit
from headrace.doctor.measure.diagnosis import Finding, LoaderProduction
from headrace.doctor.measure.host import host_of
from headrace.doctor.measure.own_loaders import how_busy, keeps_up, what_to_change
from headrace.doctor.measure.production import fed_loaders
from headrace.doctor.measure.steps import COPY, WAIT
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.measure.waits import SHUT_DOWN, START_UP
from headrace.doctor.quantities import counted, number, percent, size, time
from headrace.doctor.session.model import LoaderFacts, Session
from headrace.doctor.simulate.prediction import Prediction
from headrace.doctor.simulate.work import FeedSetup

# -- from doctor/analyse/find_loaders.py: What is odd about a loader: its workers, its start, its slow samples.


FEW_WORKERS, LOADER_LIMIT, KEEPS_UP = "few-workers", "loader-limit", "loader-keeps-up"
SLOW = 5.0
"""How many times the median a sample takes to be called slow."""
BUSY = 0.9
"""Share of their time from which workers are called busy all the time."""
IDLE = 0.7
"""Share of the cores that may be used for more workers to be worth a thought."""
WORTH_PINNING = 0.02
"""Share of a step that copies to the device take before pinned memory is spoken of."""
WORTH_SAYING = 0.01
"""Share of a step that starting workers takes."""


def loader_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Of the loaders that steps wait for."""
    fed = fed_loaders(view.training)
    for making in view.makings:
        loader = view.loader(making.loader)
        if loader is None or making.loader not in fed:
            continue
        if making.threads:
            yield from _own(session, view, making)
            continue
        yield from _cores(session, view, making)
        yield from _busy(session, view, making)
        yield from _respawn(view, making, loader)
        yield from _pinning(session, view, loader)
        yield from _slow(view, making)


def _own(session: Session, view: TrainerView, making: LoaderProduction) -> Iterator[Finding]:
    """A loader of Headrace's: it keeps up, or one of its stages limits."""
    share = view.wait_share or 0.0
    took = f"{time(making.batch_us)} of its threads' time a batch, {making.cores:.1f} cores used"
    if share < BOUND:
        yield Finding(KEEPS_UP, 0.0, f"{keeps_up(view.training, making)}.", took, "Leave it as it is.")
        return
    change = what_to_change(view.training, making, _machine_cores(session, view))
    yield Finding(LOADER_LIMIT, share, f"{how_busy(view.training, making)}. {change}", took, change)


def _cores(session: Session, view: TrainerView, making: LoaderProduction) -> Iterator[Finding]:
    """Work, in cores, that would have to be done for the device never to wait, beside the cores that there are."""
    cores, demand = _machine_cores(session, view), demanded_cores(view, making)
    if not making.workers or cores is None or demand is None or demand <= cores or (view.wait_share or 0.0) < BOUND:
        return
    yield Finding(
        code="cores",
        weight=view.wait_share or 0.0,
        text=f"{demand_words(demand, cores)}: more workers "
        f"{'will not help' if making.cores > IDLE * cores else 'help up to that only'}.",
        evidence=f"{counted(making.workers, 'worker')} used {making.cores:.1f} cores, each busy {percent(making.busy)} "
        "of the time",
        advice="Look at the stages that use most CPU: only less work a sample, or more cores, makes it faster.",
    )


def _busy(session: Session, view: TrainerView, making: LoaderProduction) -> Iterator[Finding]:
    """Workers that never rest, and cores that do."""
    cores = _machine_cores(session, view)
    share = view.wait_share or 0.0
    if cores is None or not making.workers or making.busy < BUSY or share < BOUND:
        return
    if making.cores + _others_cores(session, view) > IDLE * cores:
        return
    rest = "never rests, and uses" if making.workers == 1 else "never rest, and use"
    yield Finding(
        code=FEW_WORKERS,
        weight=share,
        text=f"The loader's {counted(making.workers, 'worker')} {rest} {making.cores:.1f} of {cores:g} cores.",
        evidence=f"busy {percent(making.busy)} of the time, {time(making.batch_us)} a batch",
        advice="Look at num_workers: there are cores left for more.",
    )


def demand_words(demand: float, cores: float) -> str:
    """The same figure wherever a report has it."""
    work = f"{demand:.1f} cores' worth of work"
    return f"Making batches as fast as the trainer can take them is {work}, and there are {cores:g}"


def demanded_cores(view: TrainerView, making: LoaderProduction) -> float | None:
    """CPU time of the batches of a step, by the least time that the step takes however many workers there are. None
    where either is unknown."""
    samples = [part.cpu_us for part in making.stages if part.cpu_us is not None]
    wall = sum(part.wall_us for part in making.stages if part.cpu_us is not None)
    step_us = _unhindered_us(view)
    if view.budget is None or making.batches == 0 or step_us <= 0 or wall <= 0:
        return None
    return view.budget.micro_batches * making.batch_us * sum(samples) / wall / step_us


def _unhindered_us(view: TrainerView) -> float:
    """Of a step that never waits for a worker: its computing and the unpickling of its batches, by the same thread; or
    where another one unpickles and pins them meanwhile, the longer of the two. 0 without steps."""
    if view.budget is None:
        return 0.0
    computing = sum(part.us for part in view.budget.parts if part.name != WAIT)
    gets, rows, steps = view.trainer.gets, view.training.gets, len(view.training.steps)
    between = sum(gets.unpickle[row] or 0 for row in rows if gets.pin[row] is None)
    beside = sum((gets.unpickle[row] or 0) + (gets.pin[row] or 0) for row in rows if gets.pin[row] is not None)
    return max(computing + between / steps, beside / steps)


def _respawn(view: TrainerView, making: LoaderProduction, loader: LoaderFacts) -> Iterator[Finding]:
    if not making.respawned or view.budget is None:
        return
    waits = [wait for wait in view.waits if wait.loader == making.loader]
    spent = sum(wait.parts.get(START_UP, 0) for wait in waits)
    share = spent / view.training.total_us if view.training.total_us else 0.0
    first = "" if making.first_batch_us is None else f", its first batch {time(making.first_batch_us)}"
    yield Finding(
        code="respawn",
        weight=share if share >= WORTH_SAYING else 0.0,
        text=f"Each of {counted(making.passes, 'pass')} started {counted(making.workers, 'worker')} anew.",
        evidence=f"iter() took {time(making.start_up_us or 0)}{first}",
        advice="Look at persistent_workers=True, on a DataLoader that is made once: it keeps workers, and what they "
        "have opened, between epochs.",
    )


def _pinning(session: Session, view: TrainerView, loader: LoaderFacts) -> Iterator[Finding]:
    copy = view.share(COPY)
    if loader.facts.get("pin_memory") is not False or not _has_cuda(session, view) or copy < WORTH_PINNING:
        return
    yield Finding(
        code="pin-memory",
        weight=copy,
        text=f"Batches are copied to the GPU from memory that is not pinned, which takes {percent(copy)} of each step.",
        evidence=f"pin_memory=False in the loader of {_place(loader)}",
        advice="Look at pin_memory=True with .to(device, non_blocking=True): the copy runs beside the computation.",
    )


def _slow(view: TrainerView, making: LoaderProduction) -> Iterator[Finding]:
    slow = [sample for sample in making.slow if sample.times >= SLOW]
    if not slow:
        return
    worst = slow[0]
    yield Finding(
        code="slow-samples",
        weight=0.0,
        text=f"At least {counted(len(slow), 'sample')} took {SLOW:g} times as long as the median or longer; the worst "
        f"{worst.times:.0f} times, most of it in {named(worst.stage)}.",
        evidence=f"{worst.key}: {time(worst.wall_us)}",
        advice="Look at these samples: a batch takes as long as all of its samples, and later ones may wait for it.",
    )


def _has_cuda(session: Session, view: TrainerView) -> bool:
    """Whether the trainer used a GPU; torch with CUDA may well train without one."""
    process = next(
        (one for one in session.processes if (one.host, one.pid) == (view.trainer.host, view.trainer.pid)), None
    )
    facts = {} if process is None else process.facts
    return any(facts.get(kind, {}).get("device") is not None for kind in ("facts", "torch"))


def _machine_cores(session: Session, view: TrainerView) -> float | None:
    """That the trainer's processes may use."""
    cores = next((one.facts.get("cores") for one in session.machines if one.host == view.trainer.host), None)
    return float(cores) if isinstance(cores, (int, float)) else None


def _others_cores(session: Session, view: TrainerView) -> float:
    """That programs other than the command kept busy on average; 0 where it was not measured."""
    found = host_of(session, view.trainer)
    return 0.0 if found is None else found.mean("cpu_cores_other") or 0.0


def _place(loader: LoaderFacts) -> str:
    file, line = loader.facts.get("file"), loader.facts.get("line")
    return f"{file}:{line}" if file is not None else f"loader {loader.number}"


# -- from doctor/remedies/workers.py: More worker processes, or fewer.


WORKERS = "workers"
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
        yield would_not(WORKERS, "another number of workers", _why_not(case, known))
        return
    prediction, by_storage = _beside_storage(case, count, known[count])
    title = f"{counted(count, 'worker')} in place of {case.workers or 'none'}"
    yield tried(
        case,
        prediction,
        code=WORKERS,
        title=title,
        why=" ".join([_why(case, count), *by_storage]),
        confidence=LOW if by_storage else _confidence(case, prediction),
        change=_with(count),
        costs=_costs(case, count),
        wanted=WantedEdit({"num_workers": str(count)}),
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
    def change(setup: FeedSetup) -> FeedSetup:
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


# -- from doctor/remedies/persistent.py: Workers that live on between epochs, and another way to start them.


PERSISTENT, METHOD = "persistent-workers", "start-method"


def persistent_workers(case: Case) -> Iterator[Proposal]:
    title = "workers kept between epochs"
    why_not = _why_not_kept(case)
    if why_not:
        yield would_not(PERSISTENT, title, why_not)
        return

    def change(setup: FeedSetup) -> FeedSetup:
        return replace(setup, persistent=True)

    passes = counted(case.making.passes, "pass")
    yield tried(
        case,
        case.predict(change),
        code=PERSISTENT,
        title=title,
        why=f"Each of {passes} started {counted(case.workers, 'worker')} anew: {_start(case)} of each step.",
        confidence=HIGH,
        change=change,
        costs=_kept_bytes(case),
        wanted=WantedEdit({"persistent_workers": "True"}),
        hint="DataLoader(…, persistent_workers=True), made once and not in each epoch",
        changes=of_loaders(case, persistent_workers=True),
    )


def start_method(case: Case) -> Iterator[Proposal]:
    """Fork starts fastest, but where threads or CUDA run it may hang: so only forkserver is proposed."""
    title, method = "workers started by forkserver", case.facts.get("start_method")
    why_not = _why_not_method(case, method)
    if why_not:
        yield would_not(METHOD, title, why_not)
        return
    least = Factor(0.1, 0.55, 1.0, False, "What it saves was not timed: assumed is that a start takes 10 % to 100 %.")

    def change(left: float) -> object:
        return lambda setup: replace(setup, start_up=left)

    yield tried(
        case,
        with_factor(case, least, change),
        code=METHOD,
        title=title,
        why=f"Workers start by spawn, and import everything anew: {_start(case)} of each step. {least.basis}",
        confidence=LOW,
        change=lambda setup: replace(setup, start_up=least.usual),
        costs=["a server process that holds what it has preloaded"],
        wanted=WantedEdit({"multiprocessing_context": '"forkserver"'}),
        hint='multiprocessing.set_forkserver_preload(["torch"]), and '
        'DataLoader(…, multiprocessing_context="forkserver")',
        changes=of_loaders(case, multiprocessing_context="forkserver"),
    )


def _why_not_kept(case: Case) -> str:
    if not case.workers:
        return "There are no workers (num_workers=0)."
    if case.facts.get("persistent_workers") is True:
        return "Workers are kept already (persistent_workers=True)."
    if not case.making.respawned:
        start = case.making.start_up_us
        took = "" if start is None else f", and starting its workers took {time(start)}"
        return f"One pass over the data was seen{took}: whether another begins is not known."
    return ""


def _why_not_method(case: Case, method: object) -> str:
    if not case.workers:
        return "There are no workers (num_workers=0) to start."
    if method != "spawn":
        took = case.making.start_up_us
        return f"Workers start by {method}{'' if took is None else f', in {time(took)}'}: nothing starts them faster."
    if case.facts.get("persistent_workers") is True:
        return "Workers are started once (persistent_workers=True)."
    return ""


def _start(case: Case) -> str:
    spent = case.split_us(START_UP, SHUT_DOWN)
    return f"{time(spent)} ({percent(spent / case.step_us)})" if case.step_us else time(spent)


def _kept_bytes(case: Case) -> list[str]:
    """What the workers hold stays between epochs."""
    each = bytes_a_worker(case)
    return [] if each is None else [f"{size(case.workers * each)} of workers' memory stay in use between epochs"]
