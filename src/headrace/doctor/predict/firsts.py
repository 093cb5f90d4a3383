"""The first batches of workers, apart from the others: a worker imports, opens files and fills caches with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.doctor.analyse.join import Made
from headrace.doctor.predict.received import Received


@dataclass(frozen=True)
class Firsts:
    """Batches whose making is known."""

    usual: list[tuple[int, Made]]
    """With their rows of `Trainer.gets`; all of them where there are no others than first ones."""
    first: list[Made]
    """Of all makers, be it that no measured step received them."""

    @classmethod
    def of(cls, batches: Sequence[Received], *, workers: int, iterates: bool) -> Firsts:
        """A worker that `iterates` over its dataset begins to in each pass anew, so that each has a first batch."""
        known = [(one.row, one.made) for one in batches if one.made is not None]
        usual = [(row, made) for row, made in known if not _is_first(made, workers, iterates)]
        makers = {id(made.maker): made.maker for _, made in known}
        made = [Made(maker, row) for maker in makers.values() for row in range(len(maker.batches.start))]
        return cls(usual or known, [one for one in made if _is_first(one, workers, iterates)])


def _is_first(made: Made, workers: int, iterates: bool) -> bool:
    batches = made.maker.batches
    is_new = batches.epoch[made.row] == 0 and made.maker.worker is not None
    return batches.index[made.row] < max(workers, 1) and (iterates or is_new)
