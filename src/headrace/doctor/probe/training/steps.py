"""Optimizer steps, cut from what the training thread does. Pure: clock readings in, steps out."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .received_batches import FetchedBatch

BACKWARD, OPTIMIZER, SKIPPED, COPY, COLLECTIVE, EVALUATION = "b", "o", "s", "h", "c", "e"
WORK, UNSOURCED, AHEAD = "d", "n", "f"
"""Kinds of span, as in docs/doctor/session.md."""
CLOSURE = ""
"""The kind of what runs inside an optimizer and is not its own: an interval that is no span."""
LEAST_WORK_NS = 50_000
"""Work on a batch that takes less is no span of its own."""
BEGUN, GOT, ENDED = "begun", "got", "ended"

Span = tuple[str, int, int]
"""Kind, start and end."""
_START = operator.itemgetter(1)


class PassEvent(NamedTuple):
    """Something that the training thread did with one pass over a DataLoader: began it, got batches of it, ended it."""

    what: str
    pass_: int
    start: int
    end: int
    with_grad: bool
    """Whether autograd recorded when it was called."""


class OptimizerStep:
    """One optimizer step, with all that began within it. Times are the clock's readings."""

    __slots__ = ("collectives", "end", "evaluated", "gets", "number", "ready", "spans", "start", "use", "work")

    def __init__(self, number: int, start: int) -> None:
        self.number = number
        self.start = start
        self.end: int | None = None
        """Set at the end of an optimizer's step; the step may yet go on, with another optimizer."""
        self.spans: list[Span] = []
        self.gets: list[FetchedBatch] = []
        self.evaluated: set[int] = set()
        """Passes of which the batches were for an evaluation."""
        self.collectives: list[tuple[int, int, Any]] = []
        self.ready: int | None = None
        self.use: tuple[int, int | None] | None = None
        """Of the cores in microseconds, CPU time and delay, where that was asked."""
        self.work: list[Span] = []
        """What the thread did between batches and the model, spans of any kind within it included."""


class StepTimeline:
    """The step that is open, and what is open within it.

    Spans never overlap: an inner one interrupts the outer, which goes on as another span of its kind. At most
    `most_spans` are recorded apart in a step; of the others each kind's time is added to the last of that kind.
    """

    def __init__(self, most_spans: int = 64, most_gets: int = 4096, most_collectives: int = 1024) -> None:
        self._most_spans = most_spans
        self._most_collectives = most_collectives
        self._most_gets = most_gets
        self._open: list[tuple[str, int]] = []
        self._optimizers: set[Any] = set()
        self._stepped_inside = False
        self._events: list[PassEvent] = []
        self._training: set[int] = set()
        self.optimizers = 0
        """How many optimizers took part in the step closed last."""
        self.gets = 0
        """How many batches the step closed last got, evaluations left out."""
        self.number = 0
        self.step: OptimizerStep | None = None

    def begin(self, start: int) -> OptimizerStep:
        """Return the open step; where there is none yet, the first one begins."""
        if self.step is None:
            self.step = OptimizerStep(self.number, start)
        return self.step

    def enter(self, kind: str, start: int) -> None:
        step = self.step or self.begin(start)
        if self._open:
            self._add(step, *self._open[-1], start)
        self._open.append((kind, start))

    def leave(self, end: int) -> None:
        kind, since = self._open.pop()
        step = self.begin(since)
        self._add(step, kind, since, end)
        if self._open:
            self._open[-1] = (self._open[-1][0], end)
        elif self._stepped_inside:  # optimizers that step while a backward pass runs: the step ends with the pass
            self._stepped_inside = False
            step.end = end

    def worked(self, kind: str, start: int, end: int) -> None:
        """Record what was done between a batch and the model."""
        work = self.begin(start).work
        if len(work) < self._most_spans:
            work.append((kind, start, end))
        elif work[-1][0] == kind:
            work[-1] = (kind, work[-1][1], work[-1][2] + end - start)

    def leave_out(self, start: int, end: int) -> None:
        """Record a stretch of time that is no part of the step, as an evaluation is none."""
        step = self.begin(start)
        self._add(step, EVALUATION, max(start, step.start), end)

    def collective(self, start: int, end: int, facts: Any) -> None:
        """Record a collective call with its `facts`, a bounded number of them: a loop may never step."""
        if self.step is not None and len(self.step.collectives) < self._most_collectives:
            self.step.collectives.append((start, end, facts))

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def is_within(self, kind: str) -> bool:
        """Tell whether a span of that kind is under way."""
        return any(kind == outer for outer, _ in self._open)

    def note(self, event: PassEvent) -> OptimizerStep:
        """Record something that was done with a pass, and return the open step. Batches in a row are one event."""
        step = self.begin(event.start)
        last = self._events[-1] if self._events else None
        if last is not None and last.what == event.what == GOT and last.pass_ == event.pass_:
            with_grad = last.with_grad and event.with_grad
            self._events[-1] = PassEvent(GOT, event.pass_, last.start, event.end, with_grad)
        elif len(self._events) < self._most_gets:
            self._events.append(event)
        return step

    def got(self, batch: FetchedBatch, with_grad: bool) -> None:
        gets = self.note(PassEvent(GOT, batch.pass_, batch.start, batch.end, with_grad)).gets
        if len(gets) >= self._most_gets:  # the oldest are those of a long evaluation
            del gets[: self._most_gets // 4]
        gets.append(batch)

    def fetching(self) -> OptimizerStep | None:
        """Return the step that has ended by now, if one has: a batch is about to be asked for, or a pass to begin."""
        if self._open and self._open[-1][0] == OPTIMIZER:  # it raised, and what comes after its steps was not called
            self._open.clear()
        return None if self._open else self.finish()

    def optimizer_begins(self, optimizer: Any, start: int) -> OptimizerStep | None:
        """Return the step that has ended by now, if one has: when this optimizer takes another step."""
        self.begin(start)
        closed = self.finish() if optimizer in self._optimizers and not self._open else None
        self.enter(OPTIMIZER, start)
        return closed

    def optimizer_ends(self, optimizer: Any, end: int) -> None:
        """End an optimizer's step, and with it the step, unless another optimizer goes on with that."""
        self.leave(end)
        self._optimizers.add(optimizer)
        self._stepped_inside = bool(self._open)
        if self.step is not None:
            self.step.end = end

    def stepped_inside(self, optimizer: Any) -> None:
        """Count an optimizer that steps in a thread of autograd while this one waits for the backward pass."""
        self._optimizers.add(optimizer)
        self._stepped_inside = bool(self._open)

    def skipped(self, optimizer: Any, start: int, end: int) -> None:
        """End a step in which GradScaler found infinite gradients, and called no optimizer."""
        step = self.begin(start)
        self._add(step, SKIPPED, start, end)
        self._optimizers.add(optimizer)
        step.end = end

    def is_whole(self) -> bool:
        """Tell whether as many optimizers have taken this step as the one before: nothing more is to be expected."""
        return self.step is not None and self.step.end is not None and len(self._optimizers) >= self.optimizers

    def finish(self) -> OptimizerStep | None:
        """Return the step that has ended and was not closed yet, if there is one."""
        step = self.step
        if step is None or step.end is None:
            return None
        end = step.end
        self._separate_evaluations(step, end)
        self.optimizers = len(self._optimizers)
        self.gets = sum(batch.pass_ not in step.evaluated for batch in step.gets)
        self._optimizers = set()
        self.number += 1
        self.step = following = OptimizerStep(self.number, end)
        following.spans = [span for span in step.spans if span[1] >= end]
        following.work = [span for span in step.work if span[1] >= end]
        following.collectives = [call for call in step.collectives if call[0] >= end]
        own = [span for span in step.spans if span[1] < end]
        step.spans = _with_work([span for span in step.work if span[1] < end], own) if step.work else own
        step.collectives = [call for call in step.collectives if call[0] < end]
        return step

    def resume(self, number: int, start: int) -> None:
        """Drop the step that is open and whatever is in it, and begin step `number`."""
        self._open.clear()
        self._optimizers.clear()
        self._events.clear()
        self._stepped_inside = False
        self.number = number
        self.step = OptimizerStep(number, start)

    def _add(self, step: OptimizerStep, kind: str, start: int, end: int) -> None:
        if kind == CLOSURE or end <= start:
            return
        spans = step.spans
        if len(spans) < self._most_spans:
            spans.append((kind, start, end))
            return
        for position in range(len(spans) - 1, -1, -1):
            if spans[position][0] == kind:
                spans[position] = (kind, spans[position][1], spans[position][2] + end - start)
                return

    def _separate_evaluations(self, step: OptimizerStep, end: int) -> None:
        events, self._events = self._events, []
        if not events:
            return
        if len(events) == 1 and events[0].what == GOT and events[0].pass_ in self._training:  # nearly every step
            self._training = {events[0].pass_}
            return
        starts = [start for kind, start, _ in step.spans if kind == BACKWARD]
        step.evaluated = evaluation_passes(events, starts, self._training)
        ended = {event.pass_ for event in events if event.what == ENDED}
        got = {event.pass_ for event in events if event.what == GOT}
        self._training = (got - step.evaluated - ended) or (self._training - ended)
        if not step.evaluated:
            return
        resumed = [start for kind, start, _ in step.spans if kind in (BACKWARD, OPTIMIZER, SKIPPED)]
        intervals = evaluation_intervals(events, step.evaluated, resumed, end)
        spans = [span for span in step.spans if not any(start <= span[1] < until for start, until in intervals)]
        spans += [(EVALUATION, start, until) for start, until in intervals]
        step.spans = sorted(spans, key=_START)


def _with_work(work: Sequence[Span], spans: Sequence[Span]) -> list[Span]:
    """Return all spans by their start, work cut where another span lies in it."""
    others = sorted(spans, key=_START)
    found = list(others)
    for kind, start, end in work:
        if end - start < LEAST_WORK_NS:
            continue
        for _, begun, ended in others:
            if start < ended and begun < end:
                found.append((kind, start, begun))
                start = max(start, ended)
        found.append((kind, start, end))
    if len(found) == len(others):
        return others
    return sorted((span for span in found if span[2] > span[1]), key=_START)


def evaluation_passes(events: Sequence[PassEvent], backwards: Sequence[int], training: set[int]) -> set[int]:
    """Return the passes in `events`, those of one step, that fed an evaluation, and not the step.

    `backwards` are the starts of backward passes within the step, `training` the passes that fed the step before and
    have not ended since. One that feeds training goes on doing so. Of the others, a pass that was read while autograd
    was off evaluates, and so does one that began and ended with no backward between, provided that another pass is
    there to have fed the step: a fetcher that is one batch ahead ends a short epoch before the first of its backward
    passes, too.
    """
    seen = {event.pass_ for event in events if event.what == GOT} - training
    without_grad = {event.pass_ for event in events if event.what == GOT and not event.with_grad}
    begun = {event.pass_: event.start for event in reversed(events) if event.what == BEGUN}
    ended = {event.pass_: event.end for event in reversed(events) if event.what == ENDED}
    trained = {pass_ for pass_ in ended if any(begun.get(pass_, 0) <= start < ended[pass_] for start in backwards)}
    suspects = seen & (without_grad | (begun.keys() & ended.keys()) - trained)
    if suspects == seen and not training and backwards:
        suspects.discard(max(seen, default=-1))
    return suspects


def evaluation_intervals(
    events: Sequence[PassEvent], evaluated: set[int], training_starts: Sequence[int], end: int
) -> list[tuple[int, int]]:
    """Return when the step evaluated: from the start of an evaluating pass until it ended.

    One that was broken off lasts until training went on (`training_starts`, starts of its backward passes and
    optimizers), at the latest until `end`.
    """
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
