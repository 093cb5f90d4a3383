"""Choice of the loader for sample inspection."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable

from .value_look import LOOK_FILE, look_within

if TYPE_CHECKING:
    from .settings import ProbeSettings
    from .training.received_batches import ObservedPass


class LookedLoader:
    """The DataLoader that gave training the most batches. Only rank 0 inspects it."""

    def __init__(self, settings: ProbeSettings, note: Callable[[str, str], None]) -> None:
        self._seconds, self._note = settings.look_s, note
        self.may_look = self._seconds > 0
        self._path = os.path.join(settings.folder, LOOK_FILE)
        self._counts: Counter[int] = Counter()
        self._owners: dict[int, Callable[[], Any]] = {}

    def fed_by(self, pass_: ObservedPass) -> None:
        self._counts[pass_.loader] += 1
        self._owners[pass_.loader] = pass_.owner

    def most_used(self) -> Any:
        """Return the loader with the most batches, or None if it no longer exists."""
        return next((self._owners[number]() for number, _ in self._counts.most_common(1)), None)

    def look_at(self, loader: Any) -> None:
        """Inspect a DataLoader. Never raises, whatever its dataset does."""
        if not self._seconds or loader is None or not _is_first_rank():
            return
        if type(loader).__module__.startswith("headrace."):
            return
        why = look_within(loader, self._path, self._seconds)
        if why:
            self._note("no-look", f"The dataset's samples could not be looked at: {why}")


def _is_first_rank() -> bool:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"
