"""`CalledEncoder`: any function of a list of texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError

Ints = NDArray[np.int64]


class CalledEncoder:
    """What a function returns, looked at and cut to the greatest length."""

    def __init__(
        self,
        function: Callable[[list[str]], Any],
        *,
        max_length: int,
        place: str,
        version: str | None,
        pad_id: int | None = None,
        pads_left: bool = False,
    ) -> None:
        self.pad_id = pad_id
        self.pads_left = pads_left
        self.identity: str | None = None
        if version is not None:
            known = json.dumps(["function", version, max_length])
            self.identity = hashlib.blake2b(known.encode(), digest_size=16).hexdigest()
        self._function = function
        self._max_length = max_length
        self._place = place

    def encode(self, texts: list[str]) -> Sequence[Sequence[int]]:
        if not texts:
            return []
        found = self._call(texts)
        try:
            rows = None if isinstance(found, str | bytes | Mapping) else list(found)
        except TypeError:
            rows = None
        if rows is None or len(rows) != len(texts):
            got = repr(type(found).__name__) if rows is None else str(len(rows))
            advice = "; return its 'input_ids'" if isinstance(found, Mapping) and "input_ids" in found else ""
            raise UsageError(
                f"{self._place}: expected the tokenizer to return {len(texts)} sequences of ids, got {got}{advice}"
            )
        return [self._ids(row, number)[: self._max_length] for number, row in enumerate(rows)]  # type: ignore[misc]

    def _call(self, texts: list[str]) -> Any:
        try:
            return self._function(texts)
        except StopIteration as error:  # it would end the consumer's loop in silence (PEP 479)
            raise RuntimeError(f"StopIteration raised in the tokenizer of {self._place}") from error
        except Exception as error:
            error.add_note(f"in the tokenizer of {self._place}")
            raise

    def _ids(self, row: Any, number: int) -> Ints:
        try:
            ids = np.asarray(row)
        except (ValueError, TypeError):
            ids = np.empty((), object)
        if ids.size == 0 and ids.ndim == 1:
            return np.empty(0, np.int64)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or int(ids.max()) >= 1 << 63:
            raise self._refused(number, repr(row))
        if int(ids.min()) < 0:
            raise self._refused(number, f"the id {int(ids.min())}")
        return ids.astype(np.int64, copy=False)

    def _refused(self, number: int, got: str) -> UsageError:
        return UsageError(
            f"{self._place}: expected the tokenizer to return whole numbers of at least 0 for each text, got "
            f"{got[:80]} for text {number} of a batch"
        )
