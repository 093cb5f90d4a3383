"""The ids of a text field in a cache: what is kept is not encoded again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.cache import Store
from headrace.feed.contents import Ints
from headrace.fields.tokens import Sequences
from headrace.tokens.sequences import UNKNOWN, from_entries, to_entries

Encode = Callable[[list[str]], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class KeptTokens:
    """Entries of a store by the numbers of the field's texts."""

    store: Store
    first: int
    most: int
    """Ids of a text."""

    def encoded(self, texts: Sequence[str], numbers: Ints, encode: Encode) -> Sequences:
        """The ids of each text. Those that are not kept are made by one call of `encode`, and kept."""
        entries = self.first + numbers
        found = from_entries(*self.store.get_many(entries), most=self.most)
        missing = np.flatnonzero(found.lengths == UNKNOWN)
        if not len(missing):
            return found
        made = Sequences.of(encode([texts[row] for row in missing.tolist()]))
        self.store.put_many(entries[missing], *to_entries(made))
        return found.with_missing(made)
