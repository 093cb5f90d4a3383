"""The iterators behind the training loop, from which only we take batches once it is fed with copies."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

from ..passes import ATTRIBUTE

if TYPE_CHECKING:
    from ..passes import Pass
    from .step_records import Received


class Source:
    """One pass over a DataLoader. The iterator is the user's until `hold`: it ends its workers when it is dropped."""

    def __init__(self, iterator: Any, pass_: Pass, take: Callable[[Any, Pass], Received]) -> None:
        """`take(iterator, pass_)` receives the next batch, and raises StopIteration at the end."""
        self._iterator = weakref.ref(iterator)
        self._held: Any = None
        self._take = take
        self.pass_ = pass_

    def hold(self) -> bool:
        """Keeps the iterator until `let_go`. False where it has gone."""
        self._held = self._iterator()
        return self._held is not None

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def let_go(self) -> None:
        self._held = None

    @property
    def outstanding(self) -> int:
        """Batches that its workers were asked for, and that were not received yet."""
        asked = getattr(self._held, "_tasks_outstanding", 0)
        return asked if isinstance(asked, int) else 0

    def left(self) -> float:
        """Batches that the pass has yet to give; without end where nobody knows how many it has."""
        try:
            return float(len(self._held) - self.pass_.index - 1)
        except Exception:  # an iterable dataset's, or a sampler of the user's without a length
            return float("inf")

    def renewed(self) -> Source | None:
        """A new pass over the same DataLoader in place of this one, which ends. None where that has gone."""
        loader = self.pass_.owner()
        if loader is None:
            return None
        self.let_go()
        iterator = iter(loader)
        source = Source(iterator, getattr(iterator, ATTRIBUTE), self._take)
        source.hold()
        return source

    def take(self) -> Received:
        return self._take(self._held, self.pass_)

    def is_idle(self) -> bool | None:
        """Whether its workers have made all that they were asked for; None where that cannot be told."""
        asked = getattr(self._held, "_tasks_outstanding", None)
        queues = [getattr(self._held, name, None) for name in ("_worker_result_queue", "_data_queue")]
        if asked is None or queues[0] is None:
            return None
        try:
            return bool(sum(queue.qsize() for queue in _distinct(queues)) >= asked)
        except NotImplementedError:  # macOS
            return None


def _distinct(queues: list[Any]) -> list[Any]:
    """Where nothing is pinned, both names are one queue."""
    return list({id(queue): queue for queue in queues if queue is not None}.values())
