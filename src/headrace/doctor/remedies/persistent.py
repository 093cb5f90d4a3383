"""Workers that live on between epochs, and another way to start them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.causes.case import Case
from headrace.doctor.edits.changes import Wanted
from headrace.doctor.measure.waits import SHUT_DOWN, START_UP
from headrace.doctor.predict.setup import Setup
from headrace.doctor.quantities import counted, percent, size, time
from headrace.doctor.remedies.factor import Factor
from headrace.doctor.remedies.proposal import HIGH, LOW, Proposal, tried, with_factor, would_not
from headrace.doctor.remedies.workers import bytes_a_worker, of_loaders

PERSISTENT, METHOD = "persistent-workers", "start-method"


def persistent_workers(case: Case) -> Iterator[Proposal]:
    title = "workers kept between epochs"
    why_not = _why_not_kept(case)
    if why_not:
        yield would_not(PERSISTENT, title, why_not)
        return

    def change(setup: Setup) -> Setup:
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
        wanted=Wanted({"persistent_workers": "True"}),
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
        wanted=Wanted({"multiprocessing_context": '"forkserver"'}),
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
