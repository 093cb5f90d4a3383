"""Finds out what a tokenizer is."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import UsageError
from headrace.tokens.called import CalledEncoder
from headrace.tokens.encoder import Encoder
from headrace.tokens.library import LibraryEncoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def resolve_tokenizer(
    tokenizer: Any, *, max_length: int, version: str | None = None, place: str = "tokenizer"
) -> Encoder:
    """What encodes by `tokenizer`, which is anything that `hr.Text` takes, up to `max_length` tokens a text.

    `version` is the identity of a function, which has none of its own. `place` begins the text of errors. Raises
    UsageError for what is no tokenizer, and where the library is not installed that a path needs.
    """
    if isinstance(tokenizer, str | os.PathLike):
        tokenizer = _read(Path(tokenizer), place)
    native = _native(tokenizer)
    if native is not None:
        return LibraryEncoder(
            native,
            max_length=max_length,
            place=place,
            pad_id=getattr(tokenizer, "pad_token_id", None),
            sides=(getattr(tokenizer, "padding_side", None), getattr(tokenizer, "truncation_side", None)),
        )
    if _is_of_transformers(tokenizer):
        return CalledEncoder(
            partial(_call_transformers, tokenizer, max_length),
            max_length=max_length,
            place=place,
            version=version,
            pad_id=tokenizer.pad_token_id,
            pads_left=tokenizer.padding_side == "left",
        )
    if callable(tokenizer):
        return CalledEncoder(tokenizer, max_length=max_length, place=place, version=version)
    raise UsageError(
        f"{place}: expected a path of a tokenizer.json, a tokenizer of tokenizers or transformers, or a function of a "
        f"list of texts, got {tokenizer!r}"
    )


def _read(path: Path, place: str) -> Tokenizer:
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


def _native(tokenizer: Any) -> Tokenizer | None:
    """The library's tokenizer that it is, or is made around; of a class of the user's own nobody knows what it adds."""
    library = sys.modules.get("tokenizers")
    if library is None:
        return None
    if _is_of_transformers(tokenizer):
        tokenizer = getattr(tokenizer, "backend_tokenizer", None)  # which slow ones have not
    elif isinstance(tokenizer, library.implementations.BaseTokenizer):
        tokenizer = tokenizer._tokenizer
    return tokenizer if isinstance(tokenizer, library.Tokenizer) else None


def _is_of_transformers(tokenizer: Any) -> bool:
    library = sys.modules.get("transformers")
    return library is not None and isinstance(tokenizer, library.PreTrainedTokenizerBase)


def _call_transformers(tokenizer: Any, max_length: int, texts: list[str]) -> Any:
    return tokenizer(texts, truncation=True, max_length=max_length, padding=False)["input_ids"]
