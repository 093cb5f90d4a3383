"""Runs a user's step at growing sizes until the largest that fits is known."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Sequence
from math import prod

from headrace.errors import BudgetError
from headrace.memory.device_memory import DeviceMemory
from headrace.memory.line import Line, Measured, fit_line, largest_that_fits, next_samples
from headrace.memory.report import Fit, Shape, Step

WARM_UPS = 2
"""Steps that are not measured: the first makes the optimizer's state, and libraries choose their workspaces."""
MOST_SAMPLES = 1 << 20
"""Where a step's memory does not grow with its samples, no size is the largest."""

RunStep = Callable[..., object]


class Search:
    """The largest cost at which a step of every shape fits, a cost being samples x the product of the shape.

    The largest shape is fitted first. Each other one then runs at the same cost: where its memory is not linear in its
    size, as attention's, it may need more, and is fitted in turn.
    """

    def __init__(self, step: RunStep, memory: DeviceMemory, *, margin: float, most: int | None) -> None:
        self._step = step
        self._memory = memory
        self._margin = margin
        self._most = most
        self._steps: list[Step] = []

    def run(self, shapes: Sequence[Shape]) -> tuple[int, Fit]:
        """Raises BudgetError where not even one sample fits, or `most` holds none."""
        largest, *others = sorted(shapes, key=prod, reverse=True)
        capacity_bytes = self._warmed_up(largest)
        limit_bytes = int(capacity_bytes * (1 - self._margin))
        cost, shown = self._fitted(largest, limit_bytes, self._most)
        line = self._line(largest)
        for shape in others:
            least, step = self._fitted(shape, limit_bytes, cost, from_the_top=True)
            if step.samples < cost // prod(shape):
                cost, shown = least, step
            elif (step.peak_bytes or 0) > (shown.peak_bytes or 0):
                shown = step
        return cost, Fit(tuple(self._steps), shown, line, capacity_bytes, limit_bytes, self._margin, (cost,))

    def _warmed_up(self, shape: Shape) -> int:
        """The capacity in bytes."""
        for _ in range(WARM_UPS):
            if self._peak(1, shape) is None:
                raise self._too_small(shape, self._memory.capacity_bytes())
        self._memory.begin()  # so that what is kept for later counts to no other process
        return self._memory.capacity_bytes()

    def _fitted(
        self, shape: Shape, limit_bytes: int, most: int | None, *, from_the_top: bool = False
    ) -> tuple[int, Step]:
        """The largest cost that fits, and the step that shows it; `from_the_top` tries the most of all first."""
        highest = MOST_SAMPLES if most is None else min(MOST_SAMPLES, most // prod(shape))
        if highest < 1:
            raise BudgetError(f"most: expected room for one sample of {_named(shape)}, {prod(shape)}, got {most}")
        measured: list[Measured] = []
        samples: int | None = highest if from_the_top else 1
        while samples is not None:
            measured.append(Measured(samples, self._measured(samples, shape)))
            samples = next_samples(measured, limit_bytes=limit_bytes, most=highest)
        fits = largest_that_fits(measured, limit_bytes=limit_bytes)
        if fits is None:
            raise self._too_small(shape, limit_bytes)
        return fits * prod(shape), Step(shape, fits, dict(measured)[fits])

    def _measured(self, samples: int, shape: Shape) -> int | None:
        peak_bytes = self._peak(samples, shape)
        self._steps.append(Step(shape, samples, peak_bytes))
        return peak_bytes

    def _peak(self, samples: int, shape: Shape) -> int | None:
        self._memory.begin()
        try:
            self._step(samples, *shape)
            return self._memory.peak_bytes()
        except Exception as error:
            if not self._memory.is_out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)  # whose locals hold the tensors of the step
        gc.collect()
        self._memory.begin()
        return None

    def _line(self, shape: Shape) -> Line | None:
        measured = [Measured(step.samples, step.peak_bytes) for step in self._steps if step.shape == shape]
        ran = [one for one in measured if one.peak_bytes is not None]
        return fit_line(ran) if len(ran) > 1 else None

    def _too_small(self, shape: Shape, limit_bytes: int) -> BudgetError:
        peaks = [step.peak_bytes for step in self._steps if step.shape == shape and step.peak_bytes is not None]
        took = f"took {min(peaks):,} bytes" if peaks else "ran out of memory"
        return BudgetError(
            f"expected a step of one sample of {_named(shape)} to fit in {limit_bytes:,} bytes, the device's memory "
            f"less the margin; it {took}; take smaller shapes, a smaller model or checkpointing of activations"
        )


def _named(shape: Shape) -> str:
    return "x".join(map(str, shape))
