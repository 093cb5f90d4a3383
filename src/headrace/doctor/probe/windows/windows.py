"""A measured run from its first observed step to its end: which window it is in, and when the next one begins."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable

from ..ending import SETTLING_STEPS
from ..step_records import batch_record
from .agreement import DEADLINE_S
from .drain import Share, drain
from .kept import MOST, Kept
from .load import Load
from .memory import room_bytes
from .obstacles import obstacle
from .sources import Source

if TYPE_CHECKING:
    from ..passes import Pass
    from ..step_records import Received
    from ..steps import Step
    from ..training import Training

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
        self._observed = settings.steps
        self._drain_s = settings.drain_s
        self.is_keeping = self._steps > 0
        self.is_replaying = False
        self._name = OBSERVE
        self._since = 0
        self._first = 0
        self._kept: dict[int, Kept] = {}
        self._sources: dict[int, Source] = {}
        """The newest by loader."""
        self._loader_of: dict[int, int] = {}
        """By pass."""
        self._fed: Counter[int] = Counter()
        """Batches by loader, of the steps that they fed."""
        self._fed_steps = 0
        self._most_gets = 0
        self._replayed = 0
        """Batches given out since the last step was closed."""
        self._loads: list[Load] = []
        self._has_load = False
        self._passes = 0
        self._rate: dict[int, float] = {}
        """Batches a second by loader, as observed."""
        self._loaded = 0
        """The step up to which the workers were at work in the load window."""

    # Observe.

    def keep(self, source: Callable[[], Source], pass_: Pass, batch: Any, received: Received) -> None:
        """The training thread has received a batch of a DataLoader with autograd on, and will have it next."""
        limit = self._training.limit
        if pass_.number not in self._loader_of:
            self._loader_of[pass_.number] = pass_.loader
            self._sources[pass_.loader] = source()
        if limit.warmup is None or self._training.steps.number < limit.warmup:
            return
        kept = self._kept.get(pass_.loader)
        if kept is None:
            every = self._observed * max(self._training.steps.gets, 1) // MOST
            kept = self._kept[pass_.loader] = Kept(every, room_bytes())
        kept.offer(batch, received.bytes, received.shape)

    def closed(self, step: Step) -> None:
        """A step has been closed."""
        self._replayed = 0
        if self.is_replaying:
            if self._name == LOAD and all(load.is_on for load in self._loads):
                self._loaded = step.number + 1
            return
        if step.number == self._training.limit.warmup:
            self._since = step.start
        feeding = [event.pass_ for event, _ in step.gets if event.pass_ not in step.evaluated]
        self._most_gets = max(self._most_gets, len(feeding))
        if self._since:
            self._fed_steps += 1
            self._fed.update(self._loader_of[one] for one in feeding if one in self._loader_of)

    # The change of windows.

    def go_on(self) -> bool:
        """A window has had its steps, and the last of them has just ended. True where further steps follow."""
        if not self._steps or self._name == OVER:
            return False
        try:
            return self._next()
        except Exception as error:
            self._training.probe.fault("windows", error)
            self.close()
            return False

    def _next(self) -> bool:
        if self._name == OBSERVE:
            self._observed_all()
            if not self._may_replay():
                self.close()
                return False
            self._begin_replay()
        elif self._name == REPLAY and self._has_load:
            self._write_window(self._ended())
            self._begin_load()
        else:
            self._end_replay()
            self.close()
            return False
        self._training.limit.extend(SETTLING_STEPS + self._steps)
        return True

    def _observed_all(self) -> None:
        self._first = self._training.limit.warmup or 0
        open_step = self._training.steps.step
        self._since = self._since or (0 if open_step is None else open_step.start)
        observed_s = (self._ended() - self._since) / 1e9
        gets = {loader: count * self._steps_so_far() / max(self._fed_steps, 1) for loader, count in self._fed.items()}
        self._rate = {loader: count / observed_s for loader, count in gets.items()}
        self._write_window(self._ended(), settling=0)
        self.is_keeping = False

    def _may_replay(self) -> bool:
        ranks = self._training.ranks()
        for loader in self._fed:
            self._sources[loader].hold()
        feeding = [self._kept[loader] for loader in self._fed if loader in self._kept]
        vote = {
            "why_not": obstacle(self._training, feeding, 2 * (SETTLING_STEPS + self._steps)),
            "feeds": bool(feeding),
            "works_ahead": any(self._sources[loader].pass_.makers for loader in self._fed),
        }
        agreed = _merged([vote]) if ranks is None else ranks.agree("replay", vote, _merged)
        why_not = f"its ranks did not all come to the same step within {DEADLINE_S:.0f} s"
        if agreed is not None:
            why_not, self._has_load = agreed["why_not"], agreed["works_ahead"]
        if why_not:
            self._training.say("no-replay", f"The run was only observed: {why_not}.")
        return not why_not

    def _begin_replay(self) -> None:
        self._passes = self._training.passes
        self._begin(REPLAY)
        self.is_replaying = True
        held = self._held()
        untold = any(source.pass_.makers and source.is_idle() is None for source in held)
        if untold:
            time.sleep(UNTOLD_PAUSE_S)
        _wait(lambda: all(source.is_idle() is not False for source in held))

    def _begin_load(self) -> None:
        self._begin(LOAD)
        self._loads = [
            Load(source, 1.0 / self._rate[source.pass_.loader]) for source in self._held() if source.pass_.makers
        ]
        for load in self._loads:
            load.start()
        busy = [(load, load.source.pass_.makers) for load in self._loads]
        _wait(lambda: all(load.taken >= makers or not load.is_on for load, makers in busy))

    def _begin(self, name: str) -> None:
        self._name = name
        self._first = self._training.steps.number + 1
        self._loaded = self._first
        self._since = self._ended()

    def _end_replay(self) -> None:
        self._write_window(self._ended())
        free = [load.source for load in self._loads if load.stop()]
        self._loads = []
        self._begin(DRAIN)
        self._since = now()
        held = [source for source in self._held() if source in free or not (source.pass_.makers and self._has_load)]
        shares = [Share(source, self._per_step(source)) for source in held]
        batches = drain(shares, self._steps, self._drain_s) if shares else []
        if batches:
            clock = self._training.probe.clock
            self._training.probe.evidence.write(*(batch_record(clock, "drained", batch) for batch in batches))
            self._write_window(batches[-1].end, settling=0)

    def close(self) -> None:
        """Nothing of the windows goes on: the run ends, or its observation does. One that is broken off is written as
        far as it came."""
        name, self._name = self._name, OVER
        self.is_keeping = self.is_replaying = False
        for load in self._loads:
            load.stop()
        self._loads = []
        if name in (REPLAY, LOAD):
            self._name = name
            self._write_window(self._ended())
            self._name = OVER
        for source in self._sources.values():
            source.let_go()
        self._sources.clear()
        self._kept.clear()

    def forked(self) -> None:
        """In the child of a fork, where nothing is trained."""
        self._name = OVER
        self._steps = 0
        self.is_keeping = self.is_replaying = False
        self._loads = []
        self._kept.clear()
        self._sources.clear()

    # Replay.

    def serves(self, pass_: Pass) -> bool:
        """Whether copies stand for the batches of that pass."""
        return pass_.number < self._passes and pass_.loader in self._fed and pass_.loader in self._kept

    def stand_in_for(self, loader: int) -> Pass | None:
        """The pass that a new one over that loader goes on with, as long as copies stand for its batches."""
        source = self._sources.get(loader)
        return source.pass_ if source is not None and self.serves(source.pass_) else None

    def copy(self, pass_: Pass) -> Any:
        """Of a batch that was kept, for that pass. Raises StopIteration where something else than training asks."""
        self._replayed += 1
        if self._replayed > GREED * (self._most_gets + 1):
            self._training.say("no-replay", "A step asked for many times its batches: the run was only observed.")
            self.close()
            raise StopIteration
        return self._kept[pass_.loader].next()

    # What the window is.

    def _ended(self) -> int:
        step = self._training.steps.step
        return now() if step is None or step.end is None else step.end

    def _steps_so_far(self) -> int:
        """Those that have ended, the open one included if it has."""
        steps = self._training.steps
        is_ended = steps.step is not None and steps.step.end is not None
        return steps.number + is_ended - self._first

    def _held(self) -> list[Source]:
        return [self._sources[loader] for loader in self._fed if self._sources[loader].is_held]

    def _per_step(self, source: Source) -> float:
        return self._fed[source.pass_.loader] / max(self._fed_steps, 1)

    def _write_window(self, end: int, settling: int = SETTLING_STEPS) -> None:
        """Unless it has no step beyond those that settle."""
        steps = 0 if self._name == DRAIN else self._steps_so_far()
        if self._name == LOAD and self._loaded < self._first + steps - 1:  # the open step is not closed yet
            steps = self._loaded - self._first
        if steps <= settling and self._name != DRAIN:
            return
        clock = self._training.probe.clock
        record = ("window", self._name, self._first, steps, settling, clock.us(self._since), clock.us(end))
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
