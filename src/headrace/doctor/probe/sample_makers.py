"""Functions that make the inspected samples of a dataset, each several times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

from .raw_samples import RawSamples, spread
from .sample_comparison import generators_held

INDICES = 8


class SampleMakers:
    """Functions that make the inspected samples: by index, from raw samples, or from the stream."""

    def __init__(self, dataset: Any, length: int | None, raw: RawSamples | None) -> None:
        self._dataset, self._length, self._raws = dataset, length, raw
        self._listed = None if raw is None else raw.makers(INDICES)
        self.is_stream = length is None and self._listed is None
        self._begin = generators_held()

    def raw(self, index: int) -> dict[str, Any]:
        """Return a sample as stored in the dataset's files; empty if the files are unknown."""
        if self._listed is not None:
            return self._listed[index][0]
        return {} if self._raws is None else self._raws.members(index)

    def of(self, makings: tuple[int, ...]) -> Iterator[tuple[int, int, Callable[[], Any]]]:
        """Yield the samples to make: the repetition, the sample's position, and the function that makes it."""
        if self.is_stream:
            for making in makings:
                self._begin()
                stream = iter(self._dataset)
                yield from ((making, place, lambda: next(stream)) for place in range(INDICES))  # noqa: B023  # at once
            return
        makers = self._by_index() if self._listed is None else enumerate(make for _, make in self._listed)
        yield from ((making, index, make) for index, make in makers for making in makings)

    def _by_index(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        dataset = self._dataset
        for index in spread(self._length or 0, INDICES):
            if hasattr(dataset, "__getitems__"):  # as in a DataLoader worker
                yield index, lambda index=index: dataset.__getitems__([index])[0]  # type: ignore[misc]
            else:
                yield index, lambda index=index: dataset[index]  # type: ignore[misc]
