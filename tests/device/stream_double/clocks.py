"""Vector clocks of streams and host threads: the work that each has behind it for certain."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

Clock: TypeAlias = dict[str, int]
"""Number of each stream's latest operation that is complete by then."""


@dataclass(frozen=True)
class Moment:
    """One operation on a stream: its number there, and the thread that enqueued it."""

    stream: str
    number: int
    thread: str
    is_copy: bool = False

    def is_before(self, clock: Clock) -> bool:
        """Return True if the operation is complete at `clock`."""
        return clock.get(self.stream, 0) >= self.number


@dataclass
class Clocks:
    """Clocks of one run. A stream does its operations in order; a thread knows what it has waited for."""

    _streams: defaultdict[str, Clock] = field(default_factory=lambda: defaultdict(dict))
    _threads: defaultdict[str, Clock] = field(default_factory=lambda: defaultdict(dict))

    def enqueue(self, stream: str, *, is_copy: bool = False) -> Moment:
        """Add an operation to a stream. It follows the stream's others, and all that this thread knows to be done."""
        clock = self._streams[stream]
        join(clock, self.known())
        clock[stream] = clock.get(stream, 0) + 1
        return Moment(stream, clock[stream], this_thread(), is_copy)

    def of_stream(self, stream: str) -> Clock:
        """Return a copy of the clock at the stream's end."""
        return dict(self._streams[stream])

    def of_all_streams(self) -> Clock:
        return {stream: clock[stream] for stream, clock in list(self._streams.items()) if stream in clock}

    def wait(self, stream: str, clock: Clock) -> None:
        """Let the stream's next operations follow all that is complete at `clock`."""
        join(self._streams[stream], clock)

    def known(self) -> Clock:
        """Return the clock of the calling thread."""
        return self._threads[this_thread()]

    def learn(self, clock: Clock) -> None:
        """Let the calling thread know that all is complete that `clock` has."""
        join(self.known(), clock)


def join(clock: Clock, other: Clock) -> None:
    """Move a clock on to include the other."""
    for stream, number in other.items():
        clock[stream] = max(clock.get(stream, 0), number)


def this_thread() -> str:
    """Return the calling thread's name, with a number that tells threads of one name apart."""
    thread = threading.current_thread()
    return f"{thread.name} ({thread.ident})"
