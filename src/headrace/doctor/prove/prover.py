"""Proofs of remedies within a time budget."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar

from ..attach import undo_notes
from ..causes import Prescription, is_gain
from ..probe import ProbeSettings
from ..session.model import Proof, Session, SessionNote
from .baseline import DIGESTS, STEPS, BaselinePace, ComparedSamples, are_equal, compare, patience_s
from .trial import Trial, TrialRequest, attempt


@dataclass(frozen=True)
class Attempt:
    """One run to make."""

    remedies: list[str]
    changes: dict[str, Any]
    step_us: float | None
    """Expected step; None where nothing is expected."""


def attempts(prescription: Prescription) -> list[Attempt]:
    """Return an attempt for each remedy that would help and that injection can apply.

    The shortest expected step comes first; of those without a prediction nothing is expected.
    """
    found = [
        Attempt([remedy.code], remedy.changes, None if remedy.prediction is None else remedy.prediction.step_us)
        for remedy in prescription.remedies
        if remedy.helps and remedy.changes
    ]
    return sorted(found, key=lambda one: float("inf") if one.step_us is None else one.step_us)


def tried_together(proofs: Sequence[Proof], observed_us: float) -> Attempt | None:
    """Join all that proved to be of use; None where that is no more than one of them does.

    The most useful comes first: where two of them change the same thing, its word counts. Together they are expected to
    do no worse than the best alone.
    """
    useful = sorted((proof for proof in proofs if is_of_use(proof, observed_us)), key=mean_us)
    codes = [code for proof in useful for code in proof.remedies]
    changes: dict[str, Any] = {}
    for proof in useful:
        changes = joined(changes, proof.changes)
    if len(codes) < 2 or changes == useful[0].changes:
        return None
    return Attempt(codes, changes, mean_us(useful[0]))


def is_of_use(proof: Proof, observed_us: float) -> bool:
    """Return whether it would be recommended: it was measured, surely gained, and left the samples as they were."""
    if proof.why != "measured" or not proof.steps or proof.samples == "different":
        return False
    return is_gain(proof.steps, observed_us)


def mean_us(proof: Proof) -> float:
    return sum(proof.steps) / len(proof.steps)


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


CONTROL = Attempt([], {}, None)
"""The command unchanged."""


@dataclass
class Prover:
    """Makes the proofs of one session. `proofs` grows meanwhile, so that what came before an interruption counts."""

    session: Session
    prescription: Prescription
    run: Callable[[TrialRequest], Trial]
    """Runs the command as ordered: `attempt`, or what stands in for it."""
    progress: ProveProgress
    budget_s: float
    """Time of all proofs together."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.proofs: list[Proof] = []
        self.control: Proof | None = None
        """The command as it is, run as the proofs are. A machine that others use, too, may be faster or slower by now,
        and the measured run was measured more closely."""
        self.notes: list[SessionNote] = []
        """Notes of what the runs left changed of the user's files."""
        self._before = ComparedSamples.of(self.session)
        self._end = self.clock() + self.budget_s
        self._is_repeatable: bool | None = None
        """Whether the control has the samples of the measured run; None where that is not known."""
        self._is_interrupted = False

    def prove(self) -> list[Proof]:
        """Make all proofs. Ctrl-C ends them: the one under way is `interrupted`, those before it stand."""
        pace = BaselinePace.of(self.session)
        wanted = attempts(self.prescription)
        if pace is None or not wanted:
            return self.proofs
        with self.progress, contextlib.suppress(KeyboardInterrupt):  # between two runs
            self._prove_all(pace, wanted)
        return self.proofs

    def _prove_all(self, pace: BaselinePace, wanted: list[Attempt]) -> None:
        last_s = pace.seconds(0, None) if len(wanted) > 1 else 0.0  # kept for the one together
        if not self._make_control(pace, self._left_s() - last_s - pace.seconds(STEPS, wanted[0].step_us)):
            return
        why_not = self._why_not_repeated()
        if why_not:
            self.proofs += [Proof(one.remedies, one.changes, "not tried", why_not) for one in wanted]
            return
        for number, one in enumerate(wanted, 1):
            what = f"{_name(one)} ({number} of {len(wanted)})"
            if not self._prove(pace, one, what, self._left_s() - last_s):
                return
        best = tried_together(self.proofs, self._before_us(pace))
        if best is not None:
            self._prove(pace, best, f"{_name(best)} together", self._left_s())

    def _make_control(self, pace: BaselinePace, left_s: float) -> bool:
        """Run the command unchanged, where there is time besides a proof; return False where that was interrupted."""
        order = self._order(pace, CONTROL, left_s)
        if isinstance(order, str):
            return True
        trial = self._try("it once more without remedies", order, pace.seconds(order.steps, None))
        if trial.why == "measured":
            self._is_repeatable = are_equal(self._before, trial.samples)
        self.control = trial.proof(CONTROL.remedies, CONTROL.changes, None)
        return not self._is_interrupted

    def _why_not_repeated(self) -> str:
        """Say why the command cannot be run twice; empty where it can."""
        if self.control is None or self.control.why not in ("broke", "timed out"):
            return ""
        what = {"broke": "fails", "timed out": "takes too long"}[self.control.why]
        return f"the command {what} when it is run once more without remedies: {self.control.detail}".rstrip(": ")

    def _before_us(self, pace: BaselinePace) -> float:
        """Return the mean step without remedies, of the measured run or of the control.

        The shorter, which gains beat.
        """
        if self.control is None or not self.control.steps:
            return pace.step_us
        return min(pace.step_us, mean_us(self.control))

    def _prove(self, pace: BaselinePace, one: Attempt, what: str, left_s: float) -> bool:
        """Make one proof; return False where that was interrupted."""
        order = self._order(pace, one, left_s)
        if isinstance(order, str):
            self.proofs.append(Proof(one.remedies, one.changes, "not tried", order))
            return True
        expected_s = pace.seconds(order.steps, one.step_us, warmup=order.warmup)
        trial = self._try(what, order, expected_s)
        samples = None
        if trial.why == "measured":
            samples = self._compared(pace, one, trial)
        self.proofs.append(trial.proof(one.remedies, one.changes, samples))
        return not self._is_interrupted

    def _compared(self, pace: BaselinePace, one: Attempt, trial: Trial) -> str | None:
        """Compare samples, as `Proof.samples` has it.

        What comes out of a cache comes in the second epoch: of a long one, after all that is compared.
        """
        samples = compare(self._before, trial.samples, self._is_repeatable)
        is_seen = "cache" not in one.changes or (pace.epoch_steps or DIGESTS) < DIGESTS
        return samples if is_seen or samples == "different" else None

    def _order(self, pace: BaselinePace, one: Attempt, left_s: float) -> TrialRequest | str:
        """Return the request of a proof, or why it cannot be tried."""
        warmup = None
        if "cache" in one.changes:
            if pace.epoch_steps is None:
                return "a cache fills in a first epoch, and it is not known how long that is"
            warmup = pace.epoch_steps + pace.warmup
        steps = pace.steps_within(left_s, one.step_us, warmup=warmup)
        if not steps:
            takes = pace.seconds(0, one.step_us, warmup=warmup)
            first = ", a first epoch to fill the cache included," if warmup is not None else ""
            return (
                f"it takes more than {takes:.0f} s{first} and {max(left_s, 0):.0f} s were left of "
                f"{self.budget_s:.0f} s; --prove-budget gives more"
            )
        expected_s = pace.seconds(steps, one.step_us, warmup=warmup)
        return TrialRequest(one.changes, steps, warmup, patience_s(expected_s, self._left_s()))

    def _try(self, what: str, order: TrialRequest, expected_s: float) -> Trial:
        try:
            with self.progress.trying(what, expected_s=expected_s, left_s=self._left_s()):
                trial = self.run(order)
        except KeyboardInterrupt:  # before the command had begun, or after its end
            trial = Trial("interrupted", "", 0, [], ComparedSamples({}, False))
        self._is_interrupted |= trial.why == "interrupted"
        if trial.put_back is not None:
            self.notes += [SessionNote(code, text) for code, text in undo_notes(trial.put_back)]
        return trial

    def _left_s(self) -> float:
        return self._end - self.clock()


def _name(one: Attempt) -> str:
    return " + ".join(one.remedies)


def prover_of(
    session: Session, prescription: Prescription, *, command: list[str], like: ProbeSettings, budget_s: float
) -> Prover:
    """Return a prover that runs `command` with the settings of the measured run, `like`."""
    progress = ProveProgress(Console(stderr=True))
    return Prover(session, prescription, lambda order: attempt(command, like, order), progress, budget_s)
