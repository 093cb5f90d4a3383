"""The outline of a sample: dicts, lists, tuples, named tuples, and plain values; leaves say where their bytes lie."""

from __future__ import annotations

import sys
from typing import Any

from headrace.dropins.sample_encoding import Contents, Unsuitable, decode_leaf, encode_leaf, part

_PLAIN = (type(None), bool, float)
_INT64 = range(-(1 << 63), 1 << 64)
"""Integers that MessagePack has."""


def encode_node(value: Any, contents: Contents, place: str) -> list[Any]:
    """A list that begins with a word for the type. Raises Unsuitable, which names `place` and the type."""
    kind = type(value)
    if kind in _PLAIN:
        return ["plain", value]
    if kind is int:
        return ["plain", value] if value in _INT64 else ["int", str(value)]
    if kind is str:  # MessagePack's texts are UTF-8, Python's need not be
        return ["str", value.encode("utf-8", "surrogatepass")]
    if kind is bytes or kind is bytearray:
        return [kind.__name__, *contents.add(value)]
    if kind is dict:
        items = ([_key(key, place), encode_node(one, contents, f"{place}[{key!r}]")] for key, one in value.items())
        return ["dict", *items]
    if kind is list or kind is tuple:
        return [kind.__name__, *_items(value, contents, place)]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return ["namedtuple", *_name_of(kind, place), *_items(value, contents, place)]
    return encode_leaf(value, contents, place, nested=encode_node)


def decode_node(node: Any, contents: memoryview) -> Any:
    """Raises ValueError, TypeError, KeyError or IndexError for what `encode_node` has not made."""
    word, *rest = node
    match word:
        case "plain":
            return rest[0]
        case "int":
            return int(rest[0])
        case "str":
            return str(rest[0], "utf-8", "surrogatepass")
        case "bytes":
            return bytes(part(contents, *rest))
        case "bytearray":
            return bytearray(part(contents, *rest))
        case "dict":
            return {decode_node(key, contents): decode_node(value, contents) for key, value in rest}
        case "list":
            return [decode_node(one, contents) for one in rest]
        case "tuple":
            return tuple(decode_node(one, contents) for one in rest)
        case "namedtuple":
            return _class_called(*rest[:2])(*(decode_node(one, contents) for one in rest[2:]))
    return decode_leaf(word, rest, contents, nested=decode_node)


def _items(values: Any, contents: Contents, place: str) -> list[Any]:
    return [encode_node(one, contents, f"{place}[{at}]") for at, one in enumerate(values)]


def _key(key: Any, place: str) -> list[Any]:
    """Keys have no contents of their own."""
    if type(key) in (str, int, bool, float, type(None)):
        return encode_node(key, Contents(), place)
    if type(key) is tuple:
        return ["tuple", *(_key(one, place) for one in key)]
    raise Unsuitable(key, f"a key of {place}")


def _name_of(kind: type, place: str) -> tuple[str, str]:
    """Where its definition is found again."""
    if _find(kind.__module__, kind.__qualname__) is not kind:
        raise Unsuitable(kind, place, advice="Define the named tuple at the top of a module")
    return kind.__module__, kind.__qualname__


def _class_called(module: str, name: str) -> Any:
    """Nothing is imported for it: what is read need not be ours."""
    kind = _find(module, name)
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise ValueError(f"no named tuple {name} in {module}")
    return kind


def _find(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for one in name.split("."):
        found = getattr(found, one, None)
    return found
