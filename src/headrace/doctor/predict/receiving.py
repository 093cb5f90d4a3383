"""What taking batches out of the pipe costs the thread that does it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

from headrace.doctor.analyse.handing import late, usual_us, waited_us
from headrace.doctor.analyse.join import Made
from headrace.doctor.predict.received import Received
from headrace.doctor.session.model import Trainer

LONG = 3.0
"""Times as long as usual for as many bytes, from which unpickling must have waited for a core."""


class Receiving:
    """Unpickling a batch, and what is around that: the pipe is read, shared memory opened, from the moment at which the
    batch lay in the pipe and somebody wanted it until it had arrived, but for what was received in between. What is
    around it is much the same each time, unless the thread has to wait for a core, or for the batch's worker."""

    def __init__(self, trainer: Trainer, batches: Sequence[Received]) -> None:
        self._gets = gets = trainer.gets
        self._usual_wait = usual = usual_us(gets)
        late_ones = (
            [] if usual is None else [(one.row, late(gets, one.row, one.made, usual)) for one in batches if one.made]
        )
        self._held = {row: float(found[0]) for row, found in late_ones if found is not None}
        self._arrivals = sorted(time for time in trainer.gets.arrived if time is not None)
        around = {row: us for row, made in batches if made is not None and (us := self._around(row, made)) is not None}
        self._usual = median(around.values()) if around else 0.0
        self._excess = {row: max(us - self._usual, 0.0) for row, us in around.items()}
        paces = [pace for row, _ in batches if (pace := self._pace(row)) is not None]
        self._most = LONG * median(paces) if paces else 0.0

    def us(self, row: int) -> float:
        """Of the batch of that `next()`, as usual; 0 for one that was made in the training thread."""
        unpickle = self._gets.unpickle[row]
        return 0.0 if unpickle is None else self._unpickling(row, unpickle) + self._usual

    def held(self, row: int) -> float:
        """What it took longer since the batch's worker was at the next one."""
        return self._held.get(row, 0.0)

    def computing(self, row: int) -> float:
        """CPU time of unpickling; where that was not measured, all its time."""
        unpickle = self._gets.unpickle[row] or 0
        return float(unpickle - (waited_us(self._gets, row) or 0))

    def delay(self, row: int) -> float:
        """What it took longer than usual for another reason."""
        unpickle = self._gets.unpickle[row]
        longer = 0.0 if unpickle is None else unpickle - self._unpickling(row, unpickle) - self.held(row)
        return self._excess.get(row, 0.0) + max(longer, 0.0)

    def _unpickling(self, row: int, unpickle: int) -> float:
        """Without what it waited more than usual."""
        waited = waited_us(self._gets, row)
        if waited is None or self._usual_wait is None:
            return min(float(unpickle), self._longest(row))
        return unpickle - waited + min(waited, self._usual_wait)

    def _pace(self, row: int) -> float | None:
        """Microseconds a byte of unpickling; of batches without tensors they count as one."""
        unpickle = self._gets.unpickle[row]
        return None if unpickle is None else unpickle / (self._gets.bytes[row] or 1)

    def _longest(self, row: int) -> float:
        return self._most * (self._gets.bytes[row] or 1)

    def _around(self, row: int, made: Made) -> float | None:
        """None where a thread that pins did it."""
        gets = self._gets
        arrived, unpickle, sent = gets.arrived[row], gets.unpickle[row], made.maker.batches.sent[made.row]
        if arrived is None or unpickle is None or sent is None or gets.pin_start[row] is not None:
            return None
        return max(arrived - unpickle - max(gets.start[row], sent, self._before(arrived)), 0.0)

    def _before(self, arrived: int) -> int:
        place = bisect_left(self._arrivals, arrived)
        return self._arrivals[place - 1] if place else 0
