"""Encoder for tokenizers of the `tokenizers` library, and the special tokens that they add."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens that a tokenizer adds before and after the ids of any text."""

    before: list[int]
    after: list[int]

    def around(self, ids: list[int]) -> list[int]:
        return [*self.before, *ids, *self.after]

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


def special_tokens_of(description: str) -> SpecialTokens | None:
    """Read the special tokens from a tokenizer's JSON. Return None if its post-processor is of an unknown kind."""
    return _of_processor(json.loads(description).get("post_processor"))


def _of_processor(processor: Mapping[str, Any] | None) -> SpecialTokens | None:
    match processor:
        case None | {"type": "ByteLevel"}:  # ByteLevel changes offsets only
            return SpecialTokens([], [])
        case {"type": "TemplateProcessing", "single": list(single), "special_tokens": dict(special)}:
            return _of_template(single, special)
        case {"type": "BertProcessing" | "RobertaProcessing", "cls": [_, int(first)], "sep": [_, int(last)]}:
            return SpecialTokens([first], [last])
        case {"type": "Sequence", "processors": list(processors)}:
            frames = [_of_processor(each) for each in processors]
            found = [frame for frame in frames if frame is None or len(frame)]
            return found[0] if len(found) == 1 else None if found else SpecialTokens([], [])
    return None


def _of_template(single: list[Any], special: Mapping[str, Any]) -> SpecialTokens | None:
    before: list[int] = []
    after: list[int] = []
    texts = 0
    for piece in single:
        match piece:
            case {"Sequence": {"id": "A"}}:
                texts += 1
            case {"SpecialToken": {"id": str(name)}} if name in special:
                (after if texts else before).extend(special[name]["ids"])
            case _:
                return None
    return SpecialTokens(before, after) if texts == 1 else None


class NativeEncoder:
    """Encoder around a copy of a tokenizer, with its own truncation and without padding."""

    row_length: None = None

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_length: int,
        place: str,
        pad_id: int | None,
        pad_token: str | None,
        sides: tuple[str | None, ...],
    ) -> None:
        """Copy `tokenizer`.

        `pad_token` comes from a configuration file next to tokenizer.json. `sides` are the padding and truncation sides
        of the tokenizer that wraps it; None if the wrapper has none.
        """
        import tokenizers

        text = _described(tokenizer, place)
        copy = tokenizers.Tokenizer.from_str(text)
        copy.encode_special_tokens = tokenizer.encode_special_tokens  # not part of the JSON
        pad_side, cut_side = sides
        padding, cut = tokenizer.padding or {}, tokenizer.truncation or {}
        cut_side = cut.get("direction", "right") if cut_side is None else cut_side
        special = copy.num_special_tokens_to_add(False)
        if special > max_length:
            raise UsageError(
                f"{place}: expected max_length of at least {special}, the special tokens that the tokenizer adds to "
                f"each text, got {max_length}"
            )
        # Known special tokens are added here: for each text the library builds a separate encoding of them and
        # merges the two, which takes a tenth of a caption's time.
        frame = special_tokens_of(text)
        self._frame: SpecialTokens | None = frame if frame is not None and len(frame) == special else None
        copy.no_padding()
        copy.enable_truncation(max_length if self._frame is None else max_length - special, direction=cut_side)
        named = (pad_id, padding.get("pad_id"), None if pad_token is None else copy.token_to_id(pad_token))
        self.pad_id = next((each for each in named if each is not None), _evident_pad_id(text))
        self.pads_left = (padding.get("direction", "right") if pad_side is None else pad_side) == "left"
        known = json.dumps([tokenizers.__version__, copy.to_str(), copy.encode_special_tokens])
        self.identity = hashlib.blake2b(known.encode(), digest_size=16).hexdigest()
        self._copy = copy
        self._pid = os.getpid()

    def encode(self, texts: list[str]) -> Sequence[Sequence[int]]:
        """Return the ids of each text, in one call that releases the GIL."""
        special = self._frame is None
        # A forked process lacks the library's threads and would wait for them forever if the environment variable
        # requests them. If it is unset, the library detects the fork itself.
        if self._pid != os.getpid() and "TOKENIZERS_PARALLELISM" in os.environ:
            encodings = [self._copy.encode(text, add_special_tokens=special) for text in texts]
        else:
            encodings = self._copy.encode_batch_fast(texts, add_special_tokens=special)
        ids = [encoding.ids for encoding in encodings]
        return ids if self._frame is None else [self._frame.around(each) for each in ids]


def _evident_pad_id(description: str) -> int | None:
    """Return the id of a well-known pad token in the vocabulary; None if there is none.

    `<|endoftext|>` counts only as a special token: GPT-2-like models have no other special token to pad with.
    """
    described = json.loads(description)
    special = {each["content"]: each["id"] for each in described.get("added_tokens", ()) if each.get("special")}
    vocabulary = described["model"].get("vocab")
    known = {**(vocabulary if isinstance(vocabulary, dict) else {}), **special}
    found = (known.get(name) for name in ("[PAD]", "<pad>", "<PAD>", "<|pad|>", "<|padding|>"))
    return next((each for each in found if each is not None), special.get("<|endoftext|>"))


def _described(tokenizer: Tokenizer, place: str) -> str:
    """Return the tokenizer's JSON. Raises UsageError if it cannot be serialized or uses dropout."""
    try:
        text: str = tokenizer.to_str()
    except Exception as error:  # the library's own type is Exception
        raise UsageError(
            f"{place}: expected a tokenizer that can be saved, got one that cannot ({error}); pass a function, such as "
            "lambda texts: [each.ids for each in tokenizer.encode_batch(texts)]"
        ) from error
    dropout: Any = json.loads(text)["model"].get("dropout")
    if dropout:
        raise UsageError(
            f"{place}: expected the same ids for the same text each time, got a tokenizer with dropout={dropout}, "
            "which draws from a source of its own; set tokenizer.model.dropout = None"
        )
    return text
