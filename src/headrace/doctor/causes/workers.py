"""What is odd about a loader: its workers, its start, its slow samples."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.analyse.parts import COPY, WAIT
from headrace.doctor.causes.stage_names import named
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.measure.diagnosis import Finding, Making
from headrace.doctor.measure.host import host_of
from headrace.doctor.measure.own_loaders import how_busy, keeps_up, what_to_change
from headrace.doctor.measure.production import fed_loaders
from headrace.doctor.measure.view import View
from headrace.doctor.measure.waits import START_UP
from headrace.doctor.quantities import counted, percent, time
from headrace.doctor.session.model import Loader, Session

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


def loader_findings(session: Session, view: View) -> Iterator[Finding]:
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


def _own(session: Session, view: View, making: Making) -> Iterator[Finding]:
    """A loader of Headrace's: it keeps up, or one of its stages limits."""
    share = view.wait_share or 0.0
    took = f"{time(making.batch_us)} of its threads' time a batch, {making.cores:.1f} cores used"
    if share < BOUND:
        yield Finding(KEEPS_UP, 0.0, f"{keeps_up(view.training, making)}.", took, "Leave it as it is.")
        return
    change = what_to_change(view.training, making, _machine_cores(session, view))
    yield Finding(LOADER_LIMIT, share, f"{how_busy(view.training, making)}. {change}", took, change)


def _cores(session: Session, view: View, making: Making) -> Iterator[Finding]:
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


def _busy(session: Session, view: View, making: Making) -> Iterator[Finding]:
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


def demanded_cores(view: View, making: Making) -> float | None:
    """CPU time of the batches of a step, by the least time that the step takes however many workers there are. None
    where either is unknown."""
    samples = [part.cpu_us for part in making.stages if part.cpu_us is not None]
    wall = sum(part.wall_us for part in making.stages if part.cpu_us is not None)
    step_us = _unhindered_us(view)
    if view.budget is None or making.batches == 0 or step_us <= 0 or wall <= 0:
        return None
    return view.budget.micro_batches * making.batch_us * sum(samples) / wall / step_us


def _unhindered_us(view: View) -> float:
    """Of a step that never waits for a worker: its computing and the unpickling of its batches, by the same thread; or
    where another one unpickles and pins them meanwhile, the longer of the two. 0 without steps."""
    if view.budget is None:
        return 0.0
    computing = sum(part.us for part in view.budget.parts if part.name != WAIT)
    gets, rows, steps = view.trainer.gets, view.training.gets, len(view.training.steps)
    between = sum(gets.unpickle[row] or 0 for row in rows if gets.pin[row] is None)
    beside = sum((gets.unpickle[row] or 0) + (gets.pin[row] or 0) for row in rows if gets.pin[row] is not None)
    return max(computing + between / steps, beside / steps)


def _respawn(view: View, making: Making, loader: Loader) -> Iterator[Finding]:
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


def _pinning(session: Session, view: View, loader: Loader) -> Iterator[Finding]:
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


def _slow(view: View, making: Making) -> Iterator[Finding]:
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


def _has_cuda(session: Session, view: View) -> bool:
    """Whether the trainer used a GPU; torch with CUDA may well train without one."""
    process = next(
        (one for one in session.processes if (one.host, one.pid) == (view.trainer.host, view.trainer.pid)), None
    )
    facts = {} if process is None else process.facts
    return any(facts.get(kind, {}).get("device") is not None for kind in ("facts", "torch"))


def _machine_cores(session: Session, view: View) -> float | None:
    """That the trainer's processes may use."""
    cores = next((one.facts.get("cores") for one in session.machines if one.host == view.trainer.host), None)
    return float(cores) if isinstance(cores, (int, float)) else None


def _others_cores(session: Session, view: View) -> float:
    """That programs other than the command kept busy on average; 0 where it was not measured."""
    found = host_of(session, view.trainer)
    return 0.0 if found is None else found.mean("cpu_cores_other") or 0.0


def _place(loader: Loader) -> str:
    file, line = loader.facts.get("file"), loader.facts.get("line")
    return f"{file}:{line}" if file is not None else f"loader {loader.number}"
