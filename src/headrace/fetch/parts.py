"""Parts of objects that a pass has in memory or on their way, and their fetcher."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.fetch.objects import NumberedObject
from headrace.stores import LinkModel, Request, RequestCounts


class RangeFetcher(Protocol):
    """Fetcher of the parts of objects: a `RequestEngine`, or a stand-in that only counts."""

    def model(self) -> LinkModel: ...

    def fetch(self, requests: Sequence[Request]) -> Future[Any]: ...

    def counts(self) -> tuple[RequestCounts, dict[float, float | None]]: ...

    def close(self) -> None: ...


class FetchCancelled(Exception):  # noqa: N818  # how a pass ends, no error
    """Signal that the pass was closed while bytes were on their way."""


@dataclass(eq=False)
class Part:
    """Part of an object, in memory or on its way."""

    first: int
    bytes: int
    data: Future[Any]
    of: NumberedObject
    places: int = 0
    """Number of places in this part that a step begun or planned uses."""
    unpacked: dict[int, Any] = field(default_factory=dict)
    """Decoded contents of the part, for a column of packed values."""
