"""State of a DataLoader's dataset: the dataset that its keys belong to, and the numbers that an epoch may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .objects import LEAVES, attributes_of, class_name

_MOST_NUMBERS, _MOST_LEVELS = 64, 3
_LARGEST = 1e15
_LIBRARIES = ("torch.", "numpy.", "builtins", "PIL.", "collections")


def base_of(dataset: Any, keys: list[Any]) -> tuple[str, list[Any]]:
    """Return the identity of the dataset behind torch's Subsets, and the keys as its indices."""
    while type(dataset).__name__ == "Subset" and hasattr(dataset, "indices"):
        try:
            keys = [key if key is None else int(dataset.indices[key]) for key in keys]
        except Exception:  # a sampler that draws other keys
            break
        dataset = dataset.dataset
    return f"{class_name(type(dataset))} {id(dataset):x}", keys


def numbers_of(dataset: Any) -> dict[str, float]:
    """Return the numbers among the attributes of a dataset and of the user's objects that it holds, by path."""
    found: dict[str, float] = {}
    for name, value in _numbers(dataset, "", _MOST_LEVELS):
        found[name] = value
        if len(found) == _MOST_NUMBERS:
            break
    return found


def _numbers(thing: Any, path: str, levels: int) -> Iterator[tuple[str, float]]:
    for name, value in attributes_of(thing).items():
        if type(value) in (int, float, bool):
            if abs(value) < _LARGEST:
                yield path + name, float(value)
        elif levels > 1 and not isinstance(value, LEAVES) and (name == "dataset" or _is_users(type(value))):
            yield from _numbers(value, f"{path}{name}.", levels - 1)


def _is_users(kind: type) -> bool:
    return not class_name(kind).startswith(_LIBRARIES)
