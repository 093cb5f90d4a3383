"""What a tokenizer adds around a text's own ids, where its description says so and nothing else is done to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Frame:
    """The ids of any text are `before`, its own, `after`."""

    before: list[int]
    after: list[int]

    def around(self, ids: list[int]) -> list[int]:
        return [*self.before, *ids, *self.after]

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


def frame_of(description: str) -> Frame | None:
    """Of a tokenizer's JSON. None where its post-processor does what is not known here."""
    return _of(json.loads(description).get("post_processor"))


def _of(processor: Mapping[str, Any] | None) -> Frame | None:
    match processor:
        case None | {"type": "ByteLevel"}:  # which changes offsets alone
            return Frame([], [])
        case {"type": "TemplateProcessing", "single": list(single), "special_tokens": dict(special)}:
            return _of_template(single, special)
        case {"type": "BertProcessing" | "RobertaProcessing", "cls": [_, int(first)], "sep": [_, int(last)]}:
            return Frame([first], [last])
        case {"type": "Sequence", "processors": list(processors)}:
            frames = [_of(each) for each in processors]
            found = [frame for frame in frames if frame is None or len(frame)]
            return found[0] if len(found) == 1 else None if found else Frame([], [])
    return None


def _of_template(single: list[Any], special: Mapping[str, Any]) -> Frame | None:
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
    return Frame(before, after) if texts == 1 else None
