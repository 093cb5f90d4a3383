"""The run as it is, before other arguments are tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.doctor.attach import DOCTOR_FAILED
from headrace.doctor.causes.case import Case, case_of
from headrace.doctor.causes.remedy import interval
from headrace.doctor.causes.transfers import LEFT, pinned
from headrace.doctor.causes.workers import bytes_a_worker
from headrace.doctor.edits.loader_call import LoaderCall, argument, loader_call
from headrace.doctor.edits.script_source import ScriptSources
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.measure.steps import whole_fact
from headrace.doctor.measure.view import TrainerView, main_view
from headrace.doctor.prove.baseline import FEWEST_STEPS, BaselinePace
from headrace.doctor.session.model import Session
from headrace.doctor.simulate.prediction import Prediction
from headrace.doctor.simulate.work import FeedSetup
from headrace.doctor.tune.candidates import Arguments, TuneBounds, arguments
from headrace.errors import TuneError

NOT_TUNED = "Nothing was tuned: "


@dataclass(frozen=True)
class Looked:
    """A run whose loader can be tuned."""

    case: Case
    pace: BaselinePace

    @property
    def session(self) -> Session:
        return self.case.session

    @cached_property
    def present(self) -> Arguments:
        facts = self.case.facts
        return arguments(
            whole_fact(facts, "num_workers") or 0,
            whole_fact(facts, "prefetch_factor"),
            pin_memory=facts.get("pin_memory") is True,
            persistent_workers=facts.get("persistent_workers") is True,
        )

    @cached_property
    def call(self) -> LoaderCall | None:
        """In the user's files, where one is certain to have made the loader."""
        return loader_call(self.case.parsed, self.case.facts)

    @property
    def steps(self) -> list[float]:
        """Durations of the measured steps, in microseconds."""
        return [float(step.duration) for step in self.case.view.training.steps]

    @property
    def floor_us(self) -> float | None:
        """A step that waits for no data, less what the measured one may be off: no loader makes it shorter."""
        recorded = self.case.recorded
        if recorded is None:
            return None
        mean, low, _ = interval(self.steps)
        return recorded.floor_us() * low / mean

    @property
    def other_loaders(self) -> int:
        """DataLoaders that the trainer used beside this one."""
        return len({loader.number for loader in self.case.view.trainer.loaders} - set(self.case.loaders))

    @property
    def ranks(self) -> int:
        return max(1, len({trainer.rank for trainer in self.session.trainers}))

    def bounds(self) -> TuneBounds:
        """What the loader and the machine allow."""
        case, host = self.case, self.case.host
        ranks_here = 1 if host is None else max(1, len(host.trainers))
        free = None if host is None else min(host.known("memory_available_bytes"), default=None)
        return TuneBounds(
            present=self.present,
            cores=case.cores,
            most_workers=None if case.recorded is None else case.recorded.most_workers(),
            worker_bytes=_worker_bytes(case),
            free_bytes=None if free is None else free / ranks_here,
            batch_bytes=case.batch_bytes,
            queue_bytes=_shared_bytes(case, ranks_here),
            has_gpu=case.has_gpu,
            passes=case.making.passes,
            is_made_anew=len(case.loaders) > 1,
            is_iterable=case.facts.get("iterable") is True,
            needs_workers=_needs_workers(self),
        )

    def predict(self, wanted: Arguments) -> Prediction | None:
        """Of the mean step with these arguments."""

        def change(setup: FeedSetup) -> FeedSetup:
            changed = replace(
                setup,
                workers=wanted.num_workers,
                prefetch=wanted.prefetch_factor or setup.prefetch,
                persistent=wanted.persistent_workers,
                pinned=setup.pinned and wanted.pin_memory,
            )
            newly_pinned = wanted.pin_memory and not self.present.pin_memory
            return pinned(self.case, LEFT.usual)(changed) if newly_pinned else changed

        return self.case.predict(change)


def look(session: Session, diagnosis: Diagnosis, sources: ScriptSources) -> Looked:
    """Raises TuneError, which says why, where there is no DataLoader to tune or too little was measured."""
    status = session.outcome.status
    if session.outcome.why in ("failed", "not found", "interrupted"):
        raise TuneError(f"{NOT_TUNED}{_ended(session)}", status=status or DOCTOR_FAILED)
    join = Join(session)
    view = main_view([TrainerView.of(session, trainer, join) for trainer in session.trainers])
    case = None if view is None else case_of(session, diagnosis, view, sources)
    pace = BaselinePace.of(session)
    has_threads = any("threads" in loader.facts for trainer in session.trainers for loader in trainer.loaders)
    reason = next(_reasons(view, case, pace, has_threads=has_threads), None)
    if reason is not None or case is None or pace is None:
        raise TuneError(f"{NOT_TUNED}{reason}", status=DOCTOR_FAILED)
    return Looked(case, pace)


def _ended(session: Session) -> str:
    outcome = session.outcome
    if outcome.why == "interrupted":
        return "the command was interrupted."
    if outcome.why == "not found":
        return f"the command could not be started: {' '.join(outcome.last_lines) or outcome.command[0]}"
    last = f" Its last line: {outcome.last_lines[-1]}" if outcome.last_lines else ""
    return f"the command failed with exit status {outcome.status}. Make it run by itself first.{last}"


def _reasons(
    view: TrainerView | None, case: Case | None, pace: BaselinePace | None, *, has_threads: bool
) -> Iterator[str]:
    """Give the reasons why this run cannot be tuned; none where it can. `has_threads`: a loader of it has threads."""
    if view is None or not view.training.steps:
        yield (
            "no training step was seen. It looks for optimizer steps in a process that imports torch; "
            "expected a command that trains."
        )
        return
    if view.training.unit != "step" or pace is None:
        yield "batches were iterated, and no optimizer stepped: expected a command that trains."
    steps = len(view.training.steps)
    if steps < FEWEST_STEPS:
        yield (
            f"the script ended after {steps} measured steps, and fewer than {FEWEST_STEPS} say too little: "
            "give it more epochs, or more data."
        )
    if has_threads:
        yield (
            "the loader is Headrace's own, which has threads in place of workers: it has no num_workers to find. "
            "headrace doctor says what its steps wait for."
        )
    if case is None or not case.making.batches or "num_workers" not in case.facts:
        yield (
            "its steps took no batch from a torch DataLoader. A loader of the script's own has no num_workers to find; "
            "headrace doctor says what its steps wait for."
        )
    elif case.recorded is None:
        yield "how its batches are made was not recorded, so that nothing can be predicted: headrace doctor says why."


def _worker_bytes(case: Case) -> float | None:
    """Of the workers there are; where there are none, as much as the trainer has for itself, which none is likely to
    exceed."""
    each = bytes_a_worker(case)
    if each is not None or case.host is None:
        return each
    own = case.host.figures(case.view.trainer.pid).get("private_bytes_peak")
    return None if own is None else float(own)


def _shared_bytes(case: Case, ranks_here: int) -> float | None:
    """Of /dev/shm, at the fullest reading."""
    total = None if case.host is None else case.host.fact("shm_bytes")
    if case.host is None or total is None:
        return None
    return (total - (case.host.peak("shm_used_bytes") or 0.0)) / ranks_here


def _needs_workers(looked: Looked) -> str:
    """DataLoader refuses a timeout without workers, and does not call worker_init_fn there."""
    if not looked.present.num_workers:
        return ""
    if looked.case.facts.get("timeout"):
        return "timeout"
    found = looked.call
    given = None if found is None else argument(found.call, "worker_init_fn")
    return "" if given is None else "worker_init_fn"
