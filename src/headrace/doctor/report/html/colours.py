"""Which colour of the style sheet each thing has, by the name of its class. Waiting has one that nothing else has."""

from __future__ import annotations

OTHER = "other"
_PARTS = {
    "data wait": "wait",
    "host to device": "amber",
    "forward": "sky",
    "backward": "blue",
    "optimizer": "teal",
    "collective": "purple",
    "peer": "pink",
}
_CATEGORIES = {
    "lookup": "pink",
    "scan": "purple",
    "read": "amber",
    "decode": "blue",
    "transform": "sky",
    "tokenise": "teal",
    "collate": "olive",
    "serialise": "brown",
    "getitem": "slate",
    "wait": "wait",
}


def of_part(name: str) -> str:
    """Of a part of a step."""
    return _PARTS.get(name, OTHER)


def of_category(name: str) -> str:
    """Of a stage of making batches, by its category."""
    return _CATEGORIES.get(name, OTHER)
