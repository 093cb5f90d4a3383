"""Runs the command with one set of arguments after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console

from headrace.doctor.attach import undo_notes
from headrace.doctor.causes.diagnose import diagnose
from headrace.doctor.edits.script_source import files_here
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.prove.baseline import (
    DIGESTS,
    FEWEST_STEPS,
    STEPS,
    BaselinePace,
    ComparedSamples,
    are_equal,
    compare,
    patience_s,
)
from headrace.doctor.prove.prover import ProveProgress
from headrace.doctor.prove.trial import Trial, TrialRequest, attempt
from headrace.doctor.report.outputs import Outputs
from headrace.doctor.run import Examination, restore_unfinished, run_sampled, session_of
from headrace.doctor.session import session_folder
from headrace.doctor.simulate.prediction import Prediction
from headrace.doctor.tune.baseline import Looked, look
from headrace.doctor.tune.candidates import Arguments, Grid, MeasuredArguments, Why, chosen, grid, next_run
from headrace.doctor.tune.result import TuneResult, not_paying, paste

# -- from tune/trials.py: Runs of the command with other arguments, within a number of runs and a time.


OUT_OF_TIME, OUT_OF_RUNS, INTERRUPTED, NOTHING_LEFT = "time", "runs", "interrupted", "nothing to gain"
"""Why there was no further run."""


@dataclass
class Trials:
    """Makes the runs of one tuning. `runs` grows meanwhile, so that what came before an interruption counts; the first
    one is the script as it is."""

    looked: Looked
    predictions: Mapping[Arguments, Prediction]
    run: Callable[[TrialRequest], Trial]
    """Runs the command as ordered."""
    progress: ProveProgress
    most_runs: int
    """The measured one included."""
    most_s: float
    """From now on."""
    steps: int
    clock: Callable[[], float] = time.monotonic
    runs: list[MeasuredArguments] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """What the runs have left of the user's files other than it was."""

    def __post_init__(self) -> None:
        self.runs.append(MeasuredArguments(self.looked.present, "measured", self.looked.steps))
        self._before = ComparedSamples.of(self.looked.session)
        self._is_repeatable: bool | None = None
        self._end = self.clock() + self.most_s

    def make(self) -> str:
        """All runs that are worth it; says why there was no further one."""
        with self.progress:
            while len(self.runs) < self.most_runs:
                wanted = next_run(self.predictions, self.runs, floor_us=self.looked.floor_us)
                if wanted is None:
                    return NOTHING_LEFT
                ended = self._make(wanted)
                if ended:
                    return ended
        is_over = next_run(self.predictions, self.runs, floor_us=self.looked.floor_us) is None
        return NOTHING_LEFT if is_over else OUT_OF_RUNS

    def _make(self, wanted: Arguments) -> str:
        """Empty where there may be another."""
        step_us = self.predictions[wanted].step_us
        pace, left_s = self.looked.pace, self._end - self.clock()
        steps = measured_steps(self.steps, pace, left_s, step_us)
        if not steps:
            return OUT_OF_TIME
        expected_s = pace.seconds(steps + wanted.in_flight, step_us)
        # What was made ahead while the program came to its first step says nothing of the pace, and is left out.
        order = TrialRequest(self._changes(wanted), steps + wanted.in_flight, None, patience_s(expected_s, left_s))
        try:
            with self.progress.trying(str(wanted), expected_s=expected_s, left_s=left_s):
                trial = self.run(order)
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

    def _changes(self, wanted: Arguments) -> dict[str, object]:
        return {"loaders": {str(number): wanted.changes() for number in self.looked.case.loaders}}


def measured_steps(asked: int, pace: BaselinePace, left_s: float, step_us: float) -> int:
    """Steps of a run that fit into the time: whole epochs where one is shorter, since each has its own start; 0 where
    not even the fewest fit."""
    fixed_s = pace.seconds(0, step_us)
    each_s = min(step_us, pace.step_us) / 1e6
    steps = min(asked, int((left_s - fixed_s) / max(each_s, 1e-6)))
    epoch = pace.epoch_steps
    if epoch is not None and FEWEST_STEPS <= epoch <= steps:
        steps -= steps % epoch
    return steps if steps >= FEWEST_STEPS else 0


# -- from tune/run.py: From a command to the arguments of its DataLoader.


REPLAY_STEPS = 20
"""Of the replay window, and of that under load: a step without its loader bounds what can be gained."""
MOST_RUNS = 3
"""A quarter of the time of a whole grid on two cores, the start of each run included: benchmarks/tune.py."""
MOST_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What was asked for."""

    command: list[str]
    steps: int = STEPS
    """Measured in each run."""
    most_runs: int = MOST_RUNS
    """The first one, of the script as it is, included."""
    most_s: float = MOST_S
    """For all runs together; the first one goes to its steps all the same."""


def tune(asked: Tuning, outputs: Outputs) -> TuneResult:
    """Runs the command as it is, predicts, runs it with what may be faster, and says what to take. The command's files
    and its code stay as they were: docs/doctor/hands-off.md.

    Raises UsageError where another doctor measures in this folder, and TuneError where the command fails, or has no
    DataLoader to tune.
    """
    began = time.monotonic()
    restore_unfinished()
    with session_folder(steps=asked.steps, replay=REPLAY_STEPS, digests=DIGESTS) as folder:
        examination = Examination(command=asked.command, steps=asked.steps)
        ended, machines = run_sampled(examination, folder, outputs)
        session = session_of(examination, folder, ended, machines)
        looked = look(session, diagnose(session), files_here())
        possible = grid(looked.bounds())
        trials = _trials(asked, looked, possible, folder.settings, began)
        trials.files += [] if ended.put_back is None else [text for _, text in undo_notes(ended.put_back)]
        why_ended = trials.make()
    if folder.is_kept:
        trials.files.append(f"left in {folder.path}: what could not be put back")
    return _result(asked, looked, possible, trials, why_ended, began)


def _trials(asked: Tuning, looked: Looked, possible: Grid, like: ProbeSettings, began: float) -> Trials:
    return Trials(
        looked=looked,
        predictions=dict(_predictions(looked, possible)),
        run=lambda order: attempt(asked.command, like, order),
        progress=ProveProgress(Console(stderr=True)),
        most_runs=asked.most_runs,
        most_s=asked.most_s - (time.monotonic() - began),
        steps=asked.steps,
    )


def _predictions(looked: Looked, possible: Grid) -> Iterator[tuple[Arguments, Prediction]]:
    for one in possible.candidates:
        prediction = looked.predict(one)
        if prediction is not None:
            yield one, prediction


def _result(asked: Tuning, looked: Looked, possible: Grid, trials: Trials, why_ended: str, began: float) -> TuneResult:
    choice = chosen(trials.runs) or trials.runs[0]
    return TuneResult(
        command=asked.command,
        present=looked.present,
        choice=choice,
        runs=trials.runs,
        predictions=trials.predictions,
        ended=why_ended,
        paste=paste(looked, choice.arguments),
        notes=[
            *not_paying(choice.arguments, trials.runs, trials.predictions),
            *possible.left_out,
            *_reach(looked),
        ],
        files=trials.files,
        seconds=time.monotonic() - began,
    )


def _reach(looked: Looked) -> Iterator[str]:
    """To what else it applies, or does not."""
    if looked.ranks > 1:
        yield f"{looked.ranks} ranks: each had the same arguments, and steps are those of the slowest"
    if looked.other_loaders:
        loaders = "another DataLoader" if looked.other_loaders == 1 else f"{looked.other_loaders} other DataLoaders"
        yield f"{loaders} of the script: left as it was; this is about the one that its training steps wait for"
