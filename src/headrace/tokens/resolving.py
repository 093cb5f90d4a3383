"""Finds out what a tokenizer is."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import UsageError
from headrace.fields.tokens.native_tokenizer import LibraryEncoder
from headrace.fields.tokens.tokenizers import CalledEncoder
from headrace.tokens.encoder import Encoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def resolve_tokenizer(
    tokenizer: Any,
    *,
    max_length: int,
    pad_id: int | None = None,
    version: str | None = None,
    place: str = "tokenizer",
) -> Encoder:
    """Return what encodes by `tokenizer`, which is anything that `hr.Text` takes, up to `max_length` tokens a text.

    `pad_id` is what the user says that rows are padded with. `version` is the identity of a function, which has none of
    its own. `place` begins the text of errors. Raises UsageError for what is no tokenizer, and where the library is not
    installed that a path needs.
    """
    beside: str | None = None
    if isinstance(tokenizer, str | os.PathLike):
        beside = _pad_token_beside(Path(tokenizer))
        tokenizer = _read(Path(tokenizer), place)
    native = _native(tokenizer)
    if native is not None:
        return LibraryEncoder(
            native,
            max_length=max_length,
            place=place,
            pad_id=getattr(tokenizer, "pad_token_id", None),
            pad_token=beside,
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
            may_pad=False,
        )
    if callable(tokenizer):
        return CalledEncoder(tokenizer, max_length=max_length, place=place, version=version, pad_id=pad_id)
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


def _pad_token_beside(path: Path) -> str | None:
    """Return the pad token that the configuration beside a tokenizer.json names, as transformers saves it."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            token = json.loads((path.parent / name).read_text(encoding="utf-8"))["pad_token"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
    return None


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
