"""The windows of a measured run: observe, replay, load and drain, and when the run has shown enough."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable
from weakref import WeakSet

from .loader_sources import BackgroundLoad, FeedingLoader, HeldIterator, ObservedLoaders, drain
from .ranks import DEADLINE_S
from .step_limit import EARLY_STEPS, SETTLING_STEPS, replayed_steps
from .step_records import batch_record

if TYPE_CHECKING:
    from .step_records import FetchedBatch, ObservedPass
    from .steps import OptimizerStep
    from .training import TrainingObserver

now = time.monotonic_ns
OBSERVE, EARLY, REPLAY, LOAD, DRAIN, OVER = "observe", "early", "replay", "load", "drain", ""
LONGEST_PAUSE_S = 10.0
"""What training waits at most for the workers to finish, or to be at work again, before a window."""
UNTOLD_PAUSE_S = 0.5
"""The same for workers that do not tell whether they have finished."""
POLL_S = 0.002
GREED = 4
"""A step that asks for so many times the batches of any step before it does not train on them."""


class Windows:
    """A measured run from its first observed step to its end: which window it is in, and when the next one begins.

    Batches are cached while it observes (`is_keeping`); then the loop is fed with copies of them (`is_replaying`), at
    the end with the workers at work. All ranks replay, or none does, and each makes as many steps as the others.
    A run whose first epoch ends before all steps were observed may end with any epoch: where it does, a few steps are
    replayed, while no worker has anything to do, and then the run goes on as it would have.
    """

    def __init__(self, training: TrainingObserver) -> None:
        self._training = training
        settings = training.settings
        self._steps = 0 if settings.observe else settings.replay
        self._drain_s = settings.drain_s
        self._observed = ObservedLoaders(settings.steps)
        self._epoch: ObservedLoaders | None = None
        """Those of the first epoch, where that is short."""
        self._awaits_epoch = self._steps > 0
        """Whether the end of a first, short epoch may be yet to come."""
        self._early_steps = self._early_ns = 0
        """Of the early window, where that lies within what is observed."""
        self._resumed = 0
        """The step that follows it."""
        self.loaders: dict[int, FeedingLoader] = {}
        """Those that fed the observed steps, by their numbers, once these have ended."""
        self.schedulers: WeakSet[Any] = WeakSet()
        """Those of learning rates that raise beyond an end."""
        self.is_keeping = self._steps > 0
        self.is_replaying = False
        self._name = OBSERVE
        self._since = 0
        self._first = 0
        self._passes = 0
        """Passes that were begun before the replay."""
        self._replayed = 0
        """Batches given out since the last step was closed."""
        self._step_s = 0.0
        """Of a mean observed step."""
        self._loads: list[BackgroundLoad] = []
        self._is_alone = True
        """Whether there is no other rank."""
        self._has_load = False
        self.change: int | None = None
        """How many steps have been made when the load window begins."""
        self._loaded = 0
        """The step before which the workers were at work in the load window."""

    def is_due(self, ended: int) -> bool:
        """Tell whether a window ends with the step that has just ended, after which there are `ended` of them."""
        return self._training.limit.is_reached(ended) or ended == self.change or self._is_epoch_over(ended)

    def keep(self, source: Callable[[], HeldIterator], pass_: ObservedPass, batch: Any, received: FetchedBatch) -> None:
        """Take a batch of a DataLoader that was received with autograd on, before the training thread has it."""
        self._observed.add(pass_, source)
        is_measured = self._is_measured(self._training.steps.number)
        self._observed.offer(batch, received, self._training.steps.gets, is_measured=is_measured)
        length = self._training.limit.short_pass(self._training.steps.gets) if self._awaits_epoch else None
        if length is not None:
            self._epoch = self._epoch or ObservedLoaders(length)
            self._epoch.add(pass_, source)
            self._epoch.offer(batch, received, 1)

    def closed(self, step: OptimizerStep) -> None:
        self._replayed = 0
        is_after = self._name == OBSERVE and step.number >= self._resumed
        if is_after or (self._name == EARLY and step.number < self._first):
            is_measured = self._is_measured(step.number)
            self._observed.closed(step, is_measured)
            if self._epoch is not None:
                self._epoch.closed(step, True)
            if is_measured and self._training.group.world_size() == 1:  # ranks end after the same step
                self._training.limit.observed(step)
        elif self._name == LOAD and all(load.is_alive() for load in self._loads):
            self._loaded = step.number + 1

    def _is_measured(self, number: int) -> bool:
        warmup = self._training.limit.warmup
        return warmup is not None and number >= warmup

    # The change of windows.

    def go_on(self) -> None:
        """End a window that has had its steps, of which the last has just ended.

        Further steps are made where that has moved the training's limit: by as many on every rank, whatever becomes of
        them on one.
        """
        if not self._steps or self._name == OVER:
            return
        try:
            self._next()
        except Exception as error:
            self._training.fault("windows", error)
            self.close()

    def _next(self) -> None:
        if self._name == EARLY:
            self._end_early()
        elif self._name == OBSERVE and not self._training.limit.is_reached(self._training.steps.number + 1):
            self._begin_early()
        elif self._name == OBSERVE:
            open_step = self._training.steps.step
            self._first = self._training.limit.warmup or 0
            self._since = self._observed.since or (0 if open_step is None else open_step.start)
            steps = self._steps_so_far() - self._early_steps
            self._step_s = (self._ended() - self._since - self._early_ns) / 1e9 / steps
            self._write_window(self._ended(), settling=0)
            self.is_keeping = False
            known_within = self._training.limit.known_within
            if known_within is not None:
                said = f"Observation ended after {steps} steps, in {self._step_s * steps:.0f} s"
                self._training.say("long-enough", f"{said}: their mean is known to within {known_within:.0%}.")
            if self._training.limit.is_enough:
                self._training.say("enough", f"Such short waits are sure after {steps} steps.")
                self.close()
            elif self._may_replay():
                self._begin_replay()
            else:
                self.close()
        elif self._name == REPLAY and self._has_load:
            self._write_window(self._ended())
            self._begin_load()
        else:
            self._write_window(self._ended())
            self._drain()
            self.close()

    def _is_epoch_over(self, ended: int) -> bool:
        """Tell whether the first epoch, a short one, gives no more batches. Ranks may not come to its end together."""
        if self._epoch is None or self._name != OBSERVE or ended < SETTLING_STEPS:
            return False
        is_known = self._training.limit.warmup is not None and self._training.group.world_size() == 1
        return is_known and self._epoch.is_over()

    def _begin_early(self) -> None:
        """Replay a few steps at the end of an epoch, as far as the run bears more steps than it has."""
        training, epoch = self._training, self._epoch
        self._epoch, self._awaits_epoch = None, False
        if epoch is None or self.schedulers or training.elsewhere.threads:
            return
        self.loaders = epoch.hold()
        if not self.loaders or self._obstacle(0):
            self._let_go()
            return
        self.is_keeping = False
        self._begin(EARLY)
        steps = SETTLING_STEPS + replayed_steps(min(self._steps, EARLY_STEPS), self._first, 0.0)
        self._early_steps = training.limit.insert(steps, before=self._first)
        if not self._early_steps:
            training.evidence.write(("facts", training.clock.now_us(), {"warmup_steps": training.limit.warmup}))
        self.change = self._first + steps
        self._begin_copies()

    def _end_early(self) -> None:
        self._write_window(self._ended())
        self._early_ns = self._ended() - self._since if self._early_steps else 0
        self._let_go()
        self._name, self.change = OBSERVE, None
        self._resumed = self._training.steps.number + 1
        self.is_keeping, self.is_replaying = True, False

    def _let_go(self) -> None:
        for loader in self.loaders.values():
            loader.source.held = None
        self.loaders = {}

    def _may_replay(self) -> bool:
        ranks = self._training.group.ranks()
        self._let_go()
        self.loaders = self._observed.hold()
        self._steps = replayed_steps(self._steps, self._training.settings.steps, self._step_s)
        vote = {
            "steps": self._steps,
            "why_not": self._obstacle(2 * (SETTLING_STEPS + self._steps)),
            "feeds": bool(self.loaders),
            "works_ahead": any(loader.pass_.makers for loader in self.loaders.values()),
        }
        self._is_alone = ranks.count == 1
        agreed = ranks.agree("replay", vote, _merged)
        why_not = f"its ranks did not all come to the same step within {DEADLINE_S:.0f} s"
        if agreed is not None:
            why_not, self._has_load = agreed["why_not"], agreed["works_ahead"]
            self._steps = agreed["steps"]
        if why_not:
            self._training.say("no-replay", f"The run was only observed: {why_not}.")
        return not why_not

    def _obstacle(self, steps: int) -> str:
        """Return why replaying `steps` more steps would be wrong in this process, or cannot be done.

        It is half a sentence; empty where nothing speaks against it.
        """
        training = self._training
        if "capture" in training.said:
            return "steps run as CUDA graphs, which read batches from where they were when they were captured"
        if training.elsewhere.threads and not training.elsewhere.is_handed_over:
            return "batches are fetched in another thread, and it is not seen how the one that trains gets them"
        ranks = os.environ.get("WORLD_SIZE", "")
        if ranks.isdigit() and int(ranks) > 1 and training.group.world_size() == 1:
            return "there are several ranks, which torch.distributed does not join"
        for loader in self.loaders.values():
            if loader.cached is not None and loader.cached.why_not:
                return loader.cached.why_not
        for scheduler in self.schedulers:
            total, at = getattr(scheduler, "total_steps", None), getattr(scheduler, "last_epoch", None)
            if not isinstance(total, int) or not isinstance(at, int):
                continue
            # The loader's own end would keep it from its own. It follows the step that has just ended.
            a_step = at / max(training.steps_seen - 1, 1)
            if at + a_step * (steps + 1) > total:
                return f"{type(scheduler).__name__} ends after {total - at} more of its steps, and raises beyond that"
        return ""

    def _begin_replay(self) -> None:
        self._begin(REPLAY)
        steps = SETTLING_STEPS + self._steps
        self._training.limit.extend(2 * steps if self._has_load else steps)
        self.change = self._first + steps if self._has_load else None
        self._begin_copies()

    def _begin_copies(self) -> None:
        """Give copies from now on, once the workers have finished what they were asked for."""
        self._passes = self._training.counter.passes
        self.is_replaying = True
        sources = [loader.source for loader in self._held()]
        if any(source.pass_.makers and source.is_idle() is None for source in sources):
            time.sleep(UNTOLD_PAUSE_S)
        _wait(lambda: all(source.is_idle() is not False for source in sources))

    def _begin_load(self) -> None:
        """Load the workers at the pace of the observed run in time, however fast the steps are now."""
        replay_s = (self._ended() - self._since) / 1e9
        self._begin(LOAD)
        self._renew(replay_s / self._step_s + self._steps)
        loaders = [loader for loader in self._held() if loader.source.pass_.makers]
        self._loads = [BackgroundLoad(loader.source, self._step_s / loader.per_step) for loader in loaders]
        for load in self._loads:
            load.start()
        _wait(lambda: all(load.taken >= load.source.pass_.makers or not load.is_alive() for load in self._loads))

    def _drain(self) -> None:
        self._begin(DRAIN)
        busy = [load.source for load in self._loads if not load.stop()]
        if not self._has_load:
            self._renew(self._steps)
        self._since = now()
        loaders = [loader for loader in self._held() if loader.source not in busy]
        batches = drain(loaders, self._steps, self._drain_s)
        if batches:
            clock = self._training.clock
            self._training.evidence.write(*(batch_record(clock, "drained", batch) for batch in batches))
            self._write_window(batches[-1].end, settling=0)

    def _renew(self, steps: float) -> None:
        """Begin a new pass over the loaders that have too few batches left for so many steps as observed.

        In the training thread, where passes are begun. Not beside other ranks, which it may take to begin one, nor
        where another thread might begin one, too.
        """
        if not self._is_alone or self._training.elsewhere.threads:
            return
        self.is_replaying = False
        for loader in self._held():
            if loader.source.left() < steps * loader.per_step + loader.source.outstanding:
                loader.source = loader.source.renewed() or loader.source
        # With persistent workers the loop's own iterator is in a new pass now.
        self._passes = self._training.counter.passes
        self.is_replaying = True

    def _begin(self, name: str) -> None:
        self._name = name
        self._first = self._loaded = self._training.steps.number + 1
        self._since = self._ended()

    def close(self) -> None:
        """End all windows: the run ends, or its observation does.

        One that is broken off is written as far as it came.
        """
        if self._name in (EARLY, REPLAY, LOAD):
            self._write_window(self._ended())
        self._name = OVER
        self.is_keeping = self.is_replaying = False
        for load in self._loads:
            load.stop()
        self._loads = []
        self._let_go()
        self._observed, self._epoch = ObservedLoaders(0), None
        self._awaits_epoch = False

    def forked(self) -> None:
        """Train nothing in the child of a fork, where no thread of ours goes on."""
        self._name = OVER
        self.is_keeping = self.is_replaying = False
        # What is held stays: an iterator that is dropped here would end the workers of the process that was forked.
        self._loads = []

    # Replay.

    def serves(self, pass_: ObservedPass) -> bool:
        """Tell whether copies stand for the batches of that pass."""
        return pass_.number < self._passes and pass_.loader in self.loaders

    def copy(self, pass_: ObservedPass) -> Any:
        return self.loaders[pass_.loader].cached.next()  # type: ignore[union-attr]  # `hold` has left out others

    def asked(self) -> None:
        """Count a copy that the training thread asks for.

        Raises LookupError where it asked for so many in this step that it is not for training: the pass must find its
        own end.
        """
        self._replayed += 1
        if self._replayed > GREED * (self._observed.most_gets + 1):
            raise LookupError(f"a step asked for {self._replayed} batches")

    # What the window is.

    def _ended(self) -> int:
        """Return when the last step ended."""
        step = self._training.steps.step
        return now() if step is None or step.end is None else step.end

    def _steps_so_far(self) -> int:
        """Count the steps that have ended, the open one included if it has."""
        steps = self._training.steps
        is_ended = steps.step is not None and steps.step.end is not None
        return steps.number + is_ended - self._first

    def _held(self) -> list[FeedingLoader]:
        return [loader for loader in self.loaders.values() if loader.source.held is not None]

    def _write_window(self, end: int, settling: int = SETTLING_STEPS) -> None:
        """Write the window, unless it has no step beyond those that settle."""
        steps = 0 if self._name == DRAIN else self._steps_so_far()
        if self._name == LOAD and self._loaded < self._first + steps - 1:  # the last step is not closed yet
            steps = self._loaded - self._first
        if steps > settling or self._name == DRAIN:
            us = self._training.clock.us
            record = ("window", self._name, self._first, steps, settling, us(self._since), us(end))
            self._training.evidence.write(record)


def _merged(votes: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge votes. A rank whose steps are fed by others has no say but for what forbids it."""
    nothing = "" if any(vote["feeds"] for vote in votes) else "no DataLoader that is known fed its steps"
    against = ((rank, vote["why_not"]) for rank, vote in enumerate(votes) if vote["why_not"])
    why_not = next((why if len(votes) == 1 else f"on rank {rank} {why}" for rank, why in against), nothing)
    steps = min(vote["steps"] for vote in votes)
    return {"why_not": why_not, "works_ahead": any(vote["works_ahead"] for vote in votes), "steps": steps}


def _wait(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_PAUSE_S
    while not is_done() and time.monotonic() < until:
        time.sleep(POLL_S)
