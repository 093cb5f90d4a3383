"""Trials of remedies one after the other, within a time budget: alone, then together, between unchanged runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from headrace.doctor.causes import Prescription, control_means_us
from headrace.doctor.measure import is_gain, is_valid
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.prove.trial import (
    FEWEST_STEPS,
    BaselinePace,
    ComparedSamples,
    Trial,
    TrialRequest,
    are_equal,
    attempt,
    compare,
    compare_adopted,
    patience_s,
)
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import Session

LOADER = "loader"
"""Key of the change that replaces a DataLoader by Headrace's Loader."""


@dataclass(frozen=True)
class Attempt:
    remedies: list[str]
    """Codes of remedies, or the setting in words; empty for the unchanged command."""
    changes: dict[str, Any]
    step_us: float | None
    place: str = ""
    """Position among several attempts, in words."""
    reserved_s: float = 0.0
    """Time reserved for later runs."""


@dataclass
class Prover:
    """Prover that runs one command several times within a time limit, and compares each run with the measured one."""

    session: Session
    pace: BaselinePace
    run: Callable[[TrialRequest], Trial]
    """Runs the command as requested: `attempt`, or a replacement."""
    announce: Callable[[str], None]
    """Called with a line before each run."""
    most_s: float
    """Time limit for all runs together, from now on."""
    clock: Callable[[], float] = time.monotonic
    proofs: list[Proof] = field(default_factory=list)
    """Proofs so far, retained on an interruption."""
    is_repeatable: bool | None = None
    """True if two runs have the same samples, by the unchanged run, or else by any other with the same samples."""

    def __post_init__(self) -> None:
        self._before = ComparedSamples.of(self.session)
        self._end = self.clock() + self.most_s

    @classmethod
    def of(
        cls, session: Session, command: list[str], like: ProbeSettings, announce: Callable[[str], None], most_s: float
    ) -> Prover | None:
        """Return a prover of `command` with the settings of the measured run, `like`; None if no step was measured."""
        pace = BaselinePace.of(session)
        if pace is None:
            return None
        return cls(session, pace, lambda order: attempt(command, like, order), announce, most_s)

    def prove(self, attempts: Iterable[Attempt]) -> list[Proof]:
        """Prove each attempt. Ctrl-C ends the series: the current proof is `interrupted`, earlier ones stand."""
        with contextlib.suppress(KeyboardInterrupt):  # between two runs
            for one in attempts:
                self.proofs.append(self._proof(one))
                if self.proofs[-1].why == "interrupted":
                    break
        return self.proofs

    @property
    def left_s(self) -> float:
        return self._end - self.clock()

    def steps_for(self, one: Attempt) -> int:
        """Return the number of steps that fit; 0 if too few do."""
        return self.pace.steps_within(self.left_s - one.reserved_s, one.step_us)

    def _proof(self, one: Attempt) -> Proof:
        """Make one proof, or return why it is not tried."""
        steps = self.steps_for(one)
        why_not = self._why_not(one, steps)
        if why_not:
            return Proof(one.remedies, one.changes, "not tried", why_not)
        trial = self._trial(one, steps)
        if trial.why != "measured":
            return trial.proof(one.remedies, one.changes, None)
        is_same = are_equal(self._before, trial.samples)
        if not one.changes or (is_same and self.is_repeatable is None):
            self.is_repeatable = is_same
        return trial.proof(one.remedies, one.changes, self._compared(one, trial))

    def _why_not(self, one: Attempt, steps: int) -> str:
        """Return why the attempt is not tried; empty if it is."""
        if steps:
            return ""
        least_s, left_s = self.pace.seconds(0, one.step_us), max(self.left_s - one.reserved_s, 0.0)
        return f"it takes more than {least_s:.0f} s and {left_s:.0f} s were left of {self.most_s:.0f} s"

    def _trial(self, one: Attempt, steps: int) -> Trial:
        """Make one run. After Ctrl-C it is `interrupted`, and no other should follow."""
        left_s = self.left_s
        expected_s = self.pace.seconds(steps, one.step_us)
        what = " + ".join(one.remedies) or "it once more without remedies"
        try:
            self.announce(f"trying {what}{one.place}: about {expected_s:.0f} s; at most {left_s:.0f} s for all")
            return self.run(TrialRequest(one.changes, steps, patience_s(expected_s, left_s)))
        except KeyboardInterrupt:  # before the command began, or after its end
            return Trial("interrupted")

    def _compared(self, one: Attempt, trial: Trial) -> str | None:
        """Compare samples with the measured run's, as `Proof.samples`. A Loader has its own order and draws."""
        if not one.changes:
            return None
        if LOADER in one.changes:
            return compare_adopted(self._before, trial.samples)
        return compare(self._before, trial.samples, self.is_repeatable)


CONTROL = Attempt([], {}, None)
FAILED = {"broke": "fails", "timed out": "takes too long"}
"""Ends of the unchanged command after which no remedy is tried."""


def remedy_attempts(prescription: Prescription, prover: Prover) -> Iterator[Attempt]:
    """Yield each remedy between two runs of the unchanged command, then the useful remedies together.

    A shared machine may be faster or slower by now, and the measured run was observed more closely. So a remedy is
    tried only if there is time for a control run before it.
    """
    wanted, pace, proofs = attempts(prescription), prover.pace, prover.proofs
    if not wanted:
        return
    for number, one in enumerate(wanted, 1):
        yield from _with_control(replace(one, place=f" ({number} of {len(wanted)})"), prover)
        if not proofs[-1].remedies and proofs[-1].why in FAILED:
            again = f"the command {FAILED[proofs[-1].why]} when it is run once more without remedies"
            why_not = f"{again}: {proofs[-1].detail}".rstrip(": ")
            proofs += [Proof(one.remedies, one.changes, "not tried", why_not) for one in wanted[number - 1 :]]
            return
    # The fastest of the runs without remedies, which gains must beat.
    before_us = min([pace.step_us, *control_means_us(proofs)])
    best = tried_together(proofs, before_us)
    if best is not None:
        yield from _with_control(replace(best, place=" together"), prover)
    if any(one.remedies and one.steps for one in proofs) and prover.steps_for(CONTROL):
        yield CONTROL


def _with_control(one: Attempt, prover: Prover) -> Iterator[Attempt]:
    """Yield the unchanged command, then an attempt; without time for both, an attempt that is not tried."""
    control = replace(CONTROL, reserved_s=prover.pace.seconds(FEWEST_STEPS, one.step_us))
    if not prover.steps_for(control):
        yield replace(one, reserved_s=prover.left_s)
        return
    yield control
    if prover.proofs[-1].why not in FAILED:
        yield one


def attempts(prescription: Prescription) -> list[Attempt]:
    """Return an attempt for each helpful remedy that can be injected, the shortest expected step first."""
    found = [
        Attempt([one.code], one.changes, None if one.prediction is None else one.prediction.step_us)
        for one in prescription.remedies
        if one.helps and one.changes
    ]
    return sorted(found, key=lambda one: float("inf") if one.step_us is None else one.step_us)


def tried_together(proofs: Sequence[Proof], observed_us: float) -> Attempt | None:
    """Combine all proven remedies, the most useful first; None for fewer than two. Expected: the best alone."""
    useful = sorted(
        (one for one in proofs if is_valid(one) and is_gain(one.steps, observed_us)), key=lambda one: fmean(one.steps)
    )
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


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge two changes; the first takes precedence."""
    both = {
        key: joined(value, second[key]) if isinstance(value, dict) and isinstance(second.get(key), dict) else value
        for key, value in first.items()
    }
    return {**second, **both}
