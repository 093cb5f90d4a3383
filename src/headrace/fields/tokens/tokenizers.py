"""One tokenizer interface for tokenizer.json files, transformers, and user functions."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.fields.tokens.native_tokenizer import NativeEncoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer


Ints: TypeAlias = NDArray[np.int64]

_MOST_WORDS = 1 << 16
"""Maximum words in the text that probes a full row: 128 kB, which a tokenizer encodes in less than a second."""


class TokenRow(NamedTuple):
    """Row returned by a tokenizer function."""

    ids: Ints
    mask: NDArray[np.bool_] | None
    """Attention mask; None if the function returned none."""


@dataclass(frozen=True)
class RowPadding:
    """Padding that a function adds to the rows it returns."""

    pad_id: int | None
    """Id of padding; None if the attention masks do not reveal it."""
    left: bool
    ends_texts: bool
    """True if the pad id also ends each text (with left padding: starts it), as `<|endoftext|>` often does."""
    length: int | None
    """Fixed length of all rows in ids; None if rows are as long as the longest of the call."""

    def own(self, row: TokenRow) -> Ints:
        """Strip a row's padding, by its mask or else by the run of pad ids at the padded side."""
        if row.mask is not None or self.pad_id is None:
            return row.ids if row.mask is None else row.ids[row.mask]
        found = np.flatnonzero(row.ids != self.pad_id)
        kept = int(self.ends_texts)
        if self.left:
            return row.ids[max((int(found[0]) if len(found) else len(row.ids)) - kept, 0) :]
        return row.ids[: (int(found[-1]) + 1 if len(found) else 0) + kept]


class FunctionEncoder:
    """Encoder around any function that maps a list of texts to rows of ids, padded or not.

    Padding is detected once, from two texts of different lengths, and then stripped from each row independently of the
    other rows in its batch. The function's attention mask marks padding if there is one, otherwise the pad id does.
    Rows are truncated to the maximum length.
    """

    def __init__(
        self,
        function: Callable[[list[str]], Any],
        *,
        max_length: int,
        place: str,
        version: str | None,
        pad_id: int | None = None,
        pads_left: bool = False,
        may_pad: bool = True,
    ) -> None:
        self.pad_id = pad_id
        self.pads_left = pads_left
        self.identity: str | None = None
        self._function = function
        self._max_length = max_length
        self._place = place
        self._padding = self._padding_shown() if may_pad else None
        known: list[Any] = ["function", version, max_length]
        if self._padding is not None:
            self.pads_left = self._padding.left
            self.pad_id = self._padding.pad_id if pad_id is None else pad_id
            known += [self._padding.pad_id, self._padding.left, self._padding.ends_texts]
        if version is not None:
            self.identity = hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()

    @property
    def row_length(self) -> int | None:
        """Length of each row in ids if the function pads all rows to a fixed length, else None."""
        length = None if self._padding is None else self._padding.length
        return None if length is None else min(length, self._max_length)

    def encode(self, texts: list[str]) -> Sequence[Sequence[int]]:
        """Return the ids of each text, in one call. Raises UsageError if the function does not return ids."""
        if not texts:
            return []
        return [self._own(row)[: self._max_length] for row in self._rows(texts)]  # type: ignore[misc]

    def _own(self, row: TokenRow) -> Ints:
        if self._padding is not None:
            return self._padding.own(row)
        return row.ids if row.mask is None else row.ids[row.mask]

    def _padding_shown(self) -> RowPadding | None:
        """Detect how the function pads by encoding two probe texts; return None if they show no padding."""
        try:
            (alone,) = self._rows(["a"])
            # As many words as the row has ids, so that the row is full even if max_length is smaller.
            words = "a " * min(max(self._max_length, len(alone.ids)), _MOST_WORDS)
            short, full = self._rows(["a", words])
        except Exception:
            return None  # the function accepts only certain texts or is broken: the dataset's texts will show which
        if len(short.ids) != len(full.ids):
            return None
        length = len(full.ids) if len(alone.ids) == len(full.ids) else None
        if short.mask is not None:
            padding = np.unique(short.ids[~short.mask])
            if not len(padding):
                return None
            return RowPadding(int(padding[0]) if len(padding) == 1 else None, not short.mask[0], False, length)
        if self.pad_id is None or len(short.ids) < 2 or self.pad_id not in (short.ids[0], short.ids[-1]):
            return None
        left = bool(short.ids[-1] != self.pad_id)
        return RowPadding(self.pad_id, left, bool(full.ids[0 if left else -1] == self.pad_id), length)

    def _rows(self, texts: list[str]) -> list[TokenRow]:
        found = self._call(texts)
        masks: Iterable[Any] | None = None
        if isinstance(found, Mapping) and "input_ids" in found:  # the format of transformers tokenizers
            masks, found = found.get("attention_mask"), found["input_ids"]
        try:
            rows = None if isinstance(found, str | bytes | Mapping) else list(found)
        except TypeError:
            rows = None
        if rows is None or len(rows) != len(texts):
            got = repr(type(found).__name__) if rows is None else str(len(rows))
            raise UsageError(
                f"{self._place}: expected the tokenizer to return {len(texts)} sequences of ids, got {got}"
            )
        ids = [self._ids(row, number) for number, row in enumerate(rows)]
        if masks is None:
            return [TokenRow(each, None) for each in ids]
        return [TokenRow(each, self._mask(mask, each)) for each, mask in zip(ids, masks, strict=True)]

    def _call(self, texts: list[str]) -> Any:
        try:
            return self._function(texts)
        except StopIteration as error:  # would silently end the consumer's loop (PEP 479)
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

    def _mask(self, mask: Any, ids: Ints) -> NDArray[np.bool_]:
        found = np.asarray(mask).astype(bool)
        if found.shape != ids.shape:
            raise UsageError(
                f"{self._place}: expected an attention mask of one number an id, {ids.shape}, got {found.shape}"
            )
        return found

    def _refused(self, number: int, got: str) -> UsageError:
        return UsageError(
            f"{self._place}: expected the tokenizer to return whole numbers of at least 0 for each text, got "
            f"{got[:80]} for text {number} of a batch"
        )


Encoder: TypeAlias = NativeEncoder | FunctionEncoder
"""Tokenizer whose `encode` returns the ids of texts, special tokens included, truncated to the maximum length.

`pad_id` is the id of padding, None if unknown; `pads_left` is True if padding precedes the text, as generative models
need; `row_length` is the fixed length of all rows, None if there is none; `identity` identifies the tokenizer and its
maximum length, None if it has no identity.
"""


def resolve_tokenizer(
    tokenizer: Any,
    *,
    max_length: int,
    pad_id: int | None = None,
    version: str | None = None,
    place: str = "tokenizer",
) -> Encoder:
    """Return an encoder for any tokenizer that `hr.Text` accepts, with up to `max_length` tokens per text.

    `pad_id` is the pad id that the user passed. `version` identifies a function, which has no identity of its own.
    Error texts begin with `place`. Raises UsageError for an unsupported tokenizer, and for a path if the tokenizers
    library is not installed.
    """
    pad_token: str | None = None
    if isinstance(tokenizer, str | os.PathLike):
        pad_token = _configured_pad_token(Path(tokenizer))
        tokenizer = _read_tokenizer(Path(tokenizer), place)
    native = _native_tokenizer(tokenizer)
    if native is not None:
        return NativeEncoder(
            native,
            max_length=max_length,
            place=place,
            pad_id=getattr(tokenizer, "pad_token_id", None),
            pad_token=pad_token,
            sides=(getattr(tokenizer, "padding_side", None), getattr(tokenizer, "truncation_side", None)),
        )
    if _is_of_transformers(tokenizer):
        return FunctionEncoder(
            partial(_call_transformers, tokenizer, max_length),
            max_length=max_length,
            place=place,
            version=version,
            pad_id=tokenizer.pad_token_id,
            pads_left=tokenizer.padding_side == "left",
            may_pad=False,
        )
    if callable(tokenizer):
        return FunctionEncoder(tokenizer, max_length=max_length, place=place, version=version, pad_id=pad_id)
    raise UsageError(
        f"{place}: expected a path of a tokenizer.json, a tokenizer of tokenizers or transformers, or a function of a "
        f"list of texts, got {tokenizer!r}"
    )


def _read_tokenizer(path: Path, place: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UsageError(
            f'{place}: reading {path} needs the library tokenizers: pip install "headrace[text]"'
        ) from error
    if not path.is_file():
        inside = path / "tokenizer.json"
        advice = "; load one that a hub names by transformers, and pass what that gives"
        if inside.is_file():
            advice = f"; did you mean {inside}?"
        raise UsageError(f"{place}: expected the path of a tokenizer.json, got {path}, which is no file{advice}")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library's own type is Exception
        raise UsageError(
            f"{place}: expected a tokenizer.json as the library tokenizers writes it, got {path}: {error}"
        ) from error


def _configured_pad_token(path: Path) -> str | None:
    """Return the pad token from the configuration files that transformers saves next to a tokenizer.json."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            token = json.loads((path.parent / name).read_text(encoding="utf-8"))["pad_token"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
    return None


def _native_tokenizer(tokenizer: Any) -> Tokenizer | None:
    """Return the `tokenizers.Tokenizer` that `tokenizer` is or wraps; None if there is none."""
    library = sys.modules.get("tokenizers")
    if library is None:
        return None
    if _is_of_transformers(tokenizer):
        tokenizer = getattr(tokenizer, "backend_tokenizer", None)  # slow tokenizers have none
    elif isinstance(tokenizer, library.implementations.BaseTokenizer):
        tokenizer = tokenizer._tokenizer
    return tokenizer if isinstance(tokenizer, library.Tokenizer) else None


def _is_of_transformers(tokenizer: Any) -> bool:
    library = sys.modules.get("transformers")
    return library is not None and isinstance(tokenizer, library.PreTrainedTokenizerBase)


def _call_transformers(tokenizer: Any, max_length: int, texts: list[str]) -> Any:
    return tokenizer(texts, truncation=True, max_length=max_length, padding=False)["input_ids"]
