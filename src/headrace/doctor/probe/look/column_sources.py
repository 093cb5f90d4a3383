"""Sequences in a dataset: lists, arrays and columns of tables as columns, and its images in one array."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby
from typing import Any, Callable

from .objects import COMPOSED, LEAVES, class_name, is_instance, is_struct, members_of, reached

MOST_BYTES = 1 << 16
"""Maximum mean element size of an Arrow column. Larger elements are no path, text or label."""
_PROBED = 16
_CHUNK = 1 << 14

Take = Callable[[Sequence[int]], "list[Any]"]
"""Function that reads elements by their indices."""


MOST_VALUE_TEXT = 1 << 16
"""Maximum length of a text in characters or bytes. A longer text is content."""
MOST_LISTED = 4096
"""Maximum length of a list that counts as one value."""
NUMBERS = (int, float, bool)


def base_of(row: Any) -> Any:
    return list if issubclass(type(row), list) else tuple


def is_missing(element: Any) -> bool:
    """Return True for None and for pandas' missing values."""
    return element is None or class_name(type(element)).rpartition(".")[2] in ("NAType", "NaTType")


def plain_value(element: Any) -> Any:
    """Return a str, int, float or bool, or a flat list of numbers or texts; None for anything else."""
    kind = type(element)
    if kind in NUMBERS:
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
        return item if type(item) in NUMBERS else None
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
    base = base_of(elements)
    if base.__len__(elements) > MOST_LISTED:
        return None
    found = [plain_value(each) for each in base.__iter__(elements)]
    is_uniform = all(type(each) in NUMBERS for each in found) or all(type(each) is str for each in found)
    return found if is_uniform else None


class Column:
    """Lazily read values of samples: str, int, float, bool, flat lists of numbers or texts; None for any other."""

    def __init__(self, name: str, length: int, take: Take) -> None:
        self.name = name
        self._length = length
        self._take = take

    def __len__(self) -> int:
        return self._length

    def chunks(self) -> Iterator[list[Any]]:
        """Yield all values in lists of bounded length."""
        for start in range(0, self._length, _CHUNK):
            yield plain_values(self._take(range(start, min(start + _CHUNK, self._length))))

    def probed(self) -> list[Any]:
        """Return a few elements spread over the column, as stored in the dataset."""
        count = min(_PROBED, self._length)
        return self._take([place * (self._length - 1) // max(count - 1, 1) for place in range(count)])

    def part(self, label: str, take_part: Callable[[Any], Any]) -> Column:
        return Column(self.name + label, self._length, lambda indices: list(map(take_part, self._take(indices))))

    def picked(self, picks: array[int]) -> Column:
        return Column(self.name, len(picks), lambda indices: self._take(_elements(picks.__getitem__, indices)))

    def looked_up(self, name: str, mapping: dict[Any, Any]) -> Column:
        """Return the column of elements that a dict maps this column's values to."""
        by_key = partial(dict.get, mapping)
        return Column(name, self._length, lambda indices: list(map(by_key, plain_values(self._take(indices)))))

    @staticmethod
    def concatenated(name: str, columns: Sequence[Column]) -> Column:
        ends = list(accumulate(map(len, columns)))
        parts = [(column, end - len(column)) for column, end in zip(columns, ends)]

        def take(indices: Sequence[int]) -> list[Any]:
            found: list[Any] = []
            if type(indices) is range:
                for column, begin in parts:
                    first, last = max(indices.start - begin, 0), min(indices.stop - begin, len(column))
                    found += column._take(range(first, last)) if first < last else ()
                return found
            for which, group in groupby(indices, lambda index: bisect_right(ends, index)):
                column, begin = parts[which]
                found += column._take([index - begin for index in group])
            return found

        return Column(name, ends[-1], take)


def length_of(thing: Any) -> int | None:
    if issubclass(type(thing), (*LEAVES, dict)):
        return None
    try:
        return len(thing)
    except Exception:  # no length, or its own code fails
        return None


def _elements(get: Callable[[Any], Any], indices: Sequence[int]) -> list[Any]:
    return list(get(_span(indices))) if type(indices) is range else list(map(get, indices))


def _span(indices: Sequence[int]) -> Any:
    """Return consecutive indices as a slice, since libraries read slices far faster."""
    return slice(indices.start, indices.stop) if type(indices) is range else list(indices)


def sequence_of(thing: Any, name: str) -> Column | None:
    """Return a list, an array or one column of a table as a column; None for anything else."""
    base: Any = next((each for each in (list, tuple, range, array) if issubclass(type(thing), each)), None)
    if base is not None:
        return Column(name, base.__len__(thing), partial(_elements, partial(base.__getitem__, thing)))
    if is_instance(thing, "numpy", "ndarray"):
        plain = sys.modules["numpy"].asarray(thing)
        is_flat = plain.ndim == 1 or (plain.ndim == 2 and plain.shape[1] <= MOST_LISTED)
        if is_flat and plain.dtype.kind in "biufSUO":
            return Column(name, plain.shape[0], lambda them: plain[_span(them)].tolist())
    elif is_instance(thing, "torch", "Tensor"):
        kinds = (sys.modules["torch"].Tensor, sys.modules["torch.nn"].Parameter)
        if type(thing) in kinds and thing.device.type == "cpu" and thing.dim() in (1, 2) and not thing.is_complex():
            tensor = thing.detach()
            return Column(name, len(tensor), lambda them: _of_tensor(tensor, them))
    elif is_instance(thing, "pandas", "Series", "Index"):
        by_place = thing.iloc if is_instance(thing, "pandas", "Series") else thing
        return Column(name, len(thing), lambda them: by_place[_span(them)].tolist())
    elif is_instance(thing, "pyarrow", "ChunkedArray", "Array"):
        is_small = not is_struct(thing) and thing.nbytes <= MOST_BYTES * len(thing)
        return Column(name, len(thing), lambda them: [thing[one].as_py() for one in them]) if is_small else None
    return None


def _of_tensor(tensor: Any, indices: Sequence[int]) -> list[Any]:
    if type(indices) is range:
        return list(tensor[_span(indices)].tolist())
    return [tensor[index].tolist() for index in indices]  # torch would copy a list of indices to its default device


MOST_PICTURE_BYTES = 1 << 30
_MOST_LEVELS, _MOST_OBJECTS = 4, 2_000


def held_pictures(dataset: Any, length: int) -> Any:
    """Return all samples' images as uint8 [N, height, width], or with channels; None without, or above 1 GB."""
    numpy = sys.modules.get("numpy")
    inner, indices = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if numpy is None:
        return None
    if inner is not None and indices is not None and len(indices) == length:
        whole = held_pictures(inner, len(inner))
        return None if whole is None else whole[numpy.asarray(indices)]
    found = reached(
        [(dataset, 0)],
        lambda thing: _as_pictures(thing, length, numpy) is not None,
        _MOST_LEVELS,
        _MOST_OBJECTS,
        _arrays_in,
    )
    return next((_as_pictures(thing, length, numpy) for thing in found), None)


def _arrays_in(thing: Any) -> list[Any]:
    members = members_of(thing).items()
    return [one for label, one in members if label != COMPOSED and not issubclass(type(one), LEAVES)]


def _as_pictures(thing: Any, length: int, numpy: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and type(thing) is torch.Tensor and thing.device.type == "cpu":
        thing = thing.detach().numpy()
    if not isinstance(thing, numpy.ndarray) or thing.dtype != numpy.uint8 or thing.ndim not in (3, 4):
        return None
    is_coloured = thing.ndim == 3 or thing.shape[3] in (1, 3)
    if thing.ndim == 4 and not is_coloured and thing.shape[1] in (1, 3):  # channels first, as in STL10 and SVHN
        thing, is_coloured = thing.transpose(0, 2, 3, 1), True
    return thing if is_coloured and len(thing) == length and thing.nbytes <= MOST_PICTURE_BYTES else None
