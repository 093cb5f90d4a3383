"""Numbers for the shapes of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .signature import Shape, bytes_and_shape, text

if TYPE_CHECKING:
    from .probe import Probe

MOST_SHAPES = 1000
"""A run in which each batch has a shape of its own must not fill the evidence with their names."""


class Shapes:
    """The shapes seen so far, by their numbers among the evidence's names."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._numbers: dict[Shape, int] = {}

    def of(self, batch: Any) -> tuple[int | None, int | None]:
        """Bytes of a batch, and the number of its shape; None for what is not known."""
        try:
            size, shape = bytes_and_shape(batch)
        except Exception:  # a tensor that has no shape (nested), or an object of the user's that is asked for one
            return None, None
        if shape is None:
            return None, None
        number = self._numbers.get(shape)
        if number is None and len(self._numbers) < MOST_SHAPES:
            number = self._numbers[shape] = self._probe.evidence.name(text(shape))
        return size, number
