"""`headrace tune`: a baseline run, predictions for a grid of DataLoader arguments, and a few short runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.errors import TuneError

from ..attach import DOCTOR_FAILED, undo_notes
from ..causes import COPY_LEFT, Case, bytes_a_worker, case_of, diagnose, interval, pinned
from ..edits import ScriptSources, argument, files_here
from ..measure import Diagnosis, TrainerView, main_view_of, whole_fact
from ..prove import DIGESTS, FEWEST_STEPS, STEPS, BaselinePace, Trial, TrialRunner
from ..report import Outputs
from ..run import Examination, restore_unfinished, run_sampled, session_of
from ..session import session_folder
from ..session.model import Session
from ..simulate import FeedSetup, Prediction
from .candidates import Arguments, MeasuredArguments, TuneBounds, Why, arguments, chosen, grid, left_out, next_run
from .report import INTERRUPTED, NOTHING_LEFT, OUT_OF_RUNS, OUT_OF_TIME, TuneResult, not_paying, paste

NOT_TUNED = "Nothing was tuned: "
REPLAY_STEPS = 20
"""Steps of the replay window, and of that under load: a step without its loader bounds what can be gained."""
MOST_RUNS = 3
"""A quarter of the time of a whole grid on two cores, the start of each run included: benchmarks/tune.py."""
MOST_S = 120.0
UNMEASURED: Mapping[str, Why] = {"not applied": "not applied", "timed out": "timed out"}
"""Ends of runs without steps that are named as they are; all others broke."""


@dataclass(frozen=True)
class TuneBaseline:
    """A measured run whose loader can be tuned."""

    case: Case
    pace: BaselinePace

    @cached_property
    def present(self) -> Arguments:
        """Arguments that the script gives its loader."""
        facts = self.case.facts
        return arguments(
            whole_fact(facts, "num_workers") or 0,
            whole_fact(facts, "prefetch_factor"),
            pin_memory=facts.get("pin_memory") is True,
            persistent_workers=facts.get("persistent_workers") is True,
        )

    @property
    def steps(self) -> list[int]:
        """Durations of the measured steps, in microseconds."""
        return self.case.view.training.durations

    @property
    def lower_bound_us(self) -> float:
        """Return a step that waits for no data, less the uncertainty of the measured one; 0 where it is not known."""
        recorded = self.case.recorded
        mean, low, _ = interval(self.steps)
        return 0.0 if recorded is None else recorded.unhindered_us() * low / mean

    def bounds(self) -> TuneBounds:
        """Return what the loader and the machine allow."""
        case, host, facts = self.case, self.case.host, self.case.facts
        ranks_here = 1 if host is None else max(1, len(host.trainers))
        worker_bytes = bytes_a_worker(case)
        if worker_bytes is None and host is not None:  # the trainer's, which a worker is unlikely to exceed
            worker_bytes = host.figures(case.view.trainer.pid).get("private_bytes_peak")
        needs_workers = ""
        if self.present.num_workers:  # without any DataLoader refuses `timeout`, and ignores `worker_init_fn`
            call = case.script.call
            has_init = call is not None and argument(call.call, "worker_init_fn") is not None
            needs_workers = "timeout" if facts.get("timeout") else "worker_init_fn" if has_init else ""
        return TuneBounds(
            present=self.present,
            cores=case.cores,
            most_workers=None if case.recorded is None else case.recorded.most_workers(),
            worker_bytes=worker_bytes,
            free_bytes=None if case.free_bytes is None else case.free_bytes / ranks_here,
            batch_bytes=case.batch_bytes,
            queue_bytes=None if case.free_shared_bytes is None else case.free_shared_bytes / ranks_here,
            has_gpu=case.has_gpu,
            passes=case.making.passes,
            is_made_anew=len(case.loaders) > 1,
            is_iterable=facts.get("iterable") is True,
            needs_workers=needs_workers,
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
        ranks = len({trainer.rank for trainer in self.case.session.trainers})
        if ranks > 1:
            yield f"{ranks} ranks: each had the same arguments, and steps are those of the slowest"
        others = len({loader.number for loader in self.case.view.trainer.loaders} - set(self.case.loaders))
        if others:
            loaders = "another DataLoader" if others == 1 else f"{others} other DataLoaders"
            yield f"{loaders} of the script: left as it was; this is about the one that its training steps wait for"


def baseline_of(session: Session, diagnosis: Diagnosis, sources: ScriptSources) -> TuneBaseline:
    """Return the baseline of a measured run.

    Raises:
        TuneError: There is no DataLoader to tune, or too little was measured; the text says which.
    """
    outcome = session.outcome
    if outcome.why in ("failed", "not found", "interrupted"):
        last = f" Its last line: {outcome.last_lines[-1]}" if outcome.last_lines else ""
        why = f"the command failed with exit status {outcome.status}. Make it run by itself first.{last}"
        if outcome.why == "interrupted":
            why = "the command was interrupted."
        elif outcome.why == "not found":
            why = f"the command could not be started: {' '.join(outcome.last_lines) or outcome.command[0]}"
        raise TuneError(f"{NOT_TUNED}{why}", status=outcome.status or DOCTOR_FAILED)
    view = main_view_of(session)
    case = None if view is None else case_of(session, diagnosis, view, sources)
    pace = BaselinePace.of(session)
    reason = next(_reasons(session, view, case, pace), None)
    if reason is not None or case is None or pace is None:
        raise TuneError(f"{NOT_TUNED}{reason}", status=DOCTOR_FAILED)
    return TuneBaseline(case, pace)


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
        yield "no production of a batch was recorded, so nothing can be predicted: headrace doctor says why."


@dataclass
class TuneTrials:
    """The runs of one tuning. `runs` grows meanwhile, so that an interruption loses none; the first is the baseline."""

    baseline: TuneBaseline
    predictions: Mapping[Arguments, Prediction]
    runner: TrialRunner
    most_runs: int
    """The baseline included."""
    steps: int
    runs: list[MeasuredArguments] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runs.append(MeasuredArguments(self.baseline.present, "measured", self.baseline.steps))

    def make(self) -> str:
        """Make all runs that are worth it, and return why there was no further one."""
        with self.runner.progress:
            lower_bound_us = self.baseline.lower_bound_us
            while (wanted := next_run(self.predictions, self.runs, lower_bound_us=lower_bound_us)) is not None:
                ended = OUT_OF_RUNS if len(self.runs) >= self.most_runs else self._make(wanted)
                if ended:
                    return ended
        return NOTHING_LEFT

    def _make(self, wanted: Arguments) -> str:
        """Make one run; return why there can be no further one, or nothing."""
        pace, step_us = self.baseline.pace, self.predictions[wanted].step_us
        steps = measured_steps(self.steps, pace, self.runner.left_s, step_us)
        if not steps:
            return OUT_OF_TIME
        # Batches made ahead while the program came to its first step say nothing of the pace, and are left out.
        steps += wanted.in_flight
        changes = {"loaders": {str(number): wanted.changes() for number in self.baseline.case.loaders}}
        trial = self.runner.run_once(str(wanted), changes, steps, None, pace.seconds(steps, step_us))
        if trial.why == "interrupted":
            return INTERRUPTED
        self._take(wanted, trial)
        return ""

    def _take(self, wanted: Arguments, trial: Trial) -> None:
        why = UNMEASURED.get(trial.why, "broke")
        detail, steps = trial.detail, [float(step) for step in trial.steps][wanted.in_flight :]
        if trial.why == "measured":
            if self.runner.has_same_samples(trial):
                self.runner.is_repeatable = True
            if len(steps) < FEWEST_STEPS:
                detail, steps = "the script ended before its queue of batches was used up", []
            elif self.runner.compared(trial) == "different":
                why, detail, steps = "different samples", "", []
            else:
                why, detail = "measured", ""
        self.runs.append(MeasuredArguments(wanted, why, steps, detail, trial.others_cores if steps else None))


def measured_steps(asked: int, pace: BaselinePace, left_s: float, step_us: float) -> int:
    """Return the steps of a run that fit into the time: whole epochs where one is shorter, 0 where too few fit."""
    steps, epoch = pace.steps_within(left_s, step_us, most=asked), pace.epoch_steps
    return steps - steps % epoch if epoch is not None and FEWEST_STEPS <= epoch <= steps else steps


def tune(
    command: list[str], outputs: Outputs, *, steps: int = STEPS, most_runs: int = MOST_RUNS, most_s: float = MOST_S
) -> TuneResult:
    """Measure the command as it is, predict, run it with what may be faster, and return what to propose.

    The command's files and its code stay as they were: docs/doctor/attach.md.

    Args:
        command: The command that trains.
        outputs: Where the run's output goes meanwhile.
        steps: Measured in each run.
        most_runs: The baseline included.
        most_s: Time of all runs together; the baseline goes to its steps all the same.

    Raises:
        UsageError: Another doctor measures in this folder.
        TuneError: The command fails, or has no DataLoader to tune.
    """
    began = time.monotonic()
    restore_unfinished()
    with session_folder(steps=steps, replay=REPLAY_STEPS, digests=DIGESTS) as folder:
        examination = Examination(command=command, steps=steps)
        ended, machines = run_sampled(examination, folder, outputs)
        session = session_of(examination, folder, ended, machines)
        baseline = baseline_of(session, diagnose(session), files_here())
        bounds = baseline.bounds()
        predictions = {one: made for one in grid(bounds) if (made := baseline.predict(one)) is not None}
        runner = TrialRunner.of(session, command, folder.settings, most_s - (time.monotonic() - began))
        tuner = TuneTrials(baseline, predictions, runner, most_runs, steps)
        why_ended = tuner.make()
    files = [] if ended.put_back is None else [text for _, text in undo_notes(ended.put_back)]
    files += [note.text for note in runner.notes if note.text not in files]
    if folder.is_kept:
        files.append(f"left in {folder.path}: what could not be put back")
    choice = chosen(tuner.runs) or tuner.runs[0]
    return TuneResult(
        command=command,
        present=baseline.present,
        choice=choice,
        runs=tuner.runs,
        predictions=predictions,
        ended=why_ended,
        paste=paste(baseline.case, choice.arguments, baseline.present),
        notes=[*not_paying(choice.arguments, tuner.runs, predictions), *left_out(bounds), *baseline.reach()],
        files=files,
        seconds=time.monotonic() - began,
    )
