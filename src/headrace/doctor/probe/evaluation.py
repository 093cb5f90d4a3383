"""Which of the batches received within a step were for an evaluation, and not for the step: a pure rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

BEGUN, GOT, ENDED = "begun", "got", "ended"


class Event(NamedTuple):
    """Something that the training thread did with one pass over a DataLoader: began it, got batches of it, ended it."""

    what: str
    pass_: int
    start: int
    end: int
    with_grad: bool
    """Whether autograd recorded when it was called."""


def evaluation_passes(events: Sequence[Event], backwards: Sequence[int], training: set[int]) -> set[int]:
    """The passes in `events`, those of one step, that fed an evaluation. `backwards` are the starts of backward passes
    within the step, `training` the passes that fed the step before and have not ended since.

    One that feeds training goes on doing so. Of the others, a pass that was read while autograd was off evaluates, and
    so does one that began and ended with no backward between, provided that another pass is there to have fed the step:
    a fetcher that is one batch ahead ends a short epoch before the first of its backward passes, too.
    """
    seen = {event.pass_ for event in events if event.what == GOT} - training
    suspects = {pass_ for pass_ in seen if _was_without_grad(events, pass_) or _was_brief(events, backwards, pass_)}
    if suspects == seen and not training and backwards:
        suspects.discard(max(seen, default=-1))
    return suspects


def evaluation_intervals(
    events: Sequence[Event], evaluated: set[int], training_starts: Sequence[int], end: int
) -> list[tuple[int, int]]:
    """When the step evaluated: from the start of an evaluating pass until it ended, or, where it was broken off, until
    training went on (`training_starts`, starts of its backward passes and optimizers), at the latest until `end`."""
    intervals: list[tuple[int, int]] = []
    for position, event in enumerate(events):
        if event.pass_ not in evaluated:
            continue
        until = event.end
        if event.what != ENDED:
            following = [start for start in training_starts if start >= event.end]
            if position + 1 < len(events):
                following.append(events[position + 1].start)
            until = min([*following, end])
        if intervals and intervals[-1][1] >= event.start:
            intervals[-1] = (intervals[-1][0], until)
        else:
            intervals.append((event.start, until))
    return intervals


def _was_without_grad(events: Sequence[Event], pass_: int) -> bool:
    return any(event.what == GOT and event.pass_ == pass_ and not event.with_grad for event in events)


def _was_brief(events: Sequence[Event], backwards: Sequence[int], pass_: int) -> bool:
    begun = next((event.start for event in events if event.pass_ == pass_ and event.what == BEGUN), None)
    ended = next((event.end for event in events if event.pass_ == pass_ and event.what == ENDED), None)
    if begun is None or ended is None:
        return False
    return not any(begun <= backward < ended for backward in backwards)
