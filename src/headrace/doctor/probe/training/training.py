"""The training thread of a process: hooks report what happens, and it keeps the step that is open."""

from __future__ import annotations

import time
from threading import get_ident, main_thread
from typing import TYPE_CHECKING, Any, Callable
from weakref import WeakSet

from ..evidence_file import BLOCK
from ..overhead import NOBODY, PausedTraining, TrainingCost
from ..settings import CoreUse, core_use
from .device_marks import DeviceMarks, ProfilerRanges
from .step_records import (
    GivenBatch,
    HandedOverBatches,
    QueueReaders,
    ReplayedBatch,
    StepWriter,
    batch_records,
    device_records,
    fetch_records,
)
from .steps import BACKWARD, OPTIMIZER, OptimizerStep, StepTimeline
from .windows import RankAgreement, StepLimit, StepsMeasured, Windows

if TYPE_CHECKING:
    from ..probe import Probe


now = time.monotonic_ns
READY_EVERY = 5
"""Where there are several ranks, every how many-th step is stamped with the moment when its own gradients were done."""
MARKED_COPIES = 4
"""Copies to the device after each batch that the device's marks show."""
FLUSH_GETS = 64
"""So many batches are written together where no optimizer has stepped."""
FLUSH_AFTER_NS = 1_000_000_000
"""Or as long after the first of them: a run that never trains may be ended by a signal at any time. Not where autograd
is off, as in a check of the validation loader that comes before the first step, whose batches are no step's."""


class TrainingObserver:
    """The training thread is the main one, or else the first other one in which an optimizer steps. What other threads
    do makes no span; batches that they receive are kept apart.

    Its methods are called in the order in which things happen, and `Finished` apart never raise: a failure switches all
    of it off.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.thread = NOBODY
        self.marks: DeviceMarks | None = None
        self.ranges: ProfilerRanges | None = None
        self.readers = QueueReaders()
        self.costs = TrainingCost()
        self.may_rest = probe.settings.observe
        """Whether steps may be let pass unobserved. Not where hooks would not see when to go on."""
        self.limit = StepLimit(probe.settings.warmup, None if probe.settings.observe else probe.settings.steps)
        self.at_close: list[Callable[[], None]] = []
        """Called when a step has been written: what is to be done now and then."""
        self.at_first_fetcher: list[Callable[[], None]] = []
        """Called when a batch was received in another thread than the training thread for the first time."""
        self.at_finish: list[Callable[[], None]] = []
        self.at_finish.append(lambda: self.windows.close())
        self.world_size: Callable[[], int] = lambda: 1
        self.ranks: Callable[[], RankAgreement | None] = lambda: None
        """How they decide something together; None where there is only this one."""
        self.schedulers: WeakSet[Any] = WeakSet()
        """Those of learning rates that raise beyond an end."""
        self.windows = Windows(self)
        self.seek: Callable[[], None] | None = None
        """Looks for what gives the batches, while nothing is known to."""
        self._said: set[str] = set()
        self._begin(main_thread().ident or get_ident())

    def _begin(self, thread: int) -> None:
        self.thread = thread
        self.resting = NOBODY
        """The training thread while it is let alone: `thread` is nobody's then, so that hooks do nothing."""
        self.rests = PausedTraining(self)
        self.steps = StepTimeline()
        self.writer = StepWriter(self.probe, self.costs)
        self.elsewhere = HandedOverBatches()
        self.passes = 0
        self.loaders = 0
        self.opening: int | None = None
        """The number of the pass that is being begun in `iter(loader)`."""
        self.is_fetching = False
        """Whether the training thread is in a `next()` or `iter()` of a DataLoader."""
        self._copies = 0
        self.is_stamped = False
        """Whether the moment at which the open step's own gradients are done is wanted."""
        self.steps_seen = 0
        self.backwards_seen = 0
        self._used: CoreUse | None = None
        """Of the cores, until the step closed last. Not where a run is only observed: it is to cost next to nothing."""

    def follow_device(self, marks: DeviceMarks) -> None:
        self.marks = marks

    # Passes and batches.

    def begin_pass(self) -> int:
        """Gives its number. To be followed by `pass_begun` in the same thread."""
        if get_ident() == self.thread:
            self._close_what_ended()
            self.write_steps()
        self.is_fetching |= self.is_its_thread()
        number = self.opening = self.passes
        self.passes += 1
        return number

    def pass_begun(self, number: int, start: int, with_grad: bool) -> None:
        self.pass_failed()
        if get_ident() == self.thread:
            self.steps.pass_begun(number, start, now(), with_grad)

    def pass_failed(self) -> None:
        """`iter(loader)` raised."""
        self.opening = None
        if self.is_its_thread():
            self.is_fetching = False

    def ask(self) -> int:
        """The training thread asks for a batch from the time on that this gives."""
        begun = now()
        self._close_what_ended()
        if self.marks is not None:
            self.marks.mark("w")
        if self.ranges is not None:
            self.ranges.enter("w")
        self.is_fetching = True
        start = now()
        self.costs.measured_ns += start - begun
        return start

    def received(self) -> int:
        """It has one, or the pass has ended: the time of that."""
        end = now()
        self.is_fetching = False
        self._copies = 0
        if self.marks is not None:
            self.marks.mark("r")
        if self.ranges is not None:
            self.ranges.leave()
        self.costs.since(end)
        return end

    def gave_up(self) -> None:
        """It asked another thread for a batch and got none: an error, or a time limit. Nothing of ours may hide it."""
        try:
            self.received()
        except Exception as error:
            self.fail("prefetcher", error)

    def pass_ended(self, number: int, start: int, with_grad: bool) -> None:
        """The `next()` called at `start` found no more batch."""
        end = now()
        self.steps.pass_ended(number, start, end, with_grad)
        clock = self.probe.clock
        self.probe.evidence.write(("last", number, clock.us(start), (end - start) // 1000))

    def got_elsewhere(self, batch: GivenBatch, thread: str) -> None:
        """Another thread has a batch."""
        self.may_rest = False
        self.elsewhere.add(batch)
        while self.at_first_fetcher:
            self.at_first_fetcher.pop()()
        self.say("thread", f"Batches are fetched in another thread ({thread}) than the one that trains.")

    def took_over(self, start: int, batch: GivenBatch | None) -> None:
        """The training thread has waited since `start` for another thread, and has this batch of it now, if any."""
        try:
            end = self.received()
            if batch is not None and self.elsewhere.take(batch):
                self.got(batch._replace(start=start, end=end), True)
        except Exception as error:
            self.fail("prefetcher", error)

    def got(self, batch: GivenBatch, with_grad: bool) -> None:
        self.steps.got(batch.pass_, batch.start, batch.end, with_grad, batch)
        step = self.steps.step
        if self.steps_seen or step is None:
            return
        is_due = with_grad and batch.end - step.gets[0][0].start >= FLUSH_AFTER_NS
        if is_due or len(step.gets) >= FLUSH_GETS:
            self.probe.evidence.write(*batch_records(self.probe.clock, step))
            step.gets.clear()

    def replayed(self, pass_: int, start: int, end: int, with_grad: bool) -> None:
        """A copy of a batch that was kept stood for one of that pass."""
        self.got(ReplayedBatch(pass_, start, end), with_grad)

    # Spans.

    @property
    def is_on(self) -> bool:
        """Whether a thread is followed, be it at rest."""
        return self.thread != NOBODY or self.resting != NOBODY

    def is_its_thread(self) -> bool:
        """Whether the calling thread is the training thread, be it at rest."""
        return get_ident() in (self.thread, self.resting)

    def is_here(self) -> bool:
        """Whether the calling thread is the training thread, and does not wait for a batch: what it does counts."""
        return get_ident() == self.thread and not self.is_fetching

    def enter(self, kind: str, mark: str = "") -> bool:
        """A span begins, if this is true; `leave` ends it. `mark` is the kind of the device's mark."""
        if get_ident() != self.thread or self.is_fetching:
            return False
        try:
            start = now()
            self.steps.enter(kind, start)
            if self.marks is not None and mark:
                self.marks.mark(mark)
            if self.ranges is not None:
                self.ranges.enter(kind)
            self.backwards_seen += kind is BACKWARD
            self.costs.since(start)
        except Exception as error:
            self.fail("spans", error)
            return False
        return True

    def leave(self, mark: str = "") -> None:
        if get_ident() != self.thread:
            return
        try:
            end = now()
            self.steps.leave(end)
            if self.marks is not None and mark:
                self.marks.mark(mark)
            if self.ranges is not None:
                self.ranges.leave()
            self.costs.since(end)
        except Exception as error:
            self.fail("spans", error)

    def may_mark_copy(self) -> bool:
        """Whether the device's marks may show this copy: a batch of many tensors must not cost a mark for each."""
        self._copies += 1
        return self._copies <= MARKED_COPIES

    def collective(self, name: str, start: int, size: int | None) -> None:
        """A synchronous call has ended in the training thread."""
        self.steps.collective(start, now(), (self.probe.evidence.name(name), size))

    def gradients_ready(self) -> None:
        """This rank's own gradients are done; it has waited for no other rank yet."""
        try:
            if self.steps.step is not None:
                self.steps.step.ready = now()
            if self.marks is not None:
                self.marks.mark("g")
        except Exception as error:
            self.fail("gradients", error)

    # Optimizers.

    def optimizer_begins(self, optimizer: Any) -> bool:
        """True where `optimizer_ends` must be called."""
        if not self._is_training_thread(optimizer):
            return False
        begun = now()
        closed = self.steps.optimizer_begins(id(optimizer), begun)
        if closed is not None:
            self._close(closed)
            if self.resting != NOBODY:
                return False
        if self.limit.is_over:
            raise StepsMeasured
        if self.marks is not None:
            self.marks.device.follow()
            self.marks.mark("o")
        if self.ranges is not None:
            self.ranges.enter(OPTIMIZER)
        self.costs.since(begun)
        return True

    def optimizer_ends(self, optimizer: Any) -> None:
        end = now()
        self.steps.optimizer_ends(id(optimizer), end)
        self.may_rest &= not self.steps.is_open
        if self.ranges is not None:
            self.ranges.leave()
        self.costs.since(end)
        self._step_ended()

    def skipped(self, optimizer: Any, start: int) -> None:
        """GradScaler found infinite gradients and called no optimizer."""
        if get_ident() != self.thread:
            return
        self.steps.skipped(id(optimizer), start, now())
        self.say("scaler", "GradScaler skipped steps because gradients were infinite. Each is counted as a step.")
        self._step_ended()

    def _is_training_thread(self, optimizer: Any) -> bool:
        thread = get_ident()
        if thread == self.thread:
            return not self.is_fetching
        if self.thread == NOBODY:
            return False
        if self.steps.is_within(BACKWARD):
            self.may_rest = False
            self.steps.stepped_inside(id(optimizer))
        elif not self.steps_seen:
            self._begin_in(thread)
            return True
        else:
            self.say("engine", "Optimizers step in several threads at once; only one of them was followed.")
        return False

    def _begin_in(self, thread: int) -> None:
        passes, loaders = self.passes, self.loaders
        self._begin(thread)
        self.passes, self.loaders = passes, loaders

    def _step_ended(self) -> None:
        self.steps_seen += 1
        if self.marks is not None:
            self.marks.mark("p")
        ended = self.steps.number + 1
        if not (self.limit.is_reached(ended) or self.windows.changes_at(ended)) or not self.steps.is_whole():
            return
        self.windows.go_on()
        if self.limit.is_reached(ended):
            self.finish()
            self.limit.is_over = True
            self.probe.ending = "steps"
            raise StepsMeasured

    # Writing.

    def finish(self) -> None:
        """Writes what is left. The process, its observation or its measured steps end."""
        if not self.is_on:
            return
        try:
            self.may_rest = False
            self.rests.end()
            closed = self.steps.finish()
            if closed is not None:
                self._close(closed)
            self.write_steps()
            step = self.steps.step
            left = fetch_records(self.probe.clock, self.elsewhere.left(is_over=True))
            if step is not None:
                left += batch_records(self.probe.clock, step)
                step.gets.clear()
            self.probe.evidence.write(*left)
            if self.ranges is not None:
                self.ranges.close()
            for call in self.at_finish:
                call()
        except Exception as error:
            self.fail("finish", error)

    def _close_what_ended(self) -> None:
        closed = self.steps.fetching()
        if closed is not None:
            self._close(closed)
        if self.limit.is_over:
            raise StepsMeasured

    def stop(self) -> None:
        """The same, and nothing is observed from now on, by whatever functions of ours others still hold."""
        self.finish()
        self.thread = NOBODY
        self.readers.clear()

    def _close(self, step: OptimizerStep) -> None:
        end = step.end or step.start
        self.rests.observed(end - step.start)
        if not self.probe.settings.observe:
            self._use_cores(step, end - step.start)
        is_wanted = self.probe.evidence.wants(step.number)
        self.writer.closed(step, is_wanted)
        if self.marks is not None:
            self.marks.close(step.number, is_wanted)
        if self.limit.settle(step.number, self.steps.gets):
            self._agree_on_warmup()
            self.probe.evidence.write(("facts", self.probe.clock.now_us(), {"warmup_steps": self.limit.warmup}))
        if self.writer.is_due(end):
            self.write_steps()
        if self.windows.is_keeping or self.windows.is_replaying:
            self.windows.closed(step)
        if self.steps.optimizers > 1:
            self.say("optimizers", f"{self.steps.optimizers} optimizers take part in a step.")
        for call in self.at_close:
            call()
        self.is_stamped = self.steps.number % READY_EVERY == 0 and self.world_size() > 1
        if self.ranges is not None:
            self.ranges.step(self.steps.number)
        if self.may_rest and self.ranges is None and self.steps.number % BLOCK == 0:
            self.rests.begin_if_due(end)

    def _use_cores(self, step: OptimizerStep, duration: int) -> None:
        """Steps are closed as long after their ends as one another: the distance of two is that of their ends."""
        used, self._used = self._used, core_use(duration)
        step.use = None if used is None else self._used.since(used)

    def _agree_on_warmup(self) -> None:
        """All ranks take the longest, since all must end after the same step."""
        begun = now()
        try:
            ranks = None if self.probe.settings.observe else self.ranks()
            agreed = None if ranks is None else ranks.agree("warm-up", self.limit.warmup, max)
        except Exception as error:  # a store that cannot do it
            self.probe.fault("agreement of ranks", error)
            return
        finally:
            self.costs.leave_out(begun)
        self.limit.warmup = self.limit.warmup if agreed is None else agreed

    def write_steps(self) -> None:
        """Those that are closed."""
        beside = fetch_records(self.probe.clock, self.elsewhere.left(is_over=False))
        if self.marks is not None:
            beside += device_records(self.marks)
        self.rests.spent(self.writer.write(beside))

    def scratch(self) -> TrainingObserver:
        """One that writes nothing, to try hooks on in the calling thread."""
        scratch = type(self)(self.probe)
        scratch.thread = get_ident()
        scratch.steps_seen = 1
        return scratch

    # Trouble.

    def has_said(self, code: str) -> bool:
        return code in self._said

    def say(self, code: str, text: str) -> None:
        """Notes something for the report, each code once."""
        if code not in self._said:
            self._said.add(code)
            self.probe.note(code, text)

    def fail(self, where: str, error: BaseException) -> None:
        """Something of ours went wrong: from now on nothing of this process's training is observed."""
        self.thread = self.resting = NOBODY
        self.rests.forget()
        self.readers.clear()
        self.probe.fault(f"training: {where}", error)

    def forked(self) -> None:
        """In the child of a fork: it has trained nothing yet. CUDA cannot be used in it."""
        self.marks = None
        self.ranges = None
        self.readers.clear()
        self.costs.forget()
        self.windows.forked()
        self._said = set()
        self._begin(get_ident())
