"""What is gathered in the observed steps for the windows after them: batches, where they came from, and how fast."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Callable

from ..training.loader_sources import Source
from .kept import MOST, Kept
from .memory import room_bytes

if TYPE_CHECKING:
    from ..passes import Pass
    from ..training.step_records import Received
    from ..training.steps import Step


class Observed:
    """By DataLoader, of those whose batches fed a step. `since` is when the first observed step began, 0 before."""

    def __init__(self, steps: int) -> None:
        self._asked = steps
        self._passes: dict[int, Pass] = {}
        self._fed: Counter[int] = Counter()
        self._steps = 0
        self.since = 0
        self.kept: dict[int, Kept] = {}
        self.sources: dict[int, Source] = {}
        """The newest."""
        self.most_gets = 0
        """Batches of a step, at most."""

    @property
    def loaders(self) -> list[int]:
        """Those that fed steps, by number."""
        return [loader for loader in self._fed if loader in self.kept]

    def add_source(self, pass_: Pass, source: Callable[[], Source]) -> None:
        """The pass has given a batch."""
        if pass_.number not in self._passes:
            self._passes[pass_.number] = pass_
            self.sources[pass_.loader] = source()

    def offer(self, pass_: Pass, batch: Any, received: Received, gets: int) -> None:
        """A batch of an observed step, which it has `gets` of."""
        kept = self.kept.get(pass_.loader)
        if kept is None:
            kept = self.kept[pass_.loader] = Kept(self._asked * max(gets, 1) // MOST, room_bytes())
        kept.offer(batch, received.bytes, received.shape)

    def closed(self, step: Step, is_measured: bool) -> None:
        """A step has been closed; the warm-up's are not measured."""
        feeding = [event.pass_ for event, _ in step.gets if event.pass_ not in step.evaluated]
        self.most_gets = max(self.most_gets, len(feeding))
        if is_measured:
            self.since = self.since or step.start
            self._steps += 1
            self._fed.update(self._passes[one].loader for one in feeding if one in self._passes)

    def pass_of(self, loader: int) -> Pass | None:
        """The newest that gave batches."""
        return next((one for one in reversed(list(self._passes.values())) if one.loader == loader), None)

    def per_step(self, loader: int) -> float:
        """Batches of that loader."""
        return self._fed[loader] / max(self._steps, 1)

    def forget(self) -> None:
        for source in self.sources.values():
            source.let_go()
        self.sources.clear()
        self.kept.clear()
        self._fed.clear()
