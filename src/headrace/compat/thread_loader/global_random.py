"""Tells whoever draws from a global random source in a thread that such draws do not repeat."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from headrace.compat.random_states import global_states, moved_sources

WAITS = 3
"""Waits of the consumer that are looked at: two snapshots take 50 µs, in a time that is spent waiting anyway."""


class GlobalRandomWatch:
    """While the main thread waits for a batch, nobody but the dataset should move a global generator.

    Threads share the global sources of `random`, numpy and torch, so which sample gets which number depends on timing.
    Seen from the consumer it costs the samples nothing. It warns once, and looks at a loader's first waits only.
    """

    def __init__(self, waits: int = WAITS) -> None:
        self._waits = waits

    def before_wait(self) -> dict[str, Any] | None:
        """The global states, for `after_wait`; None once enough was looked at."""
        if self._waits <= 0 or threading.current_thread() is not threading.main_thread():
            return None
        self._waits -= 1
        return global_states()

    def after_wait(self, before: dict[str, Any] | None) -> None:
        """Warns, at the line that asked for the batch, if a state has moved since."""
        if before is None:
            return
        moved = moved_sources(before)
        if moved:
            self._waits = 0
            _warn(moved)


def _warn(moved: list[str]) -> None:
    warnings.warn(
        f"{' and '.join(moved)} moved while ThreadDataLoader waited for a batch: the dataset or collate_fn seems to "
        "draw from it. Threads share it, so which sample gets which number depends on timing, and a run does not "
        "repeat. Draw from sample_random() instead, or load with num_workers=0 or in DataLoader's processes",
        UserWarning,
        stacklevel=6,
    )
