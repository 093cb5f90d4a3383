"""Passes of a run that is checked for faults of its data: a few batches of each, and the keys of the rest.

After these batches the loader's `next()` draws what is left of its sampler and ends the pass, so that the script goes
on to its evaluation and to its next epoch. What a stream yields has no keys: its further batches are made, digested
row by row, and dropped.
"""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable

from ..look.digests import batch_rows, digest_of_text
from ..look.first_batches import base_of
from ..look.value_look import MADE
from ..patches import Patches

if TYPE_CHECKING:
    from .state import ObservedPass, TrainingState

FEWEST_STEPS = 2
"""Optimizer steps of a pass that feeds training; it is not cut before."""
MOST_BATCHES = 64
"""Batches after which a pass is cut even if no optimizer has stepped."""
TRAINED = 2
"""Passes that feed training after which the run ends, once an evaluation was seen."""
MOST_TRAINED = 4
"""The same without any evaluation."""
SLOW = 1 / 8
"""Share of the run's time after which a pass is cut as soon as it has fed the fewest steps."""
MOST_KEYS = 2_000_000
MOST_ROWS = 20_000
"""Rows of a stream that are digested in a pass."""
MOST_FOLLOW_S = 10.0
"""Time in which the rest of a pass is followed."""
SKETCHED = 4096
"""Least hashes of keys that represent the set of a pass's samples."""
_KEYS = "_headrace_drawn"
"""Attribute of a DataLoader iterator: the keys that it drew in this pass."""


@dataclass(eq=False)
class _CutPass:
    """A pass under way."""

    steps: int
    """Optimizer steps of the process before it."""
    with_grad: bool
    begun: float = field(default_factory=lambda: time.monotonic())
    rows: int = 0
    is_over: bool = False
    is_whole: bool = True
    """False if not all of its keys were followed."""


class ShortPasses:
    """Passes of a process that are cut after a few batches."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._batches, self._most_s = state.settings.shortens, state.settings.check_s
        self._begun = 0.0
        self._passes: dict[int, _CutPass] = {}
        self._trained: dict[str | None, int] = {}
        """Passes that fed training, by the line that makes their loader: a script may make one for each."""
        self._evaluated = 0

    @property
    def is_on(self) -> bool:
        return self._batches > 0

    def install(self, patches: Patches, iterators: type) -> None:
        """Follow the keys that DataLoader's iterators draw."""

        def next_index(original: Callable[[Any], Any], iterator: Any) -> Any:
            keys = original(iterator)
            drawn = _drawn(iterator)
            if len(drawn) < MOST_KEYS:
                drawn += keys if isinstance(keys, (list, tuple)) else [keys]
            return keys

        def reset(original: Callable[..., Any], iterator: Any, *args: Any, **kwargs: Any) -> Any:
            vars(iterator).pop(_KEYS, None)
            return original(iterator, *args, **kwargs)

        patches.around(iterators, "_next_index", next_index)
        patches.around(iterators, "_reset", reset)

    def begun(self, pass_: ObservedPass, iterator: Any, with_grad: bool) -> None:
        self._begun = self._begun or time.monotonic()
        if hasattr(iterator, "_next_index"):  # torch's own
            self._passes[pass_.number] = _CutPass(self._state.steps_seen, with_grad)

    def is_late(self) -> bool:
        """Return True if the run has taken its time. Ranks end together, by their passes."""
        is_over = self._begun > 0 and time.monotonic() - self._begun > self._most_s
        return is_over and self._state.group.world_size() == 1

    def is_cut(self, pass_: ObservedPass) -> bool:
        """Return True if the pass has made enough batches."""
        cut = self._passes.get(pass_.number)
        if cut is None or get_ident() != self._state.thread.observed:
            return False
        fed = self._state.steps_seen - cut.steps
        is_slow = time.monotonic() - cut.begun > self._most_s * SLOW
        is_enough = is_slow or pass_.given >= max(self._batches, min(2 * pass_.makers, MOST_BATCHES))
        is_idle = fed == 0 and (pass_.given >= MOST_BATCHES or not cut.with_grad)  # no optimizer waits for more
        return cut.is_over or (is_enough and (fed >= FEWEST_STEPS or is_idle))

    def received(self, pass_: ObservedPass, iterator: Any, batch: Any) -> None:
        """Digest the rows of a batch without keys."""
        cut = self._passes.get(pass_.number)
        if cut is not None and cut.rows < MOST_ROWS and _has_no_keys(_drawn(iterator)):
            leaves = batch_rows(batch)
            cut.rows += max((len(rows) for _, rows in leaves), default=1)
            self._state.evidence.write(("rows", pass_.number, pass_.index, leaves))

    def follow(self, read: Callable[[], Any], iterator: Any, pass_: ObservedPass) -> Any:
        """Draw the rest of a pass without giving its batches, and raise StopIteration, as any later call does.

        An error of the dataset or its sampler ends the pass as well, since the script would not have met it here.
        """
        cut, drawn = self._passes[pass_.number], _drawn(iterator)
        if cut.is_over:
            raise StopIteration
        until = time.monotonic() + min(MOST_FOLLOW_S, self._most_s / 4)
        with suppress(Exception):
            while time.monotonic() < until and len(drawn) < MOST_KEYS and cut.rows < MOST_ROWS:
                if _has_no_keys(drawn):
                    batch = read()
                    pass_.index = getattr(iterator, "_rcvd_idx", pass_.index + 2) - 1
                    self.received(pass_, iterator, batch)
                else:
                    _ = iterator._next_index()
            cut.is_whole = False
        raise StopIteration

    def ended(self, pass_: ObservedPass, iterator: Any) -> None:
        """Write the keys of a pass that is over."""
        cut = self._passes.get(pass_.number)
        if cut is None or cut.is_over:
            return
        cut.is_over, has_fed = True, self._state.steps_seen > cut.steps
        loader = pass_.owner()
        made = getattr(loader, MADE, None)
        self._trained[made] = self._trained.get(made, 0) + has_fed
        self._evaluated += not has_fed
        base, keys = base_of(getattr(loader, "dataset", None), vars(iterator).pop(_KEYS, []))
        keys = [] if _has_no_keys(keys) else keys
        hashes = {zlib.crc32(repr(key).encode()) for key in keys}
        counts = int(has_fed), len(keys), int(len(hashes) == len(keys)), int(cut.is_whole)
        order = digest_of_text(repr(keys)).hex()
        self._state.evidence.write(("keys", pass_.number, *counts, order, sorted(hashes)[:SKETCHED], base))

    def is_done(self, loader: Any = None) -> bool:
        """Return True if the run has shown what it can.

        Several ranks decide together, as they begin the next pass over a loader that feeds training.
        """
        most = max(self._trained.values(), default=0)
        if self._state.group.world_size() == 1:
            return most >= (TRAINED if self._evaluated else MOST_TRAINED)
        if self._trained.get(getattr(loader, MADE, None), 0) < TRAINED:
            return False
        is_seen = self._state.group.agree(f"check/{most}", self._evaluated > 0, any)
        return bool(is_seen) or most >= MOST_TRAINED

    def forked(self) -> None:
        """A child of the process follows no pass."""
        self._passes.clear()


def _drawn(iterator: Any) -> list[Any]:
    """Return the keys that an iterator has drawn in this pass."""
    keys: list[Any] = vars(iterator).setdefault(_KEYS, [])
    return keys


def _has_no_keys(drawn: list[Any]) -> bool:
    """Return True for what was drawn from a stream."""
    return all(key is None for key in drawn[:1])
