"""Where in its manifest a sample stands, for messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    manifest: str
    first_line: int | None
    """The line, from 1, of the first sample, where each sample has one line; None: rows are counted, from 0."""

    def of(self, base_id: int) -> str:
        place = f"row {base_id:,}" if self.first_line is None else f"line {self.first_line + base_id:,}"
        return f"{place} of {self.manifest}"
