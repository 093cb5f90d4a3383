"""`headrace tune`: a baseline run, predictions for a grid of DataLoader arguments, and a few short runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from rich.console import Console

from headrace.errors import TuneError

from ..attach import DOCTOR_FAILED, undo_notes
from ..causes import COPY_LEFT, Case, bytes_a_worker, case_of, diagnose, free_bytes, interval, pinned
from ..edits import LoaderCall, ScriptSources, argument, files_here
from ..measure import Diagnosis, TrainerView, main_view_of, whole_fact
from ..prove import (
    DIGESTS,
    FEWEST_STEPS,
    STEPS,
    BaselinePace,
    ComparedSamples,
    ProveProgress,
    Trial,
    TrialRequest,
    are_equal,
    attempt,
    compare,
    patience_s,
)
from ..report import Outputs
from ..run import Examination, restore_unfinished, run_sampled, session_of
from ..session import session_folder
from ..session.model import Session
from ..simulate import FeedSetup, Prediction
from .candidates import Arguments, MeasuredArguments, TuneBounds, Why, arguments, chosen, grid, next_run
from .report import INTERRUPTED, NOTHING_LEFT, OUT_OF_RUNS, OUT_OF_TIME, TuneResult, not_paying, paste

NOT_TUNED = "Nothing was tuned: "
REPLAY_STEPS = 20
"""Steps of the replay window, and of that under load: a step without its loader bounds what can be gained."""
MOST_RUNS = 3
"""A quarter of the time of a whole grid on two cores, the start of each run included: benchmarks/tune.py."""
MOST_S = 120.0


@dataclass(frozen=True)
class TuneBaseline:
    """A measured run whose loader can be tuned."""

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
        """The call in the user's files that is certain to have made the loader."""
        return self.case.script.call

    @property
    def steps(self) -> list[float]:
        """Durations of the measured steps, in microseconds."""
        return [float(step.duration) for step in self.case.view.training.steps]

    @property
    def lower_bound_us(self) -> float:
        """Return a step that waits for no data, less the uncertainty of the measured one; 0 where it is not known."""
        recorded = self.case.recorded
        if recorded is None:
            return 0.0
        mean, low, _ = interval(self.steps)
        return recorded.unhindered_us() * low / mean

    def bounds(self) -> TuneBounds:
        """Return what the loader and the machine allow."""
        case, host = self.case, self.case.host
        ranks_here = 1 if host is None else max(1, len(host.trainers))
        memory, shared = free_bytes(case), None if host is None else host.free_shared_bytes
        return TuneBounds(
            present=self.present,
            cores=case.cores,
            most_workers=None if case.recorded is None else case.recorded.most_workers(),
            worker_bytes=self._worker_bytes(),
            free_bytes=None if memory is None else memory / ranks_here,
            batch_bytes=case.batch_bytes,
            queue_bytes=None if shared is None else shared / ranks_here,
            has_gpu=case.has_gpu,
            passes=case.making.passes,
            is_made_anew=len(case.loaders) > 1,
            is_iterable=case.facts.get("iterable") is True,
            needs_workers=self._needs_workers(),
        )

    def predict(self, wanted: Arguments) -> Prediction | None:
        """Predict the mean step with these arguments."""

        def change(setup: FeedSetup) -> FeedSetup:
            changed = replace(
                setup,
                workers=wanted.num_workers,
                prefetch=wanted.prefetch_factor or setup.prefetch,
                persistent=wanted.persistent_workers,
                pinned=setup.pinned and wanted.pin_memory,
            )
            newly_pinned = wanted.pin_memory and not self.present.pin_memory
            return pinned(self.case, COPY_LEFT.usual)(changed) if newly_pinned else changed

        return self.case.predict(change)

    def reach(self) -> Iterator[str]:
        """Say to what else the result applies, or does not."""
        ranks = len({trainer.rank for trainer in self.session.trainers})
        if ranks > 1:
            yield f"{ranks} ranks: each had the same arguments, and steps are those of the slowest"
        others = len({loader.number for loader in self.case.view.trainer.loaders} - set(self.case.loaders))
        if others:
            loaders = "another DataLoader" if others == 1 else f"{others} other DataLoaders"
            yield f"{loaders} of the script: left as it was; this is about the one that its training steps wait for"

    def _worker_bytes(self) -> float | None:
        """Return a worker's private memory; without workers the trainer's, which a worker is unlikely to exceed."""
        each, host = bytes_a_worker(self.case), self.case.host
        if each is not None or host is None:
            return each
        own = host.figures(self.case.view.trainer.pid).get("private_bytes_peak")
        return None if own is None else float(own)

    def _needs_workers(self) -> str:
        """Name the argument that rules out 0 workers: DataLoader refuses `timeout`, and ignores `worker_init_fn`."""
        if not self.present.num_workers:
            return ""
        if self.case.facts.get("timeout"):
            return "timeout"
        given = None if self.call is None else argument(self.call.call, "worker_init_fn")
        return "" if given is None else "worker_init_fn"


def baseline_of(session: Session, diagnosis: Diagnosis, sources: ScriptSources) -> TuneBaseline:
    """Return the baseline of a measured run.

    Raises:
        TuneError: There is no DataLoader to tune, or too little was measured; the text says which.
    """
    status = session.outcome.status
    if session.outcome.why in ("failed", "not found", "interrupted"):
        raise TuneError(f"{NOT_TUNED}{_ended(session)}", status=status or DOCTOR_FAILED)
    view = main_view_of(session)
    case = None if view is None else case_of(session, diagnosis, view, sources)
    pace = BaselinePace.of(session)
    reason = next(_reasons(session, view, case, pace), None)
    if reason is not None or case is None or pace is None:
        raise TuneError(f"{NOT_TUNED}{reason}", status=DOCTOR_FAILED)
    return TuneBaseline(case, pace)


def _ended(session: Session) -> str:
    outcome = session.outcome
    if outcome.why == "interrupted":
        return "the command was interrupted."
    if outcome.why == "not found":
        return f"the command could not be started: {' '.join(outcome.last_lines) or outcome.command[0]}"
    last = f" Its last line: {outcome.last_lines[-1]}" if outcome.last_lines else ""
    return f"the command failed with exit status {outcome.status}. Make it run by itself first.{last}"


def _reasons(session: Session, view: TrainerView | None, case: Case | None, pace: BaselinePace | None) -> Iterator[str]:
    """Give the reasons why this run cannot be tuned; none where it can."""
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
    if any("threads" in loader.facts for trainer in session.trainers for loader in trainer.loaders):
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


@dataclass
class Trials:
    """The runs of one tuning. `runs` grows meanwhile, so that an interruption loses none; the first is the baseline."""

    baseline: TuneBaseline
    predictions: Mapping[Arguments, Prediction]
    run: Callable[[TrialRequest], Trial]
    """Runs the command as requested."""
    progress: ProveProgress
    most_runs: int
    """The baseline included."""
    most_s: float
    """Counted from now on."""
    steps: int
    clock: Callable[[], float] = time.monotonic
    runs: list[MeasuredArguments] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Notes on files of the user's that the runs left changed."""

    def __post_init__(self) -> None:
        self.runs.append(MeasuredArguments(self.baseline.present, "measured", self.baseline.steps))
        self._before = ComparedSamples.of(self.baseline.session)
        self._is_repeatable: bool | None = None
        self._end = self.clock() + self.most_s

    def make(self) -> str:
        """Make all runs that are worth it, and return why there was no further one."""
        with self.progress:
            while (wanted := self._next()) is not None:
                ended = OUT_OF_RUNS if len(self.runs) >= self.most_runs else self._make(wanted)
                if ended:
                    return ended
        return NOTHING_LEFT

    def _next(self) -> Arguments | None:
        return next_run(self.predictions, self.runs, lower_bound_us=self.baseline.lower_bound_us)

    def _make(self, wanted: Arguments) -> str:
        """Make one run; return why there can be no further one, or nothing."""
        step_us = self.predictions[wanted].step_us
        pace, left_s = self.baseline.pace, self._end - self.clock()
        steps = measured_steps(self.steps, pace, left_s, step_us)
        if not steps:
            return OUT_OF_TIME
        expected_s = pace.seconds(steps + wanted.in_flight, step_us)
        changes = {"loaders": {str(number): wanted.changes() for number in self.baseline.case.loaders}}
        # Batches made ahead while the program came to its first step say nothing of the pace, and are left out.
        request = TrialRequest(changes, steps + wanted.in_flight, None, patience_s(expected_s, left_s))
        try:
            with self.progress.trying(str(wanted), expected_s=expected_s, left_s=left_s):
                trial = self.run(request)
        except KeyboardInterrupt:
            return INTERRUPTED
        if trial.put_back is not None:
            self.files += [text for _, text in undo_notes(trial.put_back) if text not in self.files]
        if trial.why == "interrupted":
            return INTERRUPTED
        self._take(wanted, trial)
        return ""

    def _take(self, wanted: Arguments, trial: Trial) -> None:
        if trial.why == "measured" and are_equal(self._before, trial.samples):
            self._is_repeatable = True
        self.runs.append(self._measured(wanted, trial))

    def _measured(self, wanted: Arguments, trial: Trial) -> MeasuredArguments:
        if trial.why != "measured":
            whys: dict[str, Why] = {"not applied": "not applied", "timed out": "timed out"}
            return MeasuredArguments(wanted, whys.get(trial.why, "broke"), (), trial.detail)
        if len(trial.steps) - wanted.in_flight < FEWEST_STEPS:
            return MeasuredArguments(wanted, "broke", (), "the script ended before its queue of batches was used up")
        if compare(self._before, trial.samples, self._is_repeatable) == "different":
            return MeasuredArguments(wanted, "different samples")
        steps = [float(step) for step in trial.steps][wanted.in_flight :]
        return MeasuredArguments(wanted, "measured", steps, others_cores=trial.others_cores)


def measured_steps(asked: int, pace: BaselinePace, left_s: float, step_us: float) -> int:
    """Return the steps of a run that fit into the time: whole epochs where one is shorter, 0 where too few fit."""
    each_s = min(step_us, pace.step_us) / 1e6
    steps = min(asked, int((left_s - pace.seconds(0, step_us)) / max(each_s, 1e-6)))
    epoch = pace.epoch_steps
    if epoch is not None and FEWEST_STEPS <= epoch <= steps:
        steps -= steps % epoch
    return steps if steps >= FEWEST_STEPS else 0


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Request of one tuning."""

    command: list[str]
    steps: int = STEPS
    """Measured in each run."""
    most_runs: int = MOST_RUNS
    """The baseline included."""
    most_s: float = MOST_S
    """Time of all runs together; the baseline goes to its steps all the same."""


def tune(asked: Tuning, outputs: Outputs) -> TuneResult:
    """Measure the command as it is, predict, run it with what may be faster, and return what to propose.

    The command's files and its code stay as they were: docs/doctor/hands-off.md.

    Raises:
        UsageError: Another doctor measures in this folder.
        TuneError: The command fails, or has no DataLoader to tune.
    """
    began = time.monotonic()
    restore_unfinished()
    with session_folder(steps=asked.steps, replay=REPLAY_STEPS, digests=DIGESTS) as folder:
        examination = Examination(command=asked.command, steps=asked.steps)
        ended, machines = run_sampled(examination, folder, outputs)
        session = session_of(examination, folder, ended, machines)
        baseline = baseline_of(session, diagnose(session), files_here())
        possible = grid(baseline.bounds())
        predictions = {one: made for one in possible.candidates if (made := baseline.predict(one)) is not None}
        trials = Trials(
            baseline=baseline,
            predictions=predictions,
            run=lambda request: attempt(asked.command, folder.settings, request),
            progress=ProveProgress(Console(stderr=True)),
            most_runs=asked.most_runs,
            most_s=asked.most_s - (time.monotonic() - began),
            steps=asked.steps,
        )
        trials.files += [] if ended.put_back is None else [text for _, text in undo_notes(ended.put_back)]
        why_ended = trials.make()
    if folder.is_kept:
        trials.files.append(f"left in {folder.path}: what could not be put back")
    choice = chosen(trials.runs) or trials.runs[0]
    advice = [*not_paying(choice.arguments, trials.runs, predictions), *possible.left_out, *baseline.reach()]
    return TuneResult(
        command=asked.command,
        present=baseline.present,
        choice=choice,
        runs=trials.runs,
        predictions=predictions,
        ended=why_ended,
        paste=paste(baseline.case, baseline.call, choice.arguments, baseline.present),
        notes=advice,
        files=trials.files,
        seconds=time.monotonic() - began,
    )
