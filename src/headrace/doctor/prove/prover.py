"""Proofs of remedies within a time budget."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar

from ..attach import undo_notes
from ..causes import Prescription, is_gain, is_valid
from ..probe import ProbeSettings
from ..session.after_run import Proof
from ..session.model import Session, SessionNote
from .baseline import DIGESTS, STEPS, BaselinePace, ComparedSamples, are_equal, compare, compare_adopted, patience_s
from .trial import Trial, TrialRequest, attempt

LOADER = "loader"
"""Key of the change that puts Headrace's Loader in the place of a DataLoader."""


@dataclass(frozen=True)
class Attempt:
    """One run to make."""

    remedies: list[str]
    changes: dict[str, Any]
    step_us: float | None
    """Expected step; None where nothing is expected."""

    def __str__(self) -> str:
        return " + ".join(self.remedies)


def attempts(prescription: Prescription) -> list[Attempt]:
    """Return an attempt for each remedy that would help and that injection can apply.

    One that helps beside another is tried with it. The shortest expected step comes first; of those without a
    prediction nothing is expected.
    """
    able = {one.code: one for one in prescription.remedies if one.helps and one.changes}
    found = []
    for one in able.values():
        together = [able[one.beside], one] if one.beside in able else [one]
        if one.beside and len(together) == 1:  # without the other it gains nothing
            continue
        changes = reduce(joined, (each.changes or {} for each in together))
        step_us = None if one.prediction is None else one.prediction.step_us
        found.append(Attempt([each.code for each in together], changes, step_us))
    return sorted(found, key=lambda one: float("inf") if one.step_us is None else one.step_us)


def tried_together(proofs: Sequence[Proof], observed_us: float) -> Attempt | None:
    """Join all that proved to be of use; None where that is no more than one of them does.

    The most useful comes first: where two of them change the same thing, its word counts. Together they are expected to
    do no worse than the best alone.
    """
    useful = sorted((proof for proof in proofs if is_of_use(proof, observed_us)), key=lambda one: fmean(one.steps))
    if useful and LOADER in useful[0].changes:  # nothing is left for the others to do
        return None
    useful = [proof for proof in useful if LOADER not in proof.changes]
    codes = [code for proof in useful for code in proof.remedies]
    changes: dict[str, Any] = {}
    for proof in useful:
        changes = joined(changes, proof.changes)
    if len(codes) < 2 or changes == useful[0].changes:
        return None
    return Attempt(codes, changes, fmean(useful[0].steps))


def is_of_use(proof: Proof, observed_us: float) -> bool:
    """Return whether it would be recommended: it was measured, surely gained, and left the samples as they were."""
    return is_valid(proof) and is_gain(proof.steps, observed_us)


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Join two changes; of what both set, the first counts."""
    both = {
        key: joined(value, second[key]) if isinstance(value, dict) and isinstance(second.get(key), dict) else value
        for key, value in first.items()
    }
    return {**second, **both}


class _TimeBar(BarColumn):
    """Bar of the time that has passed of what a run is expected to take."""

    def render(self, task: Task) -> ProgressBar:
        total = task.total or 1.0
        return ProgressBar(total=total, completed=min(task.elapsed or 0.0, total), width=self.bar_width)


class ProveProgress:
    """Use it as a context; nothing of it stays on a terminal."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("headrace: trying {task.description}"),
            _TimeBar(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            get_time=clock,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> ProveProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def trying(self, what: str, *, expected_s: float, left_s: float) -> Iterator[None]:
        """Show what is tried. `left_s` is the time that all proofs together may take from now on."""
        left = f"of about {expected_s:.0f} s; at most {left_s:.0f} s for all"
        if not self._console.is_terminal:
            self._console.print(f"headrace: trying {what}: {left}", highlight=False, soft_wrap=True)
        task = self._progress.add_task(what, total=expected_s, left=left)
        try:
            yield
        finally:
            self._progress.remove_task(task)


@dataclass
class TrialRunner:
    """Runs of one command one after the other, within a time, whose samples are compared with the measured run's."""

    session: Session
    """The measured run."""
    run: Callable[[TrialRequest], Trial]
    """Runs the command as ordered: `attempt`, or what stands in for it."""
    progress: ProveProgress
    most_s: float
    """Time of all runs together, from now on."""
    clock: Callable[[], float] = time.monotonic
    notes: list[SessionNote] = field(default_factory=list)
    """Notes of what the runs left changed of the user's files."""
    is_repeatable: bool | None = None
    """Whether two runs without any change have the same samples; None where that is not known."""

    def __post_init__(self) -> None:
        self._before = ComparedSamples.of(self.session)
        self._end = self.clock() + self.most_s

    @classmethod
    def of(cls, session: Session, command: list[str], like: ProbeSettings, most_s: float) -> TrialRunner:
        """Return a runner of `command` with the settings of the measured run, `like`."""
        progress = ProveProgress(Console(stderr=True))
        return cls(session, lambda order: attempt(command, like, order), progress, most_s)

    @property
    def left_s(self) -> float:
        return self._end - self.clock()

    def run_once(self, what: str, changes: dict[str, Any], steps: int, warmup: int | None, expected_s: float) -> Trial:
        """Make one run. Ctrl-C ends it: then it is `interrupted`, and there should be no other."""
        left_s = self.left_s
        try:
            with self.progress.trying(what, expected_s=expected_s, left_s=left_s):
                trial = self.run(TrialRequest(changes, steps, warmup, patience_s(expected_s, left_s)))
        except KeyboardInterrupt:  # before the command had begun, or after its end
            return Trial("interrupted")
        if trial.put_back is not None:
            found = [SessionNote(code, text) for code, text in undo_notes(trial.put_back)]
            self.notes += [note for note in found if note not in self.notes]
        return trial

    def has_same_samples(self, trial: Trial) -> bool | None:
        """Return whether a run has the measured run's samples, bit for bit; None where they cannot be compared."""
        return are_equal(self._before, trial.samples)

    def compared(self, trial: Trial, *, is_adopted: bool = False) -> str | None:
        """Compare a run's samples with the measured run's, as `Proof.samples` has it.

        One with a Loader `is_adopted`: its order and its draws are its own.
        """
        if is_adopted:
            return compare_adopted(self._before, trial.samples)
        return compare(self._before, trial.samples, self.is_repeatable)


@dataclass
class Prover:
    """Makes the proofs of one session. `proofs` grows meanwhile, so that what came before an interruption counts."""

    prescription: Prescription
    runner: TrialRunner
    proofs: list[Proof] = field(default_factory=list)
    control: Proof | None = None
    """The command as it is, run as the proofs are. A machine that others use, too, may be faster or slower by now, and
    the measured run was measured more closely."""

    def prove(self) -> list[Proof]:
        """Make all proofs. Ctrl-C ends them: the one under way is `interrupted`, those before it stand."""
        pace, wanted = BaselinePace.of(self.runner.session), attempts(self.prescription)
        if pace is not None and wanted:
            with self.runner.progress, contextlib.suppress(KeyboardInterrupt):  # between two runs
                self._prove_all(pace, wanted)
        return self.proofs

    def _prove_all(self, pace: BaselinePace, wanted: list[Attempt]) -> None:
        last_s = pace.seconds(0, None) if len(wanted) > 1 else 0.0  # saved for the one together
        # The command unchanged, where there is time besides a proof.
        steps = pace.steps_within(self.runner.left_s - last_s - pace.seconds(STEPS, wanted[0].step_us), None)
        if steps:
            what = "it once more without remedies"
            trial = self.runner.run_once(what, {}, steps, None, pace.seconds(steps, None))
            if trial.why == "measured":
                self.runner.is_repeatable = self.runner.has_same_samples(trial)
            self.control = trial.proof([], {}, None)
            if trial.why == "interrupted":
                return
            failed = {"broke": "fails", "timed out": "takes too long"}.get(trial.why)
            if failed is not None:
                why_not = f"the command {failed} when it is run once more without remedies: {trial.detail}".rstrip(": ")
                self.proofs += [Proof(one.remedies, one.changes, "not tried", why_not) for one in wanted]
                return
        for number, one in enumerate(wanted, 1):
            self.proofs.append(
                self._prove(pace, one, f"{one} ({number} of {len(wanted)})", self.runner.left_s - last_s)
            )
            if self.proofs[-1].why == "interrupted":
                return
        before_us = pace.step_us
        if self.control is not None and self.control.steps:
            before_us = min(before_us, fmean(self.control.steps))  # the shorter one, which gains beat
        best = tried_together(self.proofs, before_us)
        if best is not None:
            self.proofs.append(self._prove(pace, best, f"{best} together", self.runner.left_s))

    def _prove(self, pace: BaselinePace, one: Attempt, what: str, left_s: float) -> Proof:
        """Make one proof, or say why it is not tried."""
        warmup, first = None, ""
        if "cache" in one.changes:
            if pace.epoch_steps is None:
                why_not = "a cache fills in a first epoch, and it is not known how long that is"
                return Proof(one.remedies, one.changes, "not tried", why_not)
            warmup, first = pace.epoch_steps + pace.warmup, ", a first epoch to fill the cache included,"
        steps = pace.steps_within(left_s, one.step_us, warmup=warmup)
        if not steps:
            why_not = (
                f"it takes more than {pace.seconds(0, one.step_us, warmup=warmup):.0f} s{first} and "
                f"{max(left_s, 0):.0f} s were left of {self.runner.most_s:.0f} s; --prove-budget gives more"
            )
            return Proof(one.remedies, one.changes, "not tried", why_not)
        expected_s = pace.seconds(steps, one.step_us, warmup=warmup)
        trial = self.runner.run_once(what, one.changes, steps, warmup, expected_s)
        samples = self.runner.compared(trial, is_adopted=LOADER in one.changes) if trial.why == "measured" else None
        # What comes out of a cache comes in the second epoch: of a long one, after all that is compared.
        is_seen = "cache" not in one.changes or (pace.epoch_steps or DIGESTS) < DIGESTS
        return trial.proof(one.remedies, one.changes, samples if is_seen or samples == "different" else None)
