"""A measured run from its first observed step to its end: which window it is in, and when the next one begins."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from ..ending import SETTLING_STEPS
from ..windows.agreement import DEADLINE_S
from ..windows.drain import Share, drain
from ..windows.load import Load
from ..windows.observed import Observed
from ..windows.obstacles import obstacle
from .loader_sources import Source
from .step_records import batch_record

if TYPE_CHECKING:
    from ..passes import Pass
    from .step_records import Received
    from .steps import Step
    from .training import Training

now = time.monotonic_ns
OBSERVE, REPLAY, LOAD, DRAIN, OVER = "observe", "replay", "load", "drain", ""
LONGEST_PAUSE_S = 10.0
"""What training waits at most for the workers to finish, or to be at work again, before a window."""
UNTOLD_PAUSE_S = 0.5
"""The same for makers that do not tell whether they have finished."""
POLL_S = 0.002
GREED = 4
"""A step that asks for so many times the batches of any step before it does not train on them."""


class Windows:
    """Batches are kept while it observes (`is_keeping`); then the loop is fed with copies of them (`is_replaying`), at
    the end with the workers at work. All ranks replay, or none does, and each makes as many steps as the others."""

    def __init__(self, training: Training) -> None:
        self._training = training
        settings = training.probe.settings
        self._steps = 0 if settings.observe else settings.replay
        self._drain_s = settings.drain_s
        self._observed = Observed(settings.steps)
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
        self._loads: list[Load] = []
        self._is_alone = True
        """Whether there is no other rank."""
        self._has_load = False
        self._change: int | None = None
        """How many steps have been made when the load window begins."""
        self._loaded = 0
        """The step before which the workers were at work in the load window."""

    def keep(self, source: Callable[[], Source], pass_: Pass, batch: Any, received: Received) -> None:
        """The training thread has received a batch of a DataLoader with autograd on, and will have it next."""
        self._observed.add_source(pass_, source)
        warmup = self._training.limit.warmup
        if warmup is not None and self._training.steps.number >= warmup:
            self._observed.offer(pass_, batch, received, self._training.steps.gets)

    def closed(self, step: Step) -> None:
        """A step has been closed."""
        self._replayed = 0
        if self.is_keeping:
            warmup = self._training.limit.warmup
            self._observed.closed(step, warmup is not None and step.number >= warmup)
        elif self._name == LOAD and all(load.is_on for load in self._loads):
            self._loaded = step.number + 1

    # The change of windows.

    def changes_at(self, steps: int) -> bool:
        """Whether another window, and not the end, comes after so many steps."""
        return steps == self._change

    def go_on(self) -> None:
        """A window has had its steps, and the last of them has just ended. Further steps are made where that has moved
        the training's limit: by as many on every rank, whatever becomes of them on one."""
        if not self._steps or self._name == OVER:
            return
        try:
            self._next()
        except Exception as error:
            self._training.probe.fault("windows", error)
            self.close()

    def _next(self) -> None:
        if self._name == OBSERVE:
            self._end_observe()
            if self._may_replay():
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

    def _end_observe(self) -> None:
        self._first = self._training.limit.warmup or 0
        open_step = self._training.steps.step
        self._since = self._observed.since or (0 if open_step is None else open_step.start)
        self._step_s = (self._ended() - self._since) / 1e9 / self._steps_so_far()
        self._write_window(self._ended(), settling=0)
        self.is_keeping = False

    def _may_replay(self) -> bool:
        observed, ranks = self._observed, self._training.ranks()
        for loader in observed.loaders:
            observed.sources[loader].hold()
        vote = {
            "why_not": obstacle(self._training, observed, 2 * (SETTLING_STEPS + self._steps)),
            "feeds": bool(observed.loaders),
            "works_ahead": any(observed.sources[loader].pass_.makers for loader in observed.loaders),
        }
        self._is_alone = ranks is None or ranks.count == 1
        agreed = _merged([vote]) if ranks is None else ranks.agree("replay", vote, _merged)
        why_not = f"its ranks did not all come to the same step within {DEADLINE_S:.0f} s"
        if agreed is not None:
            why_not, self._has_load = agreed["why_not"], agreed["works_ahead"]
        if why_not:
            self._training.say("no-replay", f"The run was only observed: {why_not}.")
        return not why_not

    def _begin_replay(self) -> None:
        self._begin(REPLAY)
        steps = SETTLING_STEPS + self._steps
        self._training.limit.extend(2 * steps if self._has_load else steps)
        self._change = self._first + steps if self._has_load else None
        self._passes = self._training.passes
        self.is_replaying = True
        held = self._held()
        if any(source.pass_.makers and source.is_idle() is None for source in held):
            time.sleep(UNTOLD_PAUSE_S)
        _wait(lambda: all(source.is_idle() is not False for source in held))

    def _begin_load(self) -> None:
        """The pace is that of the observed run in time, however fast the steps are now."""
        replay_s = (self._ended() - self._since) / 1e9
        self._begin(LOAD)
        observed = self._observed
        self._renew(replay_s / self._step_s + self._steps)
        self._loads = [
            Load(source, self._step_s / observed.per_step(source.pass_.loader))
            for source in self._held()
            if source.pass_.makers
        ]
        for load in self._loads:
            load.start()
        _wait(lambda: all(load.taken >= load.source.pass_.makers or not load.is_on for load in self._loads))

    def _drain(self) -> None:
        self._begin(DRAIN)
        busy = [load.source for load in self._loads if not load.stop()]
        if not self._has_load:
            self._renew(self._steps)
        self._since = now()
        shares = [
            Share(source, self._observed.per_step(source.pass_.loader)) for source in self._held() if source not in busy
        ]
        batches = drain(shares, self._steps, self._drain_s) if shares else []
        if batches:
            clock = self._training.probe.clock
            self._training.probe.evidence.write(*(batch_record(clock, "drained", batch) for batch in batches))
            self._write_window(batches[-1].end, settling=0)

    def _renew(self, steps: float) -> None:
        """Begins a new pass over the loaders that have too few batches left for so many steps as observed, in the
        training thread, where passes are begun. Not beside other ranks, which it may take to begin one, nor where
        another thread might begin one, too."""
        if not self._is_alone or self._training.elsewhere.threads:
            return
        self.is_replaying = False
        for source in self._held():
            wanted = steps * self._observed.per_step(source.pass_.loader) + source.outstanding
            renewed = source.renewed() if source.left() < wanted else None
            if renewed is not None:
                self._observed.sources[renewed.pass_.loader] = renewed
        self._passes = self._training.passes  # with persistent workers the loop's own iterator is in a new pass now
        self.is_replaying = True

    def _begin(self, name: str) -> None:
        self._name = name
        self._first = self._loaded = self._training.steps.number + 1
        self._since = self._ended()

    def close(self) -> None:
        """Nothing of the windows goes on: the run ends, or its observation does. One that is broken off is written as
        far as it came."""
        if self._name in (REPLAY, LOAD):
            self._write_window(self._ended())
        self._name = OVER
        self.is_keeping = self.is_replaying = False
        for load in self._loads:
            load.stop()
        self._loads = []
        self._observed.forget()

    def forked(self) -> None:
        """In the child of a fork, where nothing is trained and no thread of ours goes on."""
        self._name = OVER
        self.is_keeping = self.is_replaying = False
        # What is held stays: an iterator that is dropped here would end the workers of the process that was forked.
        self._loads = []

    # Replay.

    def serves(self, pass_: Pass) -> bool:
        """Whether copies stand for the batches of that pass."""
        return pass_.number < self._passes and pass_.loader in self._observed.loaders

    def stand_in_for(self, loader: int) -> Pass | None:
        """The pass that a new one over that loader goes on with, as long as copies stand for its batches."""
        pass_ = self._observed.pass_of(loader)
        return pass_ if pass_ is not None and self.serves(pass_) else None

    def copy(self, pass_: Pass) -> Any:
        """Of a batch that was kept, for that pass."""
        return self._observed.kept[pass_.loader].next()

    def asked(self) -> None:
        """The training thread asks for a copy. Raises LookupError where it asked for so many in this step that it is
        not for training: the pass must find its own end."""
        self._replayed += 1
        if self._replayed > GREED * (self._observed.most_gets + 1):
            raise LookupError(f"a step asked for {self._replayed} batches")

    # What the window is.

    def _ended(self) -> int:
        """When the last step did."""
        step = self._training.steps.step
        return now() if step is None or step.end is None else step.end

    def _steps_so_far(self) -> int:
        """Those that have ended, the open one included if it has."""
        steps = self._training.steps
        is_ended = steps.step is not None and steps.step.end is not None
        return steps.number + is_ended - self._first

    def _held(self) -> list[Source]:
        sources = self._observed.sources
        return [sources[loader] for loader in self._observed.loaders if sources[loader].is_held]

    def _write_window(self, end: int, settling: int = SETTLING_STEPS) -> None:
        """Unless it has no step beyond those that settle."""
        steps = 0 if self._name == DRAIN else self._steps_so_far()
        if self._name == LOAD and self._loaded < self._first + steps - 1:  # the last step is not closed yet
            steps = self._loaded - self._first
        if steps > settling or self._name == DRAIN:
            us = self._training.probe.clock.us
            record = ("window", self._name, self._first, steps, settling, us(self._since), us(end))
            self._training.probe.evidence.write(record)


def _merged(votes: list[dict[str, Any]]) -> dict[str, Any]:
    """A rank whose steps are fed by others has no say but for what forbids it."""
    nothing = "" if any(vote["feeds"] for vote in votes) else "no DataLoader that is known fed its steps"
    against = ((rank, vote["why_not"]) for rank, vote in enumerate(votes) if vote["why_not"])
    why_not = next((why if len(votes) == 1 else f"on rank {rank} {why}" for rank, why in against), nothing)
    return {"why_not": why_not, "works_ahead": any(vote["works_ahead"] for vote in votes)}


def _wait(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_PAUSE_S
    while not is_done() and time.monotonic() < until:
        time.sleep(POLL_S)
