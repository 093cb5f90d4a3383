"""From a command to the arguments of its DataLoader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from headrace.doctor.analyse.analysis import diagnose
from headrace.doctor.hands_off.words import sentences
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.probe.settings import Settings
from headrace.doctor.prove.baseline import DIGESTS
from headrace.doctor.prove.pace import STEPS
from headrace.doctor.prove.progress import ProveProgress
from headrace.doctor.prove.trial import attempt
from headrace.doctor.remedies.sources import files_here
from headrace.doctor.report.outputs import Outputs
from headrace.doctor.run import Examination, restore_unfinished, run_sampled, session_of
from headrace.doctor.session.storage import session_folder
from headrace.doctor.tune.baseline import Looked, look
from headrace.doctor.tune.candidates import chosen
from headrace.doctor.tune.result import not_paying, paste
from headrace.tune.arguments import Arguments
from headrace.tune.grid import Grid, grid
from headrace.tune.result import Result
from headrace.tune.trials import Trials

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


def tune(asked: Tuning, outputs: Outputs) -> Result:
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
        trials.files += [] if ended.put_back is None else [text for _, text in sentences(ended.put_back)]
        why_ended = trials.make()
    if folder.is_kept:
        trials.files.append(f"left in {folder.path}: what could not be put back")
    return _result(asked, looked, possible, trials, why_ended, began)


def _trials(asked: Tuning, looked: Looked, possible: Grid, like: Settings, began: float) -> Trials:
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


def _result(asked: Tuning, looked: Looked, possible: Grid, trials: Trials, why_ended: str, began: float) -> Result:
    choice = chosen(trials.runs) or trials.runs[0]
    return Result(
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
