"""Sequences in a dataset, read as columns: lists, arrays, and columns of tables.

Objects of numpy, torch, pandas and pyarrow are read through their own methods, if the process has imported the
library.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, groupby, islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Callable

from .described_values import MOST_LISTED, attributes_of, plain_value, plain_values

MOST_MEMBERS = 1024
"""Attributes of an object, elements of a container and columns of a table that are searched."""
MOST_BYTES = 1 << 16
"""Maximum mean element size of an Arrow column. Larger elements are no path, text or label."""
LEAVES = (
    *(str, bytes, int, float, complex, type(None)),
    *(type, ModuleType, FunctionType, BuiltinFunctionType, MethodType),
)
"""Types of objects that hold no columns."""
COMPOSED = ""
"""Label of the dataset that a wrapper takes its samples from; wrapper and dataset share column names."""
_COMPOSERS = {
    frozenset({"dataset", "indices"}): "dataset",
    frozenset({"datasets", "cumulative_sizes"}): "datasets",
    frozenset({"_data", "_indices", "_fingerprint"}): "_data",
}
"""Attribute of the inner dataset, by the attributes of torch's Subset and ConcatDataset and Hugging Face's Dataset."""
_PROBED = 16
_CHUNK = 1 << 14

Take = Callable[[Sequence[int]], "list[Any]"]
"""Function that reads elements by their indices."""


class Column(Sequence[Any]):
    """Lazily read values of a dataset's samples.

    A value is a str, int, float or bool, or a flat list of numbers or of texts. It is None if missing or of another
    type.
    """

    def __init__(self, name: str, length: int, take: Take) -> None:
        self.name = name
        self._length = length
        self._take = take

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self.value(index)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.chunks())

    def chunks(self) -> Iterator[list[Any]]:
        """Yield all values in lists of bounded length."""
        for start in range(0, self._length, _CHUNK):
            yield plain_values(self._take(range(start, min(start + _CHUNK, self._length))))

    def value(self, index: int) -> Any:
        if not 0 <= index < self._length:
            raise IndexError(f"column {self.name} has {self._length} values, and none at {index}")
        return plain_value(self._take([index])[0])

    def values(self) -> list[Any]:
        """Return the values of all samples; `chunks` holds fewer in memory at a time."""
        return list(self)

    def probed(self) -> list[Any]:
        """Return a few elements spread over the column, as stored in the dataset."""
        count = min(_PROBED, self._length)
        return self._take([place * (self._length - 1) // max(count - 1, 1) for place in range(count)])

    def part(self, label: str, take_part: Callable[[Any], Any]) -> Column:
        return Column(self.name + label, self._length, lambda indices: list(map(take_part, self._take(indices))))

    def picked(self, picks: array[int]) -> Column:
        """Return the column of a subset."""
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


def _is_of(thing: Any, module: str, *names: str) -> bool:
    """Return True if `thing` is an instance of a library's class. Never imports the library."""
    found = sys.modules.get(module)
    # Not vars(), which would trigger the import of a lazily imported library.
    library = object.__getattribute__(found, "__dict__") if isinstance(found, ModuleType) else {}
    return any(isinstance(library.get(name), type) and issubclass(type(thing), library[name]) for name in names)


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
    if _is_of(thing, "numpy", "ndarray"):
        plain = sys.modules["numpy"].asarray(thing)
        is_flat = plain.ndim == 1 or (plain.ndim == 2 and plain.shape[1] <= MOST_LISTED)
        if is_flat and plain.dtype.kind in "biufSUO":
            return Column(name, plain.shape[0], lambda them: plain[_span(them)].tolist())
    elif _is_of(thing, "torch", "Tensor"):
        kinds = (sys.modules["torch"].Tensor, sys.modules["torch.nn"].Parameter)
        if type(thing) in kinds and thing.device.type == "cpu" and thing.dim() in (1, 2) and not thing.is_complex():
            tensor = thing.detach()
            return Column(name, len(tensor), lambda them: _of_tensor(tensor, them))
    elif _is_of(thing, "pandas", "Series", "Index"):
        by_place = thing.iloc if _is_of(thing, "pandas", "Series") else thing
        return Column(name, len(thing), lambda them: by_place[_span(them)].tolist())
    elif _is_of(thing, "pyarrow", "ChunkedArray", "Array"):
        is_small = not _is_struct(thing) and thing.nbytes <= MOST_BYTES * len(thing)
        return Column(name, len(thing), lambda them: [thing[one].as_py() for one in them]) if is_small else None
    return None


def _is_struct(arrow: Any) -> bool:
    return str(arrow.type).startswith("struct<")


def _of_tensor(tensor: Any, indices: Sequence[int]) -> list[Any]:
    if type(indices) is range:
        return list(tensor[_span(indices)].tolist())
    return [tensor[index].tolist() for index in indices]  # torch would copy a list of indices to its default device


def reached(
    roots: Iterable[tuple[Any, int]],
    is_wanted: Callable[[Any], bool],
    levels: int,
    objects: int,
    inner: Callable[[Any], Iterable[Any]],
) -> Iterator[Any]:
    """Yield the outermost wanted objects reachable from `roots` through `inner`, nearest first."""
    seen: set[int] = set()
    waiting = deque(roots)
    while waiting and len(seen) < objects:
        thing, level = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if is_wanted(thing):
            yield thing
        elif level < levels:
            try:
                waiting.extend((one, level + 1) for one in inner(thing))
            except Exception:  # of a library's container that cannot read its own elements
                continue


def members_of(thing: Any) -> dict[str, Any]:
    """Return the elements of a container, the columns of a table or the attributes of an object, by label."""
    kind = type(thing)
    if issubclass(kind, dict):
        return _labelled(dict.items(thing)) if dict.__len__(thing) <= MOST_MEMBERS else {}
    if issubclass(kind, (list, tuple)):
        base: Any = list if issubclass(kind, list) else tuple
        is_short = base.__len__(thing) <= MOST_MEMBERS
        return {f"[{place}]": each for place, each in enumerate(base.__iter__(thing))} if is_short else {}
    if _is_of(thing, "numpy", "ndarray"):
        return _labelled((name, thing[name]) for name in thing.dtype.names or ())
    if _is_of(thing, "pandas", "DataFrame"):
        index = {} if _is_of(thing.index, "pandas", "RangeIndex") else {".index": thing.index}
        return {**_labelled((name, thing.iloc[:, place]) for place, name in enumerate(thing.columns)), **index}
    if _is_of(thing, "pyarrow", "Table", "RecordBatch"):
        return _labelled(zip(thing.schema.names, thing.columns))
    if _is_of(thing, "pyarrow", "ChunkedArray", "Array") and _is_struct(thing):
        return _labelled(zip((field.name for field in thing.type), thing.flatten()))
    return _attributes(thing)


def _attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object, with the wrapped dataset, if any, as `COMPOSED`."""
    found = attributes_of(thing)
    inner = next((inner for needed, inner in _COMPOSERS.items() if needed <= found.keys()), None)
    composed = {} if inner is None else {COMPOSED: found.pop(inner)}
    if inner == "_data":  # a Hugging Face table, which wraps pyarrow's
        table, indices = (attributes_of(one).get("table") for one in (composed[COMPOSED], found["_indices"]))
        return {COMPOSED: table} if indices is None else {COMPOSED: table, ".indices": indices.column(0)}
    return {**composed, **_labelled(found.items())}


def _labelled(items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    return {f".{name}": thing for name, thing in islice(items, MOST_MEMBERS) if type(name) in (str, int)}
