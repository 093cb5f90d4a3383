"""The readings of a run of any length, in bounded memory."""

from __future__ import annotations

from headrace.doctor.machine.part import Row

MOST_ROWS = 3600


class Table:
    """Rows by time. When full, each two neighbours become their mean, so that shares and rates stay true; the caller
    then reads half as often."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self.time: list[int] = []
        self.columns: dict[str, list[float | None]] = {}
        self.merged = 1
        """Readings a row."""
        self._most_rows = most_rows

    def append(self, time_us: int, row: Row) -> None:
        """A column that comes late was not measured before."""
        for name in row:
            self.columns.setdefault(name, [None] * len(self.time))
        self.time.append(time_us)
        for name, values in self.columns.items():
            values.append(row.get(name))
        if len(self.time) >= self._most_rows:
            self._merge()

    def _merge(self) -> None:
        self.merged *= 2
        self.time = self.time[1::2] + self.time[len(self.time) // 2 * 2 :]
        self.columns = {name: _merged(values) for name, values in self.columns.items()}


def _merged(values: list[float | None]) -> list[float | None]:
    """Means of two by two; the last alone where they are odd."""
    return [_mean(values[place : place + 2]) for place in range(0, len(values), 2)]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
