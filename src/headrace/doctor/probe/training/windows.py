"""The windows of a measured run, in order, and the number of their steps.

| window  | loop receives  | workers      | ends                                            |
|---------|----------------|--------------|-------------------------------------------------|
| observe | its batches    | produce them | after the requested steps, or once they suffice |
| replay  | cached batches | idle         | after the steps that fit into a few seconds     |
| over    | its batches    | produce them | with the run                                    |
"""

from __future__ import annotations

import time
from math import inf
from typing import Any, Callable

from .loader_sources import HeldIterator, ObservedLoaders
from .loop_watch import DEADLINE_S, SETTLING_STEPS
from .replay import LoopReplay
from .state import ObservedPass, TrainingState
from .steps import FetchedBatch, OptimizerStep

FEWEST_REPLAYED = 5
REPLAYED_S = 6.0
"""Seconds of replay for long steps."""


def replayed_steps(most: int, asked: int, step_s: float, room: float = inf) -> int:
    """Return the number of steps of the replay window.

    It is at most the number of observed steps and what fits into a time, but enough for a mean. It is at most the
    `room` in the loop's pass, unless the room is too small: then the window continues in the next pass.
    """
    fitting = most if step_s <= 0 else int(REPLAYED_S / step_s)
    steps = min(most, max(FEWEST_REPLAYED, min(asked, fitting)))
    return steps if room < FEWEST_REPLAYED else int(min(steps, room))


class StepsMeasured(SystemExit):
    """End of the command with status 0, raised in the training thread once the requested steps are measured."""

    def __init__(self) -> None:
        super().__init__(0)


now = time.monotonic_ns
OBSERVE, REPLAY, OVER = "observe", "replay", "over"


class Windows:
    """Windows of a measured run. Either all ranks replay or none does, and all make the same number of steps."""

    def __init__(self, state: TrainingState, replay: LoopReplay) -> None:
        self._state, self._replay = state, replay
        settings = state.settings
        self._steps = 0 if settings.observe else settings.replay
        """Steps of the replay window; 0 if a run has no windows."""
        self._observed = ObservedLoaders(settings.steps)
        self._name = OBSERVE if self._steps else OVER
        self.is_keeping = self._name == OBSERVE
        self._first = self._since = 0
        """First step and start time of the window."""
        self._end: int | None = None
        """Number of steps at the end of the window; None if the training's limit decides."""
        self._step_s = 0.0
        """Mean duration of an observed step."""

    # Observation of the run.

    def keep(self, source: Callable[[], HeldIterator], pass_: ObservedPass, batch: Any, received: FetchedBatch) -> None:
        """Store a batch received with autograd on, before the training thread has it."""
        self._observed.add(pass_, source)
        is_measured = self._is_measured(self._state.steps.number)
        self._observed.offer(batch, received, self._state.steps.gets, is_measured=is_measured)

    def closed(self, step: OptimizerStep) -> None:
        """Count a closed step. The last step of a window is closed after the next window has begun."""
        if not self.is_keeping and not self._replay.is_on:
            return
        self._replay.closed()
        if self._name == OBSERVE:
            is_measured = self._is_measured(step.number)
            self._observed.closed(step, is_measured)
            if is_measured and self._state.group.world_size() == 1:  # ranks end after the same step
                self._state.limit.observed(step)

    def _is_measured(self, number: int) -> bool:
        warmup = self._state.limit.warmup
        return warmup is not None and number >= warmup

    # Transitions.

    def is_due(self, ended: int) -> bool:
        """Return True if a window ends with the step that has just ended, the number `ended`."""
        return self._state.limit.is_reached(ended) or ended == self._end

    def go_on(self) -> None:
        """End a window after its last step. Ranks that move the limit then make the same number of further steps."""
        if self._name == OVER:
            return
        try:
            if self._name == OBSERVE:
                self._end_observation()
                if self._begin_replay():
                    return
        except Exception as error:
            self._state.fault("windows", error)
        self.close()

    def _end_observation(self) -> None:
        open_step = self._state.steps.step
        self._first = self._state.limit.warmup or 0
        self._since = self._observed.since or (0 if open_step is None else open_step.start)
        steps = self._steps_so_far()
        self._step_s = (self._ended() - self._since) / 1e9 / steps
        self._write_window(self._ended(), settling=0)
        self.is_keeping = False
        if self._state.limit.is_late:
            self._state.say("long-enough", f"Observation ended after {steps} steps, in {self._step_s * steps:.0f} s.")
        if self._state.limit.is_enough:
            self._state.say("enough", f"Such short waits are sure after {steps} steps.")

    def _begin_replay(self) -> bool:
        if self._state.limit.is_enough or not self._may_replay():
            return False
        self._name = REPLAY
        self._first = self._state.steps.number + 1
        self._since = self._ended()
        # However the process ends, this record names the window.
        self._state.evidence.write(("facts", self._state.clock.now_us(), {"window": REPLAY}))
        self._end = self._first + SETTLING_STEPS + self._steps
        self._state.limit.end_after(self._end)
        self._replay.begin()
        return True

    def _may_replay(self) -> bool:
        """Return True if all ranks replay. They agree on the answer and on the number of steps."""
        self._replay.hold(self._observed.hold(), self._observed.most_gets)
        room = self._replay.room() - SETTLING_STEPS
        self._steps = replayed_steps(self._steps, self._state.settings.steps, self._step_s, room)
        vote = {"steps": self._steps, "why_not": self._replay.obstacle(), "feeds": bool(self._replay.loaders)}
        agreed = self._state.group.agree("replay", vote, _merged)
        why_not = f"its ranks did not all come to the same step within {DEADLINE_S:.0f} s"
        if agreed is not None:
            why_not, self._steps = agreed["why_not"], agreed["steps"]
        if why_not:
            self._state.say("no-replay", f"The run was only observed: {why_not}.")
        return not why_not

    def close(self) -> None:
        """End all windows with the run or its observation. An incomplete one is written as far as it came."""
        if self._name == REPLAY:
            self._write_window(self._ended(), SETTLING_STEPS)
        self._name, self.is_keeping = OVER, False
        self._replay.end()
        self._observed = ObservedLoaders(0)

    def forked(self) -> None:
        """Disable the windows in the child of a fork, where none of the probe's threads exists."""
        self._name = OVER
        self.is_keeping = self._replay.is_on = False
        # Iterators stay held: dropping one here would end the workers of the parent process.

    def _ended(self) -> int:
        step = self._state.steps.step
        return now() if step is None or step.end is None else step.end

    def _steps_so_far(self) -> int:
        """Return the number of steps that have ended, including the open step if it has."""
        steps = self._state.steps
        is_ended = steps.step is not None and steps.step.end is not None
        return steps.number + is_ended - self._first

    def _write_window(self, end: int, settling: int) -> None:
        """Write the window, unless it has no step beyond the settling steps."""
        steps = self._steps_so_far()
        if steps > settling:
            us = self._state.clock.us
            record = ("window", self._name, self._first, steps, settling, us(self._since), us(end))
            self._state.evidence.write(record)


def _merged(votes: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge votes. A rank without loaders of its own only counts if it objects."""
    nothing = "" if any(vote["feeds"] for vote in votes) else "no DataLoader that is known fed its steps"
    against = ((rank, vote["why_not"]) for rank, vote in enumerate(votes) if vote["why_not"])
    why_not = next((why if len(votes) == 1 else f"on rank {rank} {why}" for rank, why in against), nothing)
    return {"why_not": why_not, "steps": min(vote["steps"] for vote in votes)}
