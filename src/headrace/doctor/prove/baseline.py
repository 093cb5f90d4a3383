"""Baseline of a trial: the pace of its steps, and its samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..measure import MeasuredTraining, training
from ..session.model import BatchDigest, Session, Trainer

DIGESTS = 32
"""Batches of each rank that are compared."""
ROUNDING = 0.02
"""Share of the range of a tensor's values: two that differ by no more differ by how they were rounded."""
ROUNDED_SHARE = 0.95
"""Share of the values that must do so: a pixel at an edge may differ by more."""
STEPS = 60
"""Measured in each proof, where there is time: 6 s of steps of 100 ms."""
FEWEST_STEPS = 20
"""Fewer say too little to recommend by."""
ENDING_S = 3.0
"""Time for the processes of a run to end."""
SLACK = 3.0
"""A run that takes so many times what was expected of it hangs, as far as anybody can tell."""
LEAST_PATIENCE_S = 30.0
GRACE_S = 15.0
"""Time by which all proofs may exceed theirs, where a machine is slower than it was."""


@dataclass(frozen=True)
class ComparedSamples:
    """The first batches of a run, by rank, and whether random numbers were drawn while they were made."""

    by_rank: dict[int, list[BatchDigest]]
    draws: bool
    later: frozenset[tuple[int, int]] = frozenset()
    """Ranks and passes that are not the first over their loader."""

    @classmethod
    def of(cls, session: Session) -> ComparedSamples:
        draws = any(process.facts.get("facts", {}).get("draws") for process in session.processes)
        by_rank = {trainer.rank: trainer.digests for trainer in session.trainers}
        return cls(by_rank, bool(draws), frozenset(later for trainer in session.trainers for later in _later(trainer)))


def _later(trainer: Trainer) -> Iterator[tuple[int, int]]:
    begun: set[int] = set()
    for one in trainer.passes:
        if one.loader in begun:
            yield trainer.rank, one.number
        begun.add(one.loader)


def compare(before: ComparedSamples, after: ComparedSamples, is_repeatable: bool | None) -> str | None:
    """Compare samples: `same`, `close`, `different` or None, of docs/doctor/remedies.md.

    `is_repeatable` says whether two runs without any change have the same samples; None where that is not known.
    """
    pairs = _pairs(before, after)
    if not pairs:
        return None
    if all(one.content == other.content for one, other in pairs):
        return "same"
    if all(_is_close(one, other) for one, other in pairs):
        return "close"
    if _have_other_keys(pairs) or before.draws or after.draws:  # nothing that is injected changes the keys
        return None
    if any(one.content != other.content and not (one.sketches and other.sketches) for one, other in pairs):
        return None
    return "different" if is_repeatable else None


def are_equal(before: ComparedSamples, after: ComparedSamples) -> bool | None:
    """Return whether all compared samples are the same; None where there is nothing to compare."""
    pairs = _pairs(before, after)
    return all(one.content == other.content for one, other in pairs) if pairs else None


def _pairs(before: ComparedSamples, after: ComparedSamples) -> list[tuple[BatchDigest, BatchDigest]]:
    """Pair batches, as far as both runs go.

    In passes after the first they pair as far as both draw the same keys: what was drawn meanwhile decides their order,
    and persistent workers, say, draw less.
    """
    pairs = []
    for rank, digests in before.by_rank.items():
        for one, other in zip(digests, after.by_rank.get(rank, []), strict=False):
            if one.keys != other.keys and ((rank, one.pass_) in before.later or (rank, other.pass_) in after.later):
                break
            pairs.append((one, other))
    return pairs


def _have_other_keys(pairs: Sequence[tuple[BatchDigest, BatchDigest]]) -> bool:
    return any(one.keys != other.keys for one, other in pairs)


def _is_close(one: BatchDigest, other: BatchDigest) -> bool:
    """Compare sketches of values: as many, and each tensor's near the other's."""
    if one.content == other.content:
        return True
    both = list(zip(one.sketches, other.sketches, strict=False))
    if not both or [len(values) for values in one.sketches] != [len(values) for values in other.sketches]:
        return False
    return all(_are_near(values, others) for values, others in both)


def _are_near(values: Sequence[float], others: Sequence[float]) -> bool:
    reach = (max(values) - min(values)) * ROUNDING if values else 0.0
    near: int = sum(abs(value - other) <= reach for value, other in zip(values, others, strict=True))
    return near >= ROUNDED_SHARE * len(values)


@dataclass(frozen=True)
class BaselinePace:
    """Pace of the measured run: what the next ones are expected to take."""

    start_s: float
    """Time from the start of the command until its first step begins."""
    warmup: int
    """Steps that are not measured."""
    step_us: float
    """Mean of the measured steps."""
    epoch_steps: int | None
    """Steps of an epoch of the loader that the run trains from; None where it has no length."""

    @classmethod
    def of(cls, session: Session) -> BaselinePace | None:
        """Return the pace of the slowest rank.

        None where nothing was measured, and there is nothing to compare with.
        """
        slowest = _slowest(session)
        if slowest is None:
            return None
        first = slowest.trainer.steps.start[0]
        return cls(first / 1e6, slowest.warmup, _mean_us(slowest), _epoch_steps(slowest))

    def seconds(self, steps: int, step_us: float | None, *, warmup: int | None = None) -> float:
        """Return what a run of so many measured steps takes, where each is expected to take `step_us`."""
        step_s = (self.step_us if step_us is None else min(step_us, self.step_us)) / 1e6
        return (
            self.start_s + ENDING_S + (self.warmup if warmup is None else warmup) * self.step_us / 1e6 + steps * step_s
        )

    def steps_within(self, seconds: float, step_us: float | None, *, warmup: int | None = None) -> int:
        """Return the steps that fit, at most `STEPS`; 0 where not even the fewest do."""
        fixed = self.seconds(0, step_us, warmup=warmup)
        step_s = (self.step_us if step_us is None else min(step_us, self.step_us)) / 1e6
        steps = min(STEPS, int((seconds - fixed) / max(step_s, 1e-6)))
        return steps if steps >= FEWEST_STEPS else 0


def patience_s(expected_s: float, left_s: float) -> float:
    """Return the seconds after which a run is ended, where all have so much time left."""
    return min(max(SLACK * expected_s, LEAST_PATIENCE_S), max(expected_s, left_s) + GRACE_S)


def step_durations(session: Session) -> list[int]:
    """Return the measured steps' microseconds, of several ranks the slowest's."""
    slowest = _slowest(session)
    return [] if slowest is None else [step.duration for step in slowest.steps]


def _slowest(session: Session) -> MeasuredTraining | None:
    ranks = [training(session, trainer) for trainer in session.trainers]
    return max((rank for rank in ranks if rank.unit == "step" and rank.steps), key=_mean_us, default=None)


def _mean_us(rank: MeasuredTraining) -> float:
    return sum(step.duration for step in rank.steps) / len(rank.steps)


def _epoch_steps(rank: MeasuredTraining) -> int | None:
    """Return the steps of an epoch of the longest loader."""
    lengths = [loader.facts.get("length") for loader in rank.trainer.loaders]
    length = max((one for one in lengths if isinstance(one, int)), default=None)
    gets = sum(len(step.gets) for step in rank.steps)
    return None if length is None or not gets else -(-length * len(rank.steps) // gets)
