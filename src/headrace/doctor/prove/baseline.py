"""Whether two runs trained on the same samples. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.doctor.session.model import Digest, Session, Trainer

DIGESTS = 32
"""Batches of each rank that are compared."""
ROUNDING = 0.02
"""Of the range of a tensor's values: two that differ by no more differ by how they were rounded."""
ROUNDED_SHARE = 0.95
"""Of the values that must do so: a pixel at an edge may differ by more."""


@dataclass(frozen=True)
class Samples:
    """The first batches of a run, by rank, and whether random numbers were drawn while they were made."""

    by_rank: dict[int, list[Digest]]
    draws: bool
    later: frozenset[tuple[int, int]] = frozenset()
    """Ranks and passes that are not the first over their loader."""

    @classmethod
    def of(cls, session: Session) -> Samples:
        draws = any(process.facts.get("facts", {}).get("draws") for process in session.processes)
        by_rank = {trainer.rank: trainer.digests for trainer in session.trainers}
        return cls(by_rank, bool(draws), frozenset(later for trainer in session.trainers for later in _later(trainer)))


def _later(trainer: Trainer) -> Iterator[tuple[int, int]]:
    begun: set[int] = set()
    for one in trainer.passes:
        if one.loader in begun:
            yield trainer.rank, one.number
        begun.add(one.loader)


def compare(before: Samples, after: Samples, is_repeatable: bool | None) -> str | None:
    """`same`, `close`, `different` or None, of docs/doctor/remedies.md. `is_repeatable` says whether two runs without
    any change have the same samples; None where that is not known."""
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


def are_equal(before: Samples, after: Samples) -> bool | None:
    """None where there is nothing to compare."""
    pairs = _pairs(before, after)
    return all(one.content == other.content for one, other in pairs) if pairs else None


def _pairs(before: Samples, after: Samples) -> list[tuple[Digest, Digest]]:
    """Batch by batch, as far as both go, and as far as both draw the same keys in passes after the first: what was
    drawn meanwhile decides their order, and persistent workers, say, draw less."""
    pairs = []
    for rank, digests in before.by_rank.items():
        for one, other in zip(digests, after.by_rank.get(rank, []), strict=False):
            if one.keys != other.keys and ((rank, one.pass_) in before.later or (rank, other.pass_) in after.later):
                break
            pairs.append((one, other))
    return pairs


def _have_other_keys(pairs: Sequence[tuple[Digest, Digest]]) -> bool:
    return any(one.keys != other.keys for one, other in pairs)


def _is_close(one: Digest, other: Digest) -> bool:
    """By the values that were kept of them: as many, and each tensor's near the other's."""
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
