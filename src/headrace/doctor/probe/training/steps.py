"""Training steps, derived from the training thread's activity. Pure: clock readings in, steps out.

A step is one iteration of the loop over the main loader that steps an optimizer: several optimizers, or one that steps
several times, or batches of further loaders in one iteration make one step. An iteration without an optimizer is part
of the next step (gradient accumulation). Without a loader, a step ends where an optimizer steps again.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

BACKWARD, OPTIMIZER, SKIPPED, COPY, COLLECTIVE, EVALUATION = "b", "o", "s", "h", "c", "e"
WORK, UNSOURCED = "d", "n"
"""Kinds of span, as in docs/doctor/internals.md."""
CLOSURE = ""
"""Kind of an interval inside an optimizer that is neither its own time nor a span."""
MOST_UPDATES = 24
"""Number of optimizer steps on one batch above which the loop is not one over a loader."""
LEAST_WORK_NS = 50_000
"""Minimum duration of a span of work on a batch."""
BEGUN, GOT, ENDED = "begun", "got", "ended"

Span = tuple[str, int, int]
"""Kind, start and end."""
_START = operator.itemgetter(1)


class FetchedBatch(NamedTuple):
    """Batch that a thread received, as in the `get` record. Times are clock readings."""

    pass_: int
    index_: int | None
    """Index; None for a copy of a cached batch."""
    start: int
    end: int
    arrived: int | None = None
    unpickle: int | None = None
    pin_start: int | None = None
    pin: int | None = None
    bytes: int | None = None
    shape: int | None = None
    unpickle_cpu: int | None = None
    loader: int | None = None


class PassEvent(NamedTuple):
    """Event of the training thread in one pass over a DataLoader: begun, got batches, or ended."""

    what: str
    pass_: int
    start: int
    end: int
    with_grad: bool
    """True if autograd was recording during the call."""


class OptimizerStep:
    """One training step, with everything that began in it. Times are clock readings."""

    __slots__ = (
        *("collectives", "end", "evaluated", "gets", "is_fed", "number", "ready", "spans", "start", "updates"),
        *("use", "work"),
    )

    def __init__(self, number: int, start: int) -> None:
        self.number, self.start = number, start
        self.end: int | None = None
        """End of the last optimizer's step so far."""
        self.updates = 0
        """Number of optimizer steps."""
        self.spans: list[Span] = []
        self.gets: list[FetchedBatch] = []
        self.is_fed = False
        """True if a batch arrived while autograd was recording."""
        self.evaluated: set[int] = set()
        """Passes that fed an evaluation."""
        self.collectives: list[tuple[int, int, Any]] = []
        self.ready: int | None = None
        self.use: tuple[int, int | None] | None = None
        """CPU time and scheduling delay in microseconds, if measured."""
        self.work: list[Span] = []
        """Work between batches and the model, including nested spans of any kind."""


class StepTimeline:
    """The open step, and the open spans in it.

    Spans never overlap: an inner span interrupts the outer one, which continues as a new span of its kind. At most
    `most_spans` are recorded per step; further time is added to the last span of its kind.
    """

    def __init__(self, most_spans: int = 64, most_gets: int = 4096, most_collectives: int = 1024) -> None:
        self._most_spans, self._most_gets, self._most_collectives = most_spans, most_gets, most_collectives
        self._open: list[tuple[str, int]] = []
        self._optimizers: set[Any] = set()
        self._fed: dict[int | None, int] = {}
        """Batches of closed steps, by loader."""
        self._has_loop = True
        """False once more optimizers stepped on one batch than a loop over a loader can mean."""
        self._stepped_inside = False
        self._events: list[PassEvent] = []
        self._training: set[int] = set()
        self.updates = 0
        """Number of optimizer steps in the last closed step."""
        self.gets = 0
        """Number of batches of the last closed step, evaluations excluded."""
        self.number = 0
        self.step: OptimizerStep | None = None

    def begin(self, start: int) -> OptimizerStep:
        """Return the open step, beginning the first one if necessary."""
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
        step = self.step or self.begin(since)
        self._add(step, kind, since, end)
        if self._open:
            self._open[-1] = (self._open[-1][0], end)
        elif self._stepped_inside:  # optimizers stepped during a backward pass: the step ends with the pass
            self._stepped_inside = False
            step.end = end

    def worked(self, kind: str, start: int, end: int) -> None:
        work = (self.step or self.begin(start)).work
        if len(work) < self._most_spans:
            work.append((kind, start, end))
        elif work[-1][0] == kind:
            work[-1] = (kind, work[-1][1], work[-1][2] + end - start)

    def leave_out(self, start: int, end: int) -> None:
        """Record time that belongs to no step, such as an evaluation."""
        step = self.begin(start)
        self._add(step, EVALUATION, max(start, step.start), end)

    def collective(self, start: int, end: int, name: Any) -> None:
        """Record a collective with its name. Their number is bounded, since a loop may never step."""
        if self.step is not None and len(self.step.collectives) < self._most_collectives:
            self.step.collectives.append((start, end, name))

    def is_within(self, kind: str) -> bool:
        return any(kind == outer for outer, _ in self._open)

    def note(self, event: PassEvent) -> OptimizerStep:
        """Record an event of a pass, and return the open step. Consecutive batches are one event."""
        step = self.step or self.begin(event.start)
        last = self._events[-1] if self._events else None
        if last is not None and last.what == event.what == GOT and last.pass_ == event.pass_:
            with_grad = last.with_grad and event.with_grad
            self._events[-1] = PassEvent(GOT, event.pass_, last.start, event.end, with_grad)
        elif len(self._events) < self._most_gets:
            self._events.append(event)
        return step

    def record_batch(self, batch: FetchedBatch, with_grad: bool) -> None:
        step = self.note(PassEvent(GOT, batch.pass_, batch.start, batch.end, with_grad))
        step.is_fed |= with_grad
        gets = step.gets
        if len(gets) >= self._most_gets:  # the oldest belong to a long evaluation
            del gets[: self._most_gets // 4]
        gets.append(batch)

    def fetching(self, loader: int | None = None) -> OptimizerStep | None:
        """Return the step that has ended, if any: a batch of `loader` is about to be requested, or its pass to begin.

        A loader that feeds steps, but not yet this one, continues it, unless it is the main loader.
        """
        if self._open and self._open[-1][0] == OPTIMIZER:  # it raised, and its post-step hook was not called
            self._open.clear()
        if self._open or self.step is None or self.step.end is None:
            return None
        return None if len(self._fed) > 1 and self._is_further(loader, self.step.gets) else self.finish()

    def _is_further(self, loader: int | None, gets: Sequence[FetchedBatch]) -> bool:
        is_known = loader is not None and loader in self._fed and loader != max(self._fed, key=self._fed.__getitem__)
        return is_known and bool(gets) and all(batch.loader != loader for batch in gets)

    def optimizer_begins(self, optimizer: Any, start: int) -> OptimizerStep | None:
        """Return the step that has ended, if any: without a batch, it has if this optimizer steps again."""
        closed = None
        if optimizer in self._optimizers and not self._open and not self._is_iteration():
            closed = self.finish()
        self.enter(OPTIMIZER, start)
        return closed

    def _is_iteration(self) -> bool:
        """Return True if the open step is an iteration over a loader, which further optimizer steps do not end."""
        step = self.step
        if step is not None and step.updates >= MOST_UPDATES:
            self._has_loop = False
        return self._has_loop and step is not None and step.is_fed

    def optimizer_ends(self, optimizer: Any, end: int) -> None:
        """End an optimizer's step, and with it the step, unless the iteration continues."""
        self.leave(end)
        self._updated(optimizer)
        self._stepped_inside = bool(self._open)
        if self.step is not None:
            self.step.end = end

    def stepped_inside(self, optimizer: Any) -> None:
        """Count an optimizer that steps in an autograd thread while this thread waits for the backward pass."""
        self._updated(optimizer)
        self._stepped_inside = bool(self._open)

    def _updated(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)
        if self.step is not None:
            self.step.updates += 1

    def skipped(self, optimizer: Any, start: int, end: int) -> None:
        """End a step in which GradScaler found infinite gradients and called no optimizer."""
        step = self.begin(start)
        self._add(step, SKIPPED, start, end)
        self._updated(optimizer)
        step.end = end

    def is_whole(self) -> bool:
        """Return True if optimizers have stepped as often as in the previous step, so that no more are expected."""
        return self.step is not None and self.step.end is not None and self.step.updates >= self.updates

    def finish(self) -> OptimizerStep | None:
        """Close and return the step that has ended, or return None."""
        step = self.step
        if step is None or step.end is None:
            return None
        end = step.end
        self.number += 1
        self.step = following = OptimizerStep(self.number, end)
        if step.gets and step.gets[-1].start >= end:  # of a further loader, which the optimizers did not use
            following.gets = [batch for batch in step.gets if batch.start >= end]
            step.gets = [batch for batch in step.gets if batch.start < end]
        self._separate_evaluations(step, end)
        self.updates = step.updates
        self.gets = 0
        for batch in step.gets:
            if batch.pass_ not in step.evaluated:
                self.gets += 1
                self._fed[batch.loader] = self._fed.get(batch.loader, 0) + 1
        self._optimizers = set()
        following.spans = [span for span in step.spans if span[1] >= end]
        following.work = [span for span in step.work if span[1] >= end]
        following.collectives = [call for call in step.collectives if call[0] >= end]
        own = [span for span in step.spans if span[1] < end]
        step.spans = _with_work([span for span in step.work if span[1] < end], own) if step.work else own
        step.collectives = [call for call in step.collectives if call[0] < end]
        return step

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
        if events and events[-1].start >= end:
            self._events = [event for event in events if event.start >= end]
            events = [event for event in events if event.start < end]
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
    """Return all spans by start time, with work split around other spans."""
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
    """Return the passes in `events` of one step that fed an evaluation rather than the step.

    `backwards` are the starts of backward passes in the step, `training` the passes that fed the previous step and have
    not ended. A pass that feeds training continues to do so. Of the others, a pass read with autograd off is an
    evaluation. So is a pass that began and ended without a backward pass in between, if another pass can have fed the
    step: a fetcher one batch ahead also ends a short epoch before its first backward pass.
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
    """Return the times of evaluation in the step: from the start of an evaluating pass to its end.

    An aborted pass lasts until training resumes (`training_starts`, the starts of backward passes and optimizers), at
    the latest until `end`.
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
