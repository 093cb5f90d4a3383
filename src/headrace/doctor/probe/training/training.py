"""Observer of a process's training thread: hooks report events, and it maintains the open step."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import get_ident
from typing import Any, Callable, NoReturn

from ..evidence_file import EvidenceFile, LastRecords
from ..look.first_batches import ModelInputs
from ..look.value_look import NUMBER
from ..patches import Fault
from ..settings import ProbeSettings, SessionClock
from ..stages import NOBODY, nothing
from .closed_steps import ClosedSteps
from .loader_sources import HeldIterator
from .loop_watch import StandstillWatch
from .replay import LoopReplay
from .short_passes import ShortPasses
from .state import LookedLoader, ObservedPass, QueueReader, TrainingState
from .steps import BACKWARD, BEGUN, ENDED, UNSOURCED, WORK, FetchedBatch, OptimizerStep, PassEvent
from .windows import StepsMeasured, Windows

now = time.monotonic_ns
MARKED_COPIES = 4
"""Copies to the device after each batch that get device marks."""
FLUSH_GETS = 64
"""Number of batches written together while no optimizer has stepped."""
FLUSH_AFTER_NS = 1_000_000_000
"""Maximum delay of these batches in ns, since a signal may end a run that never trains. With autograd off, as in a
check of the validation loader before the first step, batches belong to no step and may wait."""


class TrainingObserver:
    """Observer of the training thread.

    Activity of other threads makes no span; their batches are recorded separately. Methods are called in the order of
    events. Except for `StepsMeasured`, they never raise: a failure switches the whole observer off.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        evidence: EvidenceFile,
        clock: SessionClock,
        last: LastRecords,
        *,
        note: Callable[[str, str], None],
        fault: Fault,
    ) -> None:
        self.state = state = TrainingState(settings, evidence, clock, note, fault)
        self.settings, self.evidence, self.clock, self.fault = settings, evidence, clock, fault
        self._last = last
        self.thread, self.counter = state.thread, state.counter
        self.costs, self.elsewhere = state.costs, state.elsewhere
        self.group, self.work, self.limit, self.say = state.group, state.work, state.limit, state.say
        self.readers: dict[int, QueueReader] = {}
        """Readers of the threads that currently read for an iterator."""
        self.looked = LookedLoader(settings, note)
        self.replay = LoopReplay(state)
        self.windows = Windows(state, self.replay)
        self.standstill = StandstillWatch(settings, evidence, clock, lambda: self.thread.is_fetching)
        self.short = ShortPasses(state)
        self.inputs: ModelInputs | None = None
        self.at_close: list[Callable[[], None]] = []
        """Functions called after a step is written, for periodic work."""
        self.at_finish: list[Callable[[], None]] = [self.windows.close]
        self._begin()

    def _begin(self) -> None:
        self.state.begin()
        self._copies = 0
        self.backwards_seen = 0
        self.closed = ClosedSteps(self.state, self.windows.closed, self.at_close)

    # Passes and batches.

    def begin_pass(self, loader: int | None) -> int:
        """Begin a pass and return its number. `pass_begun` must follow in the same thread."""
        if get_ident() == self.thread.observed:
            self._close(self.state.steps.fetching(loader))
            self.closed.write()
            self.evidence.write(*self.work.started(self.clock.now_us()))
        self.thread.is_fetching |= self.thread.is_its_thread()
        number = self.counter.opening = self.counter.passes
        self.counter.passes += 1
        return number

    def number_of(self, loader: Any) -> int | None:
        """Return the number of a loader in this process's evidence; None before its first pass."""
        file, number = getattr(loader, NUMBER, (None, None))
        return number if file == self.evidence.path else None

    def next_number(self, loader: Any) -> int:
        """Return the number of a loader, or the number that it gets in its first pass."""
        number = self.number_of(loader)
        return self.counter.loaders if number is None else number

    def pass_begun(self, number: int, start: int, with_grad: bool) -> None:
        self.pass_failed()
        if get_ident() == self.thread.observed:
            if (rank := self.group.joined()) is not None:
                self.standstill.has_peers = True
                self.evidence.write(("facts", self.clock.now_us(), {"rank": rank}))
            self.state.steps.note(PassEvent(BEGUN, number, start, now(), with_grad))

    def pass_failed(self) -> None:
        """Cancel the pass: `iter(loader)` raised."""
        self.counter.opening = None
        if self.thread.is_its_thread():
            self.thread.is_fetching = False

    def batch_requested(self, loader: int | None = None) -> int:
        """Return the time at which the training thread requests a batch of a loader, if its number is known."""
        begun = now()
        self.work.end(begun, self.state.steps)
        self._close(self.state.steps.fetching(loader))
        self._mark("w")
        self.thread.is_fetching = True
        self.standstill.follow(get_ident())
        start = now()
        self.costs.measured_ns += start - begun
        return start

    def batch_returned(self) -> int:
        """Return the time at which the batch arrives, or the pass ends."""
        end = now()
        self.thread.is_fetching = False
        self._copies = 0
        self._mark("r")
        self.costs.since(end)
        return end

    def wait(
        self,
        where: str,
        call: Callable[[], Any],
        returned: Callable[[Any, int, int], None],
        ended: Callable[[int], None] = nothing,
        loader: int | None = None,
    ) -> Any:
        """Return `call()`, counted as a wait for `loader`. `returned(batch, start, end)` or `ended(start)` follows."""
        try:
            start = self.batch_requested(loader)
        except Exception as error:
            self.fail(where, error)
            return call()
        try:
            batch = call()
        except BaseException as reason:
            try:
                self.batch_returned()
                if isinstance(reason, StopIteration):
                    ended(start)
            except Exception as error:
                self.fail(where, error)
            raise
        try:
            returned(batch, start, self.batch_returned())
        except Exception as error:
            self.fail(where, error)
        return batch

    def pass_ended(self, number: int, start: int, with_grad: bool) -> None:
        """Record that the `next()` called at `start` found the end of the pass."""
        end = now()
        self.state.steps.note(PassEvent(ENDED, number, start, end, with_grad))
        self.evidence.write(("last", number, self.clock.us(start), (end - start) // 1000))

    def record_other_thread(self, batch: FetchedBatch, thread: str) -> None:
        self.elsewhere.add(batch)
        self.say("thread", f"Batches are fetched in another thread ({thread}) than the one that trains.")

    def adopt_batch(self, batch: FetchedBatch | None, start: int, end: int) -> None:
        """Record a batch that the training thread takes over from another thread."""
        if batch is not None and self.elsewhere.take(batch):
            self.record_batch(batch._replace(start=start, end=end), True)

    def record_batch(self, batch: FetchedBatch, with_grad: bool) -> None:
        """Record a batch of the training thread, which begins work on it."""
        self.state.steps.record_batch(batch, with_grad)
        self.standstill.batch_returned()
        step = self.state.steps.step
        if not self.state.steps_seen and step is not None:
            is_due = with_grad and batch.end - step.gets[0].start >= FLUSH_AFTER_NS
            if is_due or len(step.gets) >= FLUSH_GETS:
                self.closed.write_batches(step)
        self.work.begin(WORK, now(), self.thread.observed)

    def feed(self, pass_: ObservedPass, batch: Any, received: FetchedBatch, source: Callable[[], HeldIterator]) -> None:
        """Count a batch that feeds training, and let the windows store it and its source while they collect any."""
        self.looked.fed_by(pass_)
        if self.windows.is_keeping:
            begun = now()
            self.windows.keep(source, pass_, batch, received)
            self.costs.since(begun)
            self.work.restart(now())

    def model_called(self) -> None:
        """End the work on a batch in the training thread: the forward pass begins."""
        end = now()
        self.work.end(end, self.state.steps)
        self._mark("m")
        self.costs.since(end)

    def enter(self, kind: str, mark: str = "") -> bool:
        """Begin a span and return True, if it counts; `leave` ends it. `mark` is the kind of the device mark."""
        if get_ident() != self.thread.observed or self.thread.is_fetching:
            return False
        try:
            start = now()
            if kind is BACKWARD:
                self.work.drop()
            self.state.steps.enter(kind, start)
            self._mark(mark)
            self.backwards_seen += kind is BACKWARD
            self.costs.since(start)
        except Exception as error:
            self.fail("spans", error)
            return False
        return True

    def leave(self, mark: str = "") -> None:
        if get_ident() != self.thread.observed:
            return
        try:
            end = now()
            self.state.steps.leave(end)
            self._mark(mark)
            self.costs.since(end)
        except Exception as error:
            self.fail("spans", error)

    def _mark(self, mark: str) -> None:
        """Mark the start or the end of a span on the device's stream."""
        if self.state.marks is not None and mark:
            self.state.marks.mark(mark)

    def may_mark_copy(self) -> bool:
        """Return True if device marks may show this copy. A batch of many tensors must not need a mark for each."""
        self._copies += 1
        return self._copies <= MARKED_COPIES

    def collective(self, name: str, start: int) -> None:
        """Record a synchronous collective that has ended in the training thread."""
        self.state.steps.collective(start, now(), self.evidence.name(name))

    def gradients_ready(self) -> None:
        """Record in the step that this rank's own gradients are done, before it waits for other ranks."""
        try:
            if self.state.steps.step is not None:
                self.state.steps.step.ready = now()
            self._mark("g")
        except Exception as error:
            self.fail("gradients", error)

    def optimizer_begins(self, optimizer: Any) -> bool:
        """Begin an optimizer's step. Return True if `optimizer_ends` must be called."""
        if not self._is_training_thread(optimizer):
            return False
        begun = now()
        self.work.drop()
        self._close(self.state.steps.optimizer_begins(id(optimizer), begun))
        if self.state.marks is not None:
            self.state.marks.device.follow()
        self._mark("o")
        self.costs.since(begun)
        return True

    def optimizer_ends(self, optimizer: Any) -> None:
        end = now()
        self.state.steps.optimizer_ends(id(optimizer), end)
        self.costs.since(end)
        self._step_ended()

    def skipped(self, optimizer: Any, start: int) -> None:
        """End a step in which GradScaler found infinite gradients and called no optimizer."""
        if get_ident() != self.thread.observed:
            return
        self.state.steps.skipped(id(optimizer), start, now())
        self.say("scaler", "GradScaler skipped steps because gradients were infinite. Each is counted as a step.")
        self._step_ended()

    def look_and_end(self, loader: Any) -> NoReturn:
        """Inspect a loader's samples and end the run, which ends properly even if the inspection ends the process."""
        self.limit.is_over = True
        self._last.reason = "steps"
        self.standstill.stop()
        if self.looked.may_look:
            self._last.write()
        self.looked.look_at(loader)
        raise StepsMeasured

    def _is_training_thread(self, optimizer: Any) -> bool:
        thread = get_ident()
        if thread == self.thread.observed:
            return not self.thread.is_fetching
        if self.thread.observed == NOBODY:
            return False
        if self.state.steps.is_within(BACKWARD):
            self.state.steps.stepped_inside(id(optimizer))
        elif not self.state.steps_seen:
            self.thread.begin(thread)
            self.counter.opening = None
            self._begin()
            return True
        else:
            self.say("engine", "Optimizers step in several threads at once; only one of them was followed.")
        return False

    def _step_ended(self) -> None:
        self.state.steps_seen += 1
        self.standstill.step_ended()
        self._mark("p")
        if not self.counter.passes and not self.elsewhere.threads:
            self.work.begin(UNSOURCED, now(), self.thread.observed)
        ended = self.state.steps.number + 1
        if not self.windows.is_due(ended) or not self.state.steps.is_whole():
            return
        self.windows.go_on()
        if self.limit.is_reached(ended):
            if self.settings.observe:
                self.stop()
                return
            self.finish()
            self.look_and_end(self.looked.most_used())

    # Writing.

    def finish(self) -> None:
        """Write the remaining records: the process, its observation, or its measured steps end."""
        if not self.thread.is_on:
            return
        try:
            closed = self.state.steps.finish()
            if closed is not None:
                self.closed.close(closed)
            self.closed.write(is_over=True)
            if self.state.steps.step is not None:
                self.closed.write_batches(self.state.steps.step)
            for call in self.at_finish:
                call()
        except Exception as error:
            self.fail("finish", error)

    def _close(self, step: OptimizerStep | None) -> None:
        """Close a step that has ended, if any. The command ends once the requested steps are measured."""
        if step is not None:
            self.closed.close(step)
        if self.limit.is_over:
            raise StepsMeasured

    def stop(self) -> None:
        """Finish, and disable observation in all hook functions that others still reference."""
        self.finish()
        self.work.stop()
        self.standstill.stop()
        self.thread.observed = NOBODY
        self.readers.clear()

    # Failures and forks.

    def fail(self, where: str, error: BaseException) -> None:
        """Stop observing this process's training after an error of the probe."""
        self.thread.observed = NOBODY
        with suppress(Exception):
            self.work.stop()
            self.standstill.stop()
        self.readers.clear()
        self.fault(f"training: {where}", error)

    def forked(self) -> None:
        """Reset in the child of a fork, which has trained nothing yet."""
        self.readers.clear()
        self.standstill.forked()
        self.short.forked()
        self.windows.forked()
        self.state.forked()
        self._begin()
