"""How long a run takes that proves something, and how many steps of it fit into the time that is left. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.doctor.measure.steps import Training, training
from headrace.doctor.session.model import Session

STEPS = 60
"""Measured in each proof, where there is time: 6 s of steps of 100 ms."""
FEWEST_STEPS = 20
"""Fewer say too little to recommend by."""
ENDING_S = 3.0
"""For the processes of a run to end."""
SLACK = 3.0
"""A run that takes so many times what was expected of it hangs, as far as anybody can tell."""
LEAST_PATIENCE_S = 30.0
GRACE_S = 15.0
"""By which the time for all proofs may be exceeded, where a machine is slower than it was."""


@dataclass(frozen=True)
class Pace:
    """Of the measured run: what the next ones are expected to take."""

    start_s: float
    """From the start of the command until its first step begins."""
    warmup: int
    """Steps that are not measured."""
    step_us: float
    """Mean of the measured steps."""
    epoch_steps: int | None
    """Of the loader that the run trains from; None where it has no length."""

    @classmethod
    def of(cls, session: Session) -> Pace | None:
        """By the slowest rank. None where nothing was measured: then there is nothing to compare with."""
        slowest = _slowest(session)
        if slowest is None:
            return None
        first = slowest.trainer.steps.start[0]
        return cls(first / 1e6, slowest.warmup, _mean_us(slowest), _epoch_steps(slowest))

    def seconds(self, steps: int, step_us: float | None, *, warmup: int | None = None) -> float:
        """That a run of so many measured steps takes, where each is expected to take `step_us`."""
        step_s = (self.step_us if step_us is None else min(step_us, self.step_us)) / 1e6
        return (
            self.start_s + ENDING_S + (self.warmup if warmup is None else warmup) * self.step_us / 1e6 + steps * step_s
        )

    def steps_within(self, seconds: float, step_us: float | None, *, warmup: int | None = None) -> int:
        """At most `STEPS`; 0 where not even the fewest fit."""
        fixed = self.seconds(0, step_us, warmup=warmup)
        step_s = (self.step_us if step_us is None else min(step_us, self.step_us)) / 1e6
        steps = min(STEPS, int((seconds - fixed) / max(step_s, 1e-6)))
        return steps if steps >= FEWEST_STEPS else 0


def patience_s(expected_s: float, left_s: float) -> float:
    """After which a run is ended, where all have so much time left."""
    return min(max(SLACK * expected_s, LEAST_PATIENCE_S), max(expected_s, left_s) + GRACE_S)


def step_durations(session: Session) -> list[int]:
    """Of the measured steps, in microseconds; of several ranks, of the slowest."""
    slowest = _slowest(session)
    return [] if slowest is None else [step.duration for step in slowest.steps]


def _slowest(session: Session) -> Training | None:
    ranks = [training(session, trainer) for trainer in session.trainers]
    return max((rank for rank in ranks if rank.unit == "step" and rank.steps), key=_mean_us, default=None)


def _mean_us(rank: Training) -> float:
    return sum(step.duration for step in rank.steps) / len(rank.steps)


def _epoch_steps(rank: Training) -> int | None:
    """By the longest loader."""
    lengths = [loader.facts.get("length") for loader in rank.trainer.loaders]
    length = max((one for one in lengths if isinstance(one, int)), default=None)
    gets = sum(len(step.gets) for step in rank.steps)
    return None if length is None or not gets else -(-length * len(rank.steps) // gets)
