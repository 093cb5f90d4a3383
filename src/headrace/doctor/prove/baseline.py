"""Baseline of a trial: the pace of its steps, and its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from headrace.doctor.measure import MeasuredTraining, training
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import BatchDigest

DIGESTS = 32
"""Batches per rank that are compared."""
STEPS = 60
"""Measured steps per proof, if time allows: 6 s of steps of 100 ms."""
FEWEST_STEPS = 20
"""Minimum number of steps for a recommendation."""
ENDING_S = 3.0
"""Time for the processes of a run to end."""
SLACK = 3.0
"""Multiple of its expected time after which a run counts as hung."""
LEAST_PATIENCE_S = 30.0
GRACE_S = 15.0
"""Extra time for all proofs, if the machine is slower than before."""


@dataclass(frozen=True)
class ComparedSamples:
    """The first batches of a run, by rank, and whether random numbers were drawn during their production."""

    by_rank: dict[int, list[BatchDigest]] = field(default_factory=dict)
    draws: bool = False
    later: frozenset[tuple[int, int]] = frozenset()
    """Rank and pass, of each pass that is not the first over its loader."""

    @classmethod
    def of(cls, session: Session) -> ComparedSamples:
        draws = any(process.facts.get("facts", {}).get("draws") for process in session.processes)
        later = set()
        for trainer in session.trainers:
            begun: set[int] = set()
            for one in trainer.passes:
                if one.loader in begun:
                    later.add((trainer.rank, one.number))
                begun.add(one.loader)
        return cls({trainer.rank: trainer.digests for trainer in session.trainers}, draws, frozenset(later))


def compare(before: ComparedSamples, after: ComparedSamples, is_repeatable: bool | None) -> str | None:
    """Compare samples: `same`, `different` or None, as in docs/doctor/remedies.md.

    `is_repeatable`: True if two unchanged runs have the same samples; None if unknown.
    """
    pairs = _pairs(before, after)
    if not pairs:
        return None
    if all(one.content == other.content for one, other in pairs):
        return "same"
    has_other_keys = any(one.keys != other.keys for one, other in pairs)
    if has_other_keys or before.draws or after.draws:  # no injected remedy changes the keys
        return None
    return "different" if is_repeatable else None


def compare_adopted(before: ComparedSamples, after: ComparedSamples) -> str | None:
    """Compare a run's samples with the samples of a run with Headrace's Loader, which has its own order and draws.

    `alike` if dtypes and shapes are the same, else `different`; None if there is nothing to compare. The trial of the
    Loader has compared values.
    """
    found = [_adopted(digests, after.by_rank.get(rank, [])) for rank, digests in before.by_rank.items()]
    return next((one for one in ("different", "alike") if one in found), None)


def _adopted(before: Sequence[BatchDigest], after: Sequence[BatchDigest]) -> str | None:
    if not before or not after or not before[0].tensors or not after[0].tensors:
        return None
    return "alike" if before[0].tensors == after[0].tensors else "different"


def are_equal(before: ComparedSamples, after: ComparedSamples) -> bool | None:
    """Return True if all compared samples are the same; None if there is nothing to compare."""
    pairs = _pairs(before, after)
    return all(one.content == other.content for one, other in pairs) if pairs else None


def _pairs(before: ComparedSamples, after: ComparedSamples) -> list[tuple[BatchDigest, BatchDigest]]:
    """Pair the batches that both runs have.

    In passes after the first, pairing stops where the drawn keys differ: draws in between determine their order, and
    persistent workers, for example, draw less.
    """
    pairs = []
    for rank, digests in before.by_rank.items():
        for one, other in zip(digests, after.by_rank.get(rank, []), strict=False):
            if one.keys != other.keys and ((rank, one.pass_) in before.later or (rank, other.pass_) in after.later):
                break
            pairs.append((one, other))
    return pairs


@dataclass(frozen=True)
class BaselinePace:
    """Pace of the measured run, from which the duration of further runs is estimated."""

    start_s: float
    """Time from the start of the command to its first step."""
    warmup: int
    """Steps that are not measured."""
    step_us: float
    """Mean of the measured steps."""
    epoch_steps: int | None
    """Steps per epoch of the loader that the run trains from; None if it has no length."""

    @classmethod
    def of(cls, session: Session) -> BaselinePace | None:
        """Return the pace of the slowest rank, or None if nothing was measured."""
        slowest = _slowest(session)
        if slowest is None:
            return None
        trainer, gets = slowest.trainer, sum(len(step.gets) for step in slowest.steps)
        lengths = [length for loader in trainer.loaders if isinstance(length := loader.facts.get("length"), int)]
        epoch = -(-max(lengths) * len(slowest.steps) // gets) if lengths and gets else None
        return cls(trainer.steps.start[0] / 1e6, slowest.warmup, fmean(slowest.durations), epoch)

    def seconds(self, steps: int, step_us: float | None) -> float:
        """Return the expected duration of a run with `steps` measured steps of `step_us` each."""
        return self.start_s + ENDING_S + self.warmup * self.step_us / 1e6 + steps * self._step_s(step_us)

    def steps_within(self, seconds: float, step_us: float | None) -> int:
        """Return the number of steps that fit, at most `STEPS`: whole epochs if one is shorter, 0 if too few fit.

        Whole epochs matter because the start of the workers belongs to each: one and a half would count it once or
        twice.
        """
        fixed, epoch = self.seconds(0, step_us), self.epoch_steps
        steps = min(STEPS, int((seconds - fixed) / max(self._step_s(step_us), 1e-6)))
        if epoch is not None and FEWEST_STEPS <= epoch <= steps:
            return steps - steps % epoch
        return steps if steps >= FEWEST_STEPS else 0

    def _step_s(self, step_us: float | None) -> float:
        return (self.step_us if step_us is None else min(step_us, self.step_us)) / 1e6


def patience_s(expected_s: float, left_s: float) -> float:
    """Return the time limit of a run in seconds, given the time left for all."""
    return min(max(SLACK * expected_s, LEAST_PATIENCE_S), max(expected_s, left_s) + GRACE_S)


def step_durations(session: Session) -> list[int]:
    """Return the microseconds of the measured steps, of the slowest rank."""
    slowest = _slowest(session)
    return [] if slowest is None else slowest.durations


def _slowest(session: Session) -> MeasuredTraining | None:
    ranks = [training(session, trainer) for trainer in session.trainers]
    stepping = (rank for rank in ranks if rank.unit == "step" and rank.steps)
    return max(stepping, key=lambda rank: fmean(rank.durations), default=None)
