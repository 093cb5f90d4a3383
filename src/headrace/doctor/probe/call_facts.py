"""Facts about a library call: the class that is called, and the kind of values that it takes or returns.

Facts are gathered only for sampled calls. Values are distinguished by shape and dtype, never by content.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from .batch_leaves import leaf_of, leaves_of
from .described_values import class_name

Facts = dict[str, Any]
_OF_VALUES = ("call", "decode", "transform")
"""Categories of calls distinguished by the values that they take or return."""


def facts_before(stage: str, subject: Any, args: tuple[Any, ...], kwargs: Facts) -> Facts | None:
    """Return the facts known before a call, or None if there is nothing to report.

    `stage` is `category:label`. `subject` is the called object, for calls identified by their class.
    """
    category, _, label = stage.partition(":")
    first = args[0] if args else next(iter(kwargs.values()), None)
    if label == "Pillow load":
        return _of_picture(first) if getattr(first, "tile", None) else None  # otherwise its pixels are already loaded
    if label.startswith("tokenizers "):
        subject = first
    if subject is not None:
        return {} if type(subject) is FunctionType else {"class": class_name(type(subject))}
    known = _of_value(first) if category in _OF_VALUES else {}
    facts: Facts = {"image": known} if known else {}
    if label == "Pillow filter":
        given = args[1] if len(args) > 1 else kwargs.get("filter")
        facts["filter"] = {"class": class_name(given if isinstance(given, type) else type(given))}
    return facts


def facts_after(stage: str, before: Facts, result: Any) -> Facts:
    """Return the facts of a call's result. `gives` is the kind, shape and dtype of the only value."""
    category, _, label = stage.partition(":")
    if label == "Pillow open":
        return _of_picture(result)
    if category not in _OF_VALUES or label == "Pillow load" or "image" in before:
        return {}
    leaves = leaves_of(result, with_ranges=False)
    is_array = len(leaves) == 1 and leaves[0][1] in ("tensor", "ndarray")
    return {"gives": list(leaves[0][1:4])} if is_array else {}


def _of_picture(image: Any) -> Facts:
    return {"mode": image.mode, "format": getattr(image, "format", None)}


def _of_value(value: Any) -> Facts:
    """Return the shape and dtype of an array, or the mode of a Pillow image; empty for anything else."""
    kind, shape, dtype, *_ = leaf_of(value, with_range=False)
    if kind == "PIL":
        return {"mode": dtype}
    return {"shape": shape, "dtype": dtype} if kind in ("tensor", "ndarray") else {}
