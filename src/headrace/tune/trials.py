"""Runs of the command with other arguments, within a number of runs and a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.doctor.hands_off.words import sentences
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.prove.baseline import Samples, are_equal, compare
from headrace.doctor.prove.pace import FEWEST_STEPS, Pace, patience_s
from headrace.doctor.prove.progress import ProveProgress
from headrace.doctor.prove.trial import Order, Trial
from headrace.doctor.tune.baseline import Looked
from headrace.doctor.tune.candidates import Measured, Why, next_run
from headrace.tune.arguments import Arguments

OUT_OF_TIME, OUT_OF_RUNS, INTERRUPTED, NOTHING_LEFT = "time", "runs", "interrupted", "nothing to gain"
"""Why there was no further run."""


@dataclass
class Trials:
    """Makes the runs of one tuning. `runs` grows meanwhile, so that what came before an interruption counts; the first
    one is the script as it is."""

    looked: Looked
    predictions: Mapping[Arguments, Prediction]
    run: Callable[[Order], Trial]
    """Runs the command as ordered."""
    progress: ProveProgress
    most_runs: int
    """The measured one included."""
    most_s: float
    """From now on."""
    steps: int
    clock: Callable[[], float] = time.monotonic
    runs: list[Measured] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """What the runs have left of the user's files other than it was."""

    def __post_init__(self) -> None:
        self.runs.append(Measured(self.looked.present, "measured", self.looked.steps))
        self._before = Samples.of(self.looked.session)
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
        order = Order(self._changes(wanted), steps + wanted.in_flight, None, patience_s(expected_s, left_s))
        try:
            with self.progress.trying(str(wanted), expected_s=expected_s, left_s=left_s):
                trial = self.run(order)
        except KeyboardInterrupt:
            return INTERRUPTED
        if trial.put_back is not None:
            self.files += [text for _, text in sentences(trial.put_back) if text not in self.files]
        if trial.why == "interrupted":
            return INTERRUPTED
        self._take(wanted, trial)
        return ""

    def _take(self, wanted: Arguments, trial: Trial) -> None:
        if trial.why == "measured" and are_equal(self._before, trial.samples):
            self._is_repeatable = True
        self.runs.append(self._measured(wanted, trial))

    def _measured(self, wanted: Arguments, trial: Trial) -> Measured:
        if trial.why != "measured":
            whys: dict[str, Why] = {"not applied": "not applied", "timed out": "timed out"}
            return Measured(wanted, whys.get(trial.why, "broke"), (), trial.detail)
        if len(trial.steps) - wanted.in_flight < FEWEST_STEPS:
            return Measured(wanted, "broke", (), "the script ended before its queue of batches was used up")
        if compare(self._before, trial.samples, self._is_repeatable) == "different":
            return Measured(wanted, "different samples")
        steps = [float(step) for step in trial.steps][wanted.in_flight :]
        return Measured(wanted, "measured", steps, others_cores=trial.others_cores)

    def _changes(self, wanted: Arguments) -> dict[str, object]:
        return {"loaders": {str(number): wanted.changes() for number in self.looked.case.loaders}}


def measured_steps(asked: int, pace: Pace, left_s: float, step_us: float) -> int:
    """Steps of a run that fit into the time: whole epochs where one is shorter, since each has its own start; 0 where
    not even the fewest fit."""
    fixed_s = pace.seconds(0, step_us)
    each_s = min(step_us, pace.step_us) / 1e6
    steps = min(asked, int((left_s - fixed_s) / max(each_s, 1e-6)))
    epoch = pace.epoch_steps
    if epoch is not None and FEWEST_STEPS <= epoch <= steps:
        steps -= steps % epoch
    return steps if steps >= FEWEST_STEPS else 0
