"""Where in its manifest a sample stands, for messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ManifestRows(NamedTuple):
    """The samples of one manifest."""

    name: str
    rows: int
    first_line: int | None
    """The line, from 1, of the first sample, where each sample has one line; None: rows are counted, from 0."""


@dataclass(frozen=True)
class Origin:
    """The manifests that samples are rows of, one after another."""

    manifests: Sequence[ManifestRows]

    def of(self, base_id: int) -> str:
        row = base_id
        for manifest in self.manifests[:-1]:
            if row < manifest.rows:
                break
            row -= manifest.rows
        else:
            manifest = self.manifests[-1]
        place = f"row {row:,}" if manifest.first_line is None else f"line {manifest.first_line + row:,}"
        return f"{place} of {manifest.name}"
