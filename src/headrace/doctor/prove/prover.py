"""Runs the command once more as it is, tries the remedies of a prescription one after the other, then those together
that proved to be of use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.hands_off.words import sentences
from headrace.doctor.probe.settings import Settings
from headrace.doctor.prove.attempts import Attempt, attempts, mean_us, together
from headrace.doctor.prove.baseline import DIGESTS, Samples, are_equal, compare
from headrace.doctor.prove.pace import STEPS, Pace, patience_s
from headrace.doctor.prove.progress import ProveProgress
from headrace.doctor.prove.trial import Order, Trial, attempt
from headrace.doctor.session.model import Note, Proof, Session

CONTROL = Attempt([], {}, None)
"""To run the command as it is."""


@dataclass
class Prover:
    """Makes the proofs of one session. `proofs` grows meanwhile, so that what came before an interruption counts."""

    session: Session
    prescription: Prescription
    run: Callable[[Order], Trial]
    """Runs the command as ordered: `attempt`, or what stands in for it."""
    progress: ProveProgress
    budget_s: float
    """For all proofs together."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.proofs: list[Proof] = []
        self.control: Proof | None = None
        """The command as it is, run as the proofs are. A machine that others use, too, may be faster or slower by now,
        and the measured run was measured more closely."""
        self.notes: list[Note] = []
        """What the runs have left of the user's files other than it was."""
        self._before = Samples.of(self.session)
        self._end = self.clock() + self.budget_s
        self._is_repeatable: bool | None = None
        """Whether the control has the samples of the measured run; None where that is not known."""
        self._is_interrupted = False

    def prove(self) -> list[Proof]:
        """All proofs. Ctrl-C ends them: the one under way is `interrupted`, those before it stand."""
        pace = Pace.of(self.session)
        wanted = attempts(self.prescription)
        if pace is None or not wanted:
            return self.proofs
        with self.progress, contextlib.suppress(KeyboardInterrupt):  # between two runs
            self._prove_all(pace, wanted)
        return self.proofs

    def _prove_all(self, pace: Pace, wanted: list[Attempt]) -> None:
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
        best = together(self.proofs, self._before_us(pace))
        if best is not None:
            self._prove(pace, best, f"{_name(best)} together", self._left_s())

    def _make_control(self, pace: Pace, left_s: float) -> bool:
        """Where there is time for that beside a proof. False where that was interrupted."""
        order = self._order(pace, CONTROL, left_s)
        if isinstance(order, str):
            return True
        trial = self._try("it once more as it is", order, pace.seconds(order.steps, None))
        if trial.why == "measured":
            self._is_repeatable = are_equal(self._before, trial.samples)
        self.control = trial.proof(CONTROL.remedies, CONTROL.changes, None)
        return not self._is_interrupted

    def _why_not_repeated(self) -> str:
        """Of a command that cannot be run twice; empty of others."""
        if self.control is None or self.control.why not in ("broke", "timed out"):
            return ""
        what = {"broke": "fails", "timed out": "takes too long"}[self.control.why]
        return f"the command {what} when it is run once more as it is: {self.control.detail}".rstrip(": ")

    def _before_us(self, pace: Pace) -> float:
        """Mean step as it is, of the measured run or of the control: the shorter, by which gains are told."""
        if self.control is None or not self.control.steps:
            return pace.step_us
        return min(pace.step_us, mean_us(self.control))

    def _prove(self, pace: Pace, one: Attempt, what: str, left_s: float) -> bool:
        """False where that was interrupted."""
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

    def _compared(self, pace: Pace, one: Attempt, trial: Trial) -> str | None:
        """As `Proof.samples`. What comes out of a cache comes in the second epoch: of a long one, after all that is
        compared."""
        samples = compare(self._before, trial.samples, self._is_repeatable)
        is_seen = "cache" not in one.changes or (pace.epoch_steps or DIGESTS) < DIGESTS
        return samples if is_seen or samples == "different" else None

    def _order(self, pace: Pace, one: Attempt, left_s: float) -> Order | str:
        """Or why it cannot be tried."""
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
        return Order(one.changes, steps, warmup, patience_s(expected_s, self._left_s()))

    def _try(self, what: str, order: Order, expected_s: float) -> Trial:
        try:
            with self.progress.trying(what, expected_s=expected_s, left_s=self._left_s()):
                trial = self.run(order)
        except KeyboardInterrupt:  # before the command had begun, or after its end
            trial = Trial("interrupted", "", 0, [], Samples({}, False))
        self._is_interrupted |= trial.why == "interrupted"
        if trial.put_back is not None:
            self.notes += [Note(code, text) for code, text in sentences(trial.put_back)]
        return trial

    def _left_s(self) -> float:
        return self._end - self.clock()


def _name(one: Attempt) -> str:
    return " + ".join(one.remedies)


def prover_of(
    session: Session, prescription: Prescription, *, command: list[str], like: Settings, budget_s: float
) -> Prover:
    """That runs `command` with the settings of the measured run, `like`, and says on standard error what it tries."""
    progress = ProveProgress(Console(stderr=True))
    return Prover(session, prescription, lambda order: attempt(command, like, order), progress, budget_s)
