"""What taking a batch out of the pipe costs the thread that does it."""

from __future__ import annotations

from bisect import bisect_left

from ..analyse.join import Made
from ..session.model import Trainer


class Receiving:
    """Reading the pipe, opening shared memory, unpickling: all from the moment at which the batch lay in the pipe and
    somebody wanted it until it had arrived, but for what was received in between."""

    def __init__(self, trainer: Trainer) -> None:
        self._gets = trainer.gets
        self._arrivals = sorted(time for time in trainer.gets.arrived if time is not None)

    def us(self, row: int, made: Made) -> float:
        """Of the batch of that `next()`; 0 for one that was made in the training thread."""
        gets = self._gets
        arrived, unpickle = gets.arrived[row], gets.unpickle[row] or 0
        sent = made.maker.batches.sent[made.row]
        if arrived is None or sent is None or gets.pin_start[row] is not None:
            return float(unpickle)
        return float(max(unpickle, arrived - max(gets.start[row], sent, self._before(arrived))))

    def _before(self, arrived: int) -> int:
        place = bisect_left(self._arrivals, arrived)
        return self._arrivals[place - 1] if place else 0
