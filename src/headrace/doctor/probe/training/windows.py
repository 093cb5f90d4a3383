"""The windows of a measured run as a state machine with the transitions in `AFTER`.

| window  | loop receives  | workers                          | ends                                             |
|---------|----------------|----------------------------------|--------------------------------------------------|
| observe | its batches    | produce them                     | after the requested steps, or once they suffice  |
| early   | cached batches | idle after the end of an epoch   | after a few steps                                |
| replay  | cached batches | idle                             | after the steps that fit into a few seconds      |
| load    | cached batches | produce at the loop's pace       | after the same number of steps                   |
| drain   | no step        | produce at full speed            | after the batches of as many steps, or the pass  |
| over    | its batches    | produce them                     | with the run                                     |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from .closed_steps import batch_record
from .loader_sources import BackgroundLoad, HeldIterator, ObservedLoaders, drain, wait_until
from .state import DEADLINE_S
from .step_limit import EARLY_STEPS, SETTLING_STEPS, replayed_steps

if TYPE_CHECKING:
    from .received_batches import FetchedBatch, ObservedPass
    from .replay import LoopReplay
    from .state import TrainingState
    from .steps import OptimizerStep

now = time.monotonic_ns
OBSERVE, EARLY, REPLAY, LOAD, DRAIN, OVER = "observe", "early", "replay", "load", "drain", "over"
STEPS_MADE, EPOCH_OVER = "steps made", "epoch over"
"""Events that end a window. EPOCH_OVER is the end of a short first epoch."""
AFTER = {
    (OBSERVE, EPOCH_OVER): (EARLY, OBSERVE),
    (OBSERVE, STEPS_MADE): (REPLAY, OVER),
    (EARLY, STEPS_MADE): (OBSERVE,),
    (REPLAY, STEPS_MADE): (LOAD, DRAIN),
    (LOAD, STEPS_MADE): (DRAIN,),
    (DRAIN, STEPS_MADE): (OVER,),
}
"""Possible next windows; the first that can begin does."""
KEEPING, REPLAYING = {OBSERVE}, {EARLY, REPLAY, LOAD, DRAIN}
"""Windows that cache batches, and windows that replay them after a few settling steps."""


class Windows:
    """Windows of a measured run from its first observed step to its end.

    Either all ranks replay or none does, and all make the same number of steps. A run whose first epoch ends before all
    steps are observed may end with any epoch. At the end of the first epoch, a few steps are replayed while the workers
    are idle, and the run then continues as usual.
    """

    def __init__(self, state: TrainingState, replay: LoopReplay) -> None:
        self._state, self._replay = state, replay
        settings = state.settings
        self._steps = 0 if settings.observe else settings.replay
        """Steps of the replay window, and of the loaded one; 0 if a run has no windows."""
        self._drain_s = settings.drain_s
        self._observed = ObservedLoaders(settings.steps)
        self._epoch: ObservedLoaders | None = None
        """Loaders of the first epoch, if it is short."""
        self._awaits_epoch = self._steps > 0 and settings.early
        """True if the end of a short first epoch may still come."""
        self._early_steps = self._early_ns = 0
        """Steps and duration of the early window, if it falls in the measured steps."""
        self._name = OBSERVE if self._steps else OVER
        self.is_keeping = self._name in KEEPING
        self._first = self._since = 0
        """First step and start time of the window."""
        self._end: int | None = None
        """Number of steps at the end of the window; None if the training's limit decides."""
        self._step_s = 0.0
        """Mean duration of an observed step."""
        self._loads: list[BackgroundLoad] = []
        self._loaded = 0
        """Step up to which the workers were busy in the load window."""
        self._is_alone = True
        """True if there is no other rank."""
        self._has_load = False
        self._begins: dict[str, Callable[[], object]] = {
            OBSERVE: self._observe_on,
            EARLY: self._begin_early,
            REPLAY: self._begin_replay,
            LOAD: self._begin_load,
            DRAIN: self._begin_drain,
            OVER: self.close,
        }

    # Observation of the run.

    def keep(self, source: Callable[[], HeldIterator], pass_: ObservedPass, batch: Any, received: FetchedBatch) -> None:
        """Store a batch received with autograd on, before the training thread has it."""
        self._observed.add(pass_, source)
        is_measured = self._is_measured(self._state.steps.number)
        self._observed.offer(batch, received, self._state.steps.gets, is_measured=is_measured)
        length = self._state.limit.short_pass(self._state.steps.gets) if self._awaits_epoch else None
        if length is not None:
            self._epoch = self._epoch or ObservedLoaders(length)
            self._epoch.add(pass_, source)
            self._epoch.offer(batch, received, 1)

    def closed(self, step: OptimizerStep) -> None:
        """Count a closed step. The last step of a window is closed after the next window has begun."""
        if not self.is_keeping and not self._replay.is_on:
            return
        self._replay.closed()
        is_of_this = step.number >= self._first
        if self._name == (OBSERVE if is_of_this else EARLY):
            is_measured = self._is_measured(step.number)
            self._observed.closed(step, is_measured)
            if self._epoch is not None:
                self._epoch.closed(step, True)
            if is_measured and self._state.group.world_size() == 1:  # ranks end after the same step
                self._state.limit.observed(step)
        elif self._name == LOAD and all(load.is_alive() for load in self._loads):
            self._loaded = step.number + 1

    def _is_measured(self, number: int) -> bool:
        warmup = self._state.limit.warmup
        return warmup is not None and number >= warmup

    # Transitions.

    def is_due(self, ended: int) -> bool:
        """Return True if a window ends with the step that has just ended, the number `ended`."""
        return self._state.limit.is_reached(ended) or ended == self._end or self._is_epoch_over(ended)

    def _is_epoch_over(self, ended: int) -> bool:
        """Return True if the first, short epoch has no more batches. Ranks may not reach its end together."""
        if self._epoch is None or self._name != OBSERVE or ended < SETTLING_STEPS:
            return False
        is_known = self._state.limit.warmup is not None and self._state.group.world_size() == 1
        return is_known and self._epoch.is_over()

    def go_on(self) -> None:
        """End a window after its last step.

        If this moves the training's limit, further steps follow: the same number on every rank, whatever happens to
        them on one.
        """
        if self._name == OVER:
            return
        has_steps = self._name != OBSERVE or self._state.limit.is_reached(self._state.steps.number + 1)
        try:
            self._change(STEPS_MADE if has_steps else EPOCH_OVER)
        except Exception as error:
            self._state.fault("windows", error)
            self.close()

    def _change(self, event: str) -> None:
        if (self._name, event) == (OBSERVE, STEPS_MADE):
            self._end_observation()
        else:
            self._write_replayed()
        for name in AFTER[self._name, event]:
            if self._begins[name]():
                return

    def _begin(self, name: str) -> None:
        self._name, self._end = name, None
        self._first = self._loaded = self._state.steps.number + 1
        self._since = self._ended()
        self.is_keeping = name in KEEPING
        # However the process ends, the last of these records names the window.
        self._state.evidence.write(("facts", self._state.clock.now_us(), {"window": name}))

    def _begin_early(self) -> bool:
        """Replay a few steps at the end of an epoch, if the run allows additional steps."""
        state, replay, epoch = self._state, self._replay, self._epoch
        self._epoch, self._awaits_epoch = None, False
        if epoch is None or replay.schedulers or state.elsewhere.threads:
            return False
        replay.hold(epoch.hold(), self._observed.most_gets)
        if not replay.loaders or replay.obstacle(0):
            replay.let_go()
            return False
        self._begin(EARLY)
        steps = SETTLING_STEPS + replayed_steps(min(self._steps, EARLY_STEPS), self._first, 0.0)
        self._end = self._first + steps
        self._early_steps = state.limit.insert(steps, before=self._first)
        if not self._early_steps:
            state.evidence.write(("facts", state.clock.now_us(), {"warmup_steps": state.limit.warmup}))
        replay.begin(is_endless=True)  # beyond the end of the epoch
        return True

    def _observe_on(self) -> bool:
        """Observe the remaining steps, after an early window if there was one."""
        if self._name == EARLY:
            self._early_ns = self._ended() - self._since if self._early_steps else 0
            self._replay.end()
            self._begin(OBSERVE)
        return True

    def _end_observation(self) -> None:
        open_step = self._state.steps.step
        self._first = self._state.limit.warmup or 0
        self._since = self._observed.since or (0 if open_step is None else open_step.start)
        steps = self._steps_so_far() - self._early_steps
        self._step_s = (self._ended() - self._since - self._early_ns) / 1e9 / steps
        self._write_window(self._ended(), settling=0)
        self.is_keeping = False
        known_within = self._state.limit.known_within
        if known_within is not None:
            said = f"Observation ended after {steps} steps, in {self._step_s * steps:.0f} s"
            self._state.say("long-enough", f"{said}: their mean is known to within {known_within:.0%}.")
        if self._state.limit.is_enough:
            self._state.say("enough", f"Such short waits are sure after {steps} steps.")

    def _begin_replay(self) -> bool:
        if self._state.limit.is_enough or not self._may_replay():
            return False
        self._begin(REPLAY)
        steps = SETTLING_STEPS + self._steps
        self._end = self._first + steps
        self._state.limit.end_after(self._end + steps if self._has_load else self._end)
        self._replay.begin()
        return True

    def _may_replay(self) -> bool:
        """Return True if all ranks replay. They agree on the answer and on the number of steps."""
        ranks = self._state.group.ranks()
        self._replay.hold(self._observed.hold(), self._observed.most_gets)
        loaders = self._replay.loaders.values()
        works_ahead = any(loader.pass_.makers for loader in loaders)
        room = self._replay.room() / (2 if works_ahead else 1) - SETTLING_STEPS
        self._steps = replayed_steps(self._steps, self._state.settings.steps, self._step_s, room)
        vote = {
            "steps": self._steps,
            "why_not": self._replay.obstacle(2 * (SETTLING_STEPS + self._steps)),
            "feeds": bool(loaders),
            "works_ahead": works_ahead,
        }
        self._is_alone = ranks.count == 1
        agreed = ranks.agree("replay", vote, _merged)
        why_not = f"its ranks did not all come to the same step within {DEADLINE_S:.0f} s"
        if agreed is not None:
            why_not, self._has_load = agreed["why_not"], agreed["works_ahead"]
            self._steps = agreed["steps"]
        if why_not:
            self._state.say("no-replay", f"The run was only observed: {why_not}.")
        return not why_not

    def _begin_load(self) -> bool:
        """Load the workers at the observed pace in time, however fast the steps are now."""
        if not self._has_load:
            return False
        replay_s = (self._ended() - self._since) / 1e9
        self._begin(LOAD)
        self._renew(replay_s / self._step_s + self._steps)
        loaders = [loader for loader in self._replay.held() if loader.source.pass_.makers]
        self._loads = [BackgroundLoad(loader.source, self._step_s / loader.per_step) for loader in loaders]
        for load in self._loads:
            load.start()
        wait_until(lambda: all(load.taken >= load.source.pass_.makers or not load.is_alive() for load in self._loads))
        return True

    def _begin_drain(self) -> bool:
        """Take batches in the pause after the last step, until there are enough."""
        self._begin(DRAIN)
        busy = [load.source for load in self._loads if not load.stop()]
        if not self._has_load:
            self._renew(self._steps)
        self._since = now()
        loaders = [loader for loader in self._replay.held() if loader.source not in busy]
        batches = drain(loaders, self._steps, self._drain_s)
        if batches:
            clock = self._state.clock
            self._state.evidence.write(*(batch_record(clock, "drained", batch) for batch in batches))
            self._write_window(batches[-1].end, settling=0)
        self._change(STEPS_MADE)
        return True

    def _renew(self, steps: float) -> None:
        """Begin new passes if loaders lack batches for `steps` steps, unless other ranks had to begin a pass, too."""
        if self._is_alone:
            self._replay.renew(steps)

    def close(self) -> None:
        """End all windows at the end of the run or of its observation.

        An incomplete window is written as far as it came.
        """
        self._write_replayed()
        self._name = OVER
        self.is_keeping = self._replay.is_on = False
        for load in self._loads:
            load.stop()
        self._loads = []
        self._replay.end()
        self._observed, self._epoch = ObservedLoaders(0), None
        self._awaits_epoch = False

    def forked(self) -> None:
        """Disable the windows in the child of a fork, where none of the probe's threads exists."""
        self._name = OVER
        self.is_keeping = self._replay.is_on = False
        # Iterators stay held: dropping one here would end the workers of the parent process.
        self._loads = []

    def _ended(self) -> int:
        step = self._state.steps.step
        return now() if step is None or step.end is None else step.end

    def _steps_so_far(self) -> int:
        """Return the number of steps that have ended, including the open step if it has."""
        steps = self._state.steps
        is_ended = steps.step is not None and steps.step.end is not None
        return steps.number + is_ended - self._first

    def _write_replayed(self) -> None:
        """Write the window if it replayed steps; the drain has none."""
        if self._name in REPLAYING - {DRAIN}:
            self._write_window(self._ended(), SETTLING_STEPS)

    def _write_window(self, end: int, settling: int) -> None:
        """Write the window, unless it has no step beyond the settling steps."""
        steps = 0 if self._name == DRAIN else self._steps_so_far()
        if self._name == LOAD and self._loaded < self._first + steps - 1:  # the last step is not closed yet
            steps = self._loaded - self._first
        if steps > settling or self._name == DRAIN:
            us = self._state.clock.us
            record = ("window", self._name, self._first, steps, settling, us(self._since), us(end))
            self._state.evidence.write(record)


def _merged(votes: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge votes. A rank without loaders of its own only counts if it objects."""
    nothing = "" if any(vote["feeds"] for vote in votes) else "no DataLoader that is known fed its steps"
    against = ((rank, vote["why_not"]) for rank, vote in enumerate(votes) if vote["why_not"])
    why_not = next((why if len(votes) == 1 else f"on rank {rank} {why}" for rank, why in against), nothing)
    steps = min(vote["steps"] for vote in votes)
    return {"why_not": why_not, "works_ahead": any(vote["works_ahead"] for vote in votes), "steps": steps}
