"""Objects of the user's program as plain values and descriptions, without running user code."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Callable


def class_name(kind: type) -> str:
    return f"{type.__getattribute__(kind, '__module__')}.{type.__getattribute__(kind, '__qualname__')}"


def attributes_of(thing: Any) -> dict[str, Any]:
    """Return an object's attributes from `__dict__` and slots; for a module, its parameters, buffers and submodules."""
    found: dict[str, Any] = {}
    for base in type.__getattribute__(type(thing), "__mro__"):
        own = vars(base)
        state = own.get("__dict__")
        if type(state) in (GetSetDescriptorType, MemberDescriptorType):
            for name, value in dict.items(state.__get__(thing)):
                if type(name) is str:
                    found.setdefault(name, value)
        for name, slot in own.items():
            if type(slot) is MemberDescriptorType and not name.startswith("__"):
                try:
                    found.setdefault(name, slot.__get__(thing))
                except AttributeError:  # not set
                    continue
    if "_parameters" in found and "_buffers" in found:
        return _module_attributes(found)
    return found


def _module_attributes(state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes set on a torch.nn.Module, rather than its internal state."""
    found: dict[str, Any] = {}
    for kept in ("_parameters", "_buffers", "_modules"):
        if isinstance(state.get(kept), dict):
            found.update(state[kept])
    torch = sys.modules.get("torch.nn")
    usual = vars(torch.Module()) if torch is not None else {}
    found.update((name, value) for name, value in state.items() if name not in usual)
    return found


MOST_NAMES = 64
MOST_TEXT = 200
MOST_LEVELS = 4
"""Maximum levels of nested samplers."""
_INNER = ("sampler", "batch_sampler")
_PLAIN_BASES = ("builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC")


def described_loader(loader: Any, wrapper: Any) -> dict[str, Any]:
    """Describe a DataLoader. `wrapper` is the library object that iterates it, or None."""
    kind = type(loader.dataset)
    bases = [class_name(base) for base in type.__getattribute__(kind, "__mro__")[1:]]
    found = {
        "dataset": {"class": class_name(kind), "bases": [name for name in bases if name not in _PLAIN_BASES]},
        "sampler": _order(loader.sampler),
        "batch_sampler": _order(loader.batch_sampler),
        "drop_last": bool(loader.drop_last),
        "generator": loader.generator is not None,
    }
    return found if wrapper is None else {**found, "wrapper": {"class": class_name(type(wrapper))}}


def sampler_epoch(loader: Any) -> int | None:
    """Return the epoch that a loader's sampler shuffles by; None if it has none."""
    sampler = getattr(loader, "sampler", None)
    epoch = None if sampler is None else attributes_of(sampler).get("epoch")
    return epoch if type(epoch) is int else None


def _order(sampler: Any, level: int = 0) -> dict[str, Any] | None:
    """Describe a sampler by its class, its plain attributes, and its inner sampler."""
    if sampler is None:
        return None
    held: dict[str, Any] = {}
    for name, value in islice(attributes_of(sampler).items(), MOST_NAMES):
        if _is_plain(value):
            held[name] = value
        elif name in _INNER and level < MOST_LEVELS:
            held[name] = _order(value, level + 1)
    return {"class": class_name(type(sampler)), "attributes": held}


def _is_plain(value: Any) -> bool:
    """Return True if JSON can represent the value exactly."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return value is None or type(value) is bool or (type(value) is str and len(value) <= MOST_TEXT)


MOST_VALUE_TEXT = 1 << 16
"""Maximum length of a text in characters or bytes. A longer text is content."""
MOST_LISTED = 4096
"""Maximum length of a list that counts as one value."""
MOST_PARTS = 64
"""Keys, positions or attributes of a row that are read."""
MOST_WORDS = 16
"""Words of a line that are read."""
_NUMBERS = (int, float, bool)


def is_missing(element: Any) -> bool:
    """Return True for None and for pandas' missing values."""
    return element is None or class_name(type(element)).rpartition(".")[2] in ("NAType", "NaTType")


def plain_value(element: Any) -> Any:
    """Return a str, int, float or bool, or a flat list of numbers or texts; None for anything else."""
    kind = type(element)
    if kind in _NUMBERS:
        return element
    if issubclass(kind, str):
        return str.__str__(element) if str.__len__(element) <= MOST_VALUE_TEXT else None
    if issubclass(kind, (list, tuple)):
        return _plain_list(element)
    if issubclass(kind, bytes):
        try:
            return bytes.decode(element) if bytes.__len__(element) <= MOST_VALUE_TEXT else None
        except UnicodeDecodeError:
            return None
    for number in (int, float):
        if issubclass(kind, number):
            return number.__int__(element) if number is int else number.__float__(element)
    if class_name(kind).startswith("pathlib."):
        return str(element)
    return _plain_array(element, kind)


def _plain_array(element: Any, kind: type) -> Any:
    """Return the value of a numpy or torch scalar or 1D array; None for anything else."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and issubclass(kind, numpy.generic):
        item = element.item()
        return item if type(item) in _NUMBERS else None
    is_array = kind is getattr(numpy, "ndarray", None) or (kind is getattr(torch, "Tensor", None) and element.is_cpu)
    if is_array and (element.ndim == 0 or (element.ndim == 1 and len(element) <= MOST_LISTED)):
        return plain_value(element.tolist())
    return None


def plain_values(elements: list[Any]) -> list[Any]:
    kinds = set(map(type, elements))
    if kinds <= {int, float, bool, type(None)} or (kinds == {str} and max(map(len, elements)) <= MOST_VALUE_TEXT):
        return elements
    return list(map(plain_value, elements))


def _plain_list(elements: Any) -> Any:
    base = _base(elements)
    if base.__len__(elements) > MOST_LISTED:
        return None
    found = [plain_value(each) for each in base.__iter__(elements)]
    is_uniform = all(type(each) in _NUMBERS for each in found) or all(type(each) is str for each in found)
    return found if is_uniform else None


def parts_of(rows: Sequence[Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the label of each part of uniform rows, and the function that takes the part from a row.

    A list of numbers has no parts. A text line is split into words if the word at one position names a file in every
    line.
    """
    kinds = {type(row) for row in rows}
    if all(issubclass(kind, str) for kind in kinds):
        return _words(rows)
    if all(issubclass(kind, dict) for kind in kinds):
        keys = dict.fromkeys(key for row in rows for key in dict.keys(row) if type(key) in (str, int))
        return [(f".{key}", _by_key(key)) for key in list(keys)[:MOST_PARTS]]
    if all(issubclass(kind, (list, tuple)) for kind in kinds):
        return _places(rows)
    if len(kinds) > 1 or plain_value(rows[0]) is not None:
        return []
    (kind,) = kinds
    names = [name for name in attributes_of(rows[0]) if not name.startswith("__") and _is_held(kind, name)]
    return [(f".{name}", _by_name(kind, name)) for name in names[:MOST_PARTS]]


def _words(lines: Sequence[str]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the words of lines with equal word counts, or the stripped line if whitespace surrounds any line."""
    if any(str.strip(line) != line for line in lines):
        return [(".strip()", lambda line: str.strip(line) if issubclass(type(line), str) else None)]
    for separator in ("\t", ",", None):
        split = [str.split(line, separator) for line in lines]
        count = len(split[0])
        if not 2 <= count <= MOST_WORDS or any(len(words) != count for words in split):
            continue
        if any(all(_names_a_file(words[place]) for words in split) for place in range(count)):
            parts = [(f"[{place}]", _by_word(place, separator, count, str)) for place in range(count)]
            are_numbers = [all(_number(words[place]) is not None for words in split) for place in range(count)]
            return parts + [
                (f"[{place}] as number", _by_word(place, separator, count, _number))
                for place in range(count)
                if are_numbers[place]
            ]
    return []


def _names_a_file(word: str) -> bool:
    return _number(word) is None and ("/" in word or "." in word[1:-1])


def _number(word: str) -> Any:
    try:
        number = float(word)
    except ValueError:
        return None
    return int(number) if word.lstrip("+-").isdecimal() else number


def _by_word(place: int, separator: Any, count: int, read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def take(line: Any) -> Any:
        words = str.split(line, separator) if issubclass(type(line), str) else []
        return read(words[place]) if len(words) == count else None

    return take


def _places(rows: Sequence[Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the parts of lists or tuples of equal length."""
    lengths = {_base(row).__len__(row) for row in rows}
    length, first = max(lengths), rows[0]
    if len(lengths) > 1 or length > MOST_PARTS:
        return []
    if issubclass(type(first), list) and all(type(each) in _NUMBERS for each in list.__iter__(first)):
        return []
    fields = getattr(type(first), "_fields", None)
    labels = [f".{name}" for name in fields] if type(fields) is tuple else [f"[{place}]" for place in range(length)]
    return [(label, _by_place(place)) for place, label in enumerate(labels[:length])]


def _base(row: Any) -> Any:
    return list if issubclass(type(row), list) else tuple


def _by_place(place: int) -> Callable[[Any], Any]:
    def take(row: Any) -> Any:
        if type(row) is tuple:  # the usual type of rows
            return row[place] if place < len(row) else None
        if not issubclass(type(row), (list, tuple)):
            return None
        base = _base(row)
        return base.__getitem__(row, place) if place < base.__len__(row) else None

    return take


def _by_key(key: Any) -> Callable[[Any], Any]:
    return lambda row: dict.get(row, key) if issubclass(type(row), dict) else None


def _by_name(kind: type, name: str) -> Callable[[Any], Any]:
    def take(row: Any) -> Any:
        try:
            return object.__getattribute__(row, name) if type(row) is kind else None
        except AttributeError:  # this row lacks the attribute
            return None

    return take


def _is_held(kind: type, name: str) -> bool:
    """Return True if the object itself stores an attribute, and no property of its class computes it."""
    for base in type.__getattribute__(kind, "__mro__"):
        if name in vars(base):
            found = vars(base)[name]
            return type(found) is MemberDescriptorType or not hasattr(type(found), "__set__")
    return True
