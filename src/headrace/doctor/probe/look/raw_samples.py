"""Samples of a dataset: by index, of a stream, or as stored in tars and tables.

The stages of a webdataset pipeline after tar reading run again on one raw sample at a time. Shuffle stages are skipped,
since they would read hundreds of samples for one, and batches have one sample.
"""

from __future__ import annotations

import copy
import os
import shlex
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from typing import Any, Callable

from .column_sources import Column, sequence_of
from .columns import ColumnBudget, found_columns
from .objects import RandomGenerator, attributes_of, generators_held, generators_of

KEY = "__key__"
INDICES = 8
_MOST_URLS, _MOST_ROWS = 100_000, 5_000_000
_STRIDE = 3
"""Distance between the samples taken from a tar."""
_SELECTS = ("_select", "_rsample", "islice")
Made = Callable[[], Any]
"""Function that makes a sample."""


class Samples:
    """Samples of a dataset to inspect: by index, or of a stream."""

    opened: dict[str, Any] | None = None
    """Files that hold the samples, and how the dataset selects and orders these; None if not known."""
    _stream: Any = None
    """Iterator over a stream."""

    def __init__(self, dataset: Any, length: int | None) -> None:
        self._dataset, self._length = dataset, length
        self.is_stream = length is None
        self._begin = generators_held(generators_of(dataset))

    def raw(self, index: int) -> dict[str, Any]:
        """Return a sample as stored in the dataset's files; empty if the files are unknown."""
        return {}

    def generators(self) -> dict[str, RandomGenerator]:
        """Return the generators that a stream may draw from for its next sample; none of a dataset with indices."""
        return {} if self._stream is None else generators_of(self._dataset, self._stream)

    def columns(self) -> Iterator[Column]:
        """Yield the columns that the dataset holds; none of a stream."""
        yield from () if self._length is None else found_columns(self._dataset, self._length, ColumnBudget())

    def of(self, makings: tuple[int, ...]) -> Iterator[tuple[int, int, Made]]:
        """Yield the samples to make: the repetition, the sample's position, and the function that makes it."""
        if not self.is_stream:
            yield from ((making, index, make) for index, make in self._makers() for making in makings)
            return
        for making in makings:
            self._begin()
            self._stream = stream = iter(self._dataset)
            yield from ((making, place, lambda: next(stream)) for place in range(INDICES))  # noqa: B023  # at once

    def _makers(self) -> Iterator[tuple[int, Made]]:
        return self.made_of(spread(self._length or 0, INDICES))

    def made_of(self, indices: Iterable[int]) -> Iterator[tuple[int, Made]]:
        """Yield the functions that make the samples of a dataset with indices."""
        dataset = self._dataset
        for index in indices:
            if hasattr(dataset, "__getitems__"):  # as in a DataLoader worker
                yield index, lambda index=index: dataset.__getitems__([index])[0]  # type: ignore[misc]
            else:
                yield index, lambda index=index: dataset[index]  # type: ignore[misc]


def samples_of(dataset: Any, length: int | None) -> Samples:
    """Return the samples of a dataset, with what is stored of a webdataset pipeline or a table with embedded files."""
    stored: Samples | None = None
    with suppress(Exception):  # of a library, or of the user's own stages
        stored = _shards(dataset) if length is None else _table_rows(dataset, length)
    return Samples(dataset, length) if stored is None else stored


class _Shards(Samples):
    """Tars of a webdataset pipeline, with the stages that read them and the stages that follow."""

    def __init__(self, urls: list[str], dataset: Any, stages: list[Any], end: int) -> None:
        super().__init__(dataset, None)
        self.is_stream = False
        self.opened = {"files": list(map(_as_opened, urls)), **_facts(dataset, stages, stages[end:])}
        self._urls, self._invoke = urls, dataset.invoke
        self._readers = [one for one in stages[1:end] if not _is_shuffle(one)]
        behind = [one for one in stages[end:] if not _is_shuffle(one)]
        last = max((place for place, one in enumerate(behind) if _name(one) in _SELECTS), default=-1)
        self._selects, self._stages = behind[: last + 1], list(map(_of_one, behind))

    def raw(self, index: int) -> dict[str, Any]:
        return self._raws[index]

    def columns(self) -> Iterator[Column]:
        return iter(())

    def _makers(self) -> Iterator[tuple[int, Made]]:
        return ((index, partial(self._made, raw)) for index, raw in enumerate(self._raws))

    @cached_property
    def _raws(self) -> list[dict[str, Any]]:
        """Raw samples spread over the files."""
        chosen = [self._urls[place] for place in spread(len(self._urls), INDICES)]
        each = -(-INDICES // len(chosen)) * _STRIDE
        found = [self._taken(url, each, _STRIDE) for url in chosen]
        if sum(map(len, found)) < INDICES:  # tars with few samples
            found = [self._taken(url, INDICES, 1) for url in chosen]
        return [raw for turn in range(INDICES) for them in found for raw in them[turn : turn + 1]][:INDICES]

    def _made(self, raw: dict[str, Any]) -> Any:
        return next(self._run(self._stages, [dict(raw)]))

    def read(self, url: str) -> Iterator[dict[str, Any]]:
        return self._run(self._readers, [{"url": url}])

    def _taken(self, url: str, most: int, stride: int) -> list[dict[str, Any]]:
        """Return raw samples that pass the pipeline's selecting stages."""
        raws = (raw for raw in self.read(url) if any(True for _ in self._run(self._selects, [dict(raw)])))
        return list(islice(raws, 0, most, stride))

    def _run(self, stages: list[Any], source: Iterable[Any]) -> Iterator[Any]:
        source = iter(source)
        for stage in stages:
            source = self._invoke(stage, source)
        return iter(source)


def _shards(dataset: Any) -> _Shards | None:
    if not any(base.__module__.startswith("webdataset.") for base in type(dataset).__mro__):
        return None
    stages = list(dataset.pipeline)
    while hasattr(stages[0], "pipeline"):
        stages[:1] = stages[0].pipeline
    urls = attributes_of(stages[0]).get("urls")
    if not isinstance(urls, list):
        urls = [item["url"] for item in islice(iter(stages[0]), _MOST_URLS)]
    urls = list(dict.fromkeys(urls))
    for end in range(2, len(stages) + 1):
        found = _Shards(urls, dataset, stages, end)
        with suppress(Exception):  # stages that make no samples yet
            if KEY in next(found.read(urls[0])):
                return found
    return None


def _as_opened(url: str) -> str:
    """Return a tar's address; for a `pipe:` command that only reads a tar, the address of that tar."""
    if url.startswith("pipe:"):
        tars = [word for word in shlex.split(url[5:]) if word.endswith(".tar")]
        return _as_opened(tars[0]) if len(tars) == 1 and "|" not in url else url
    url = url[5:] if url.startswith("file:") else url
    return url if "://" in url else os.path.abspath(url)


def _name(stage: Any) -> str:
    function = attributes_of(stage).get("f", stage)
    return str(getattr(function, "__name__", type(function).__name__))


def _is_shuffle(stage: Any) -> bool:
    return "shuffle" in _name(stage).lower()


def _argument(stage: Any, place: int, name: str, default: Any = None) -> Any:
    own = attributes_of(stage)
    if "args" not in own:
        return own.get(name, default)
    return own["args"][place] if len(own["args"]) > place else own["kw"].get(name, default)


def _of_one(stage: Any) -> Any:
    """Return a stage; a batching stage is replaced by one with batches of one sample."""
    if _name(stage) != "_batched":
        return stage
    alone = copy.copy(stage)
    alone.args, alone.kw = (1, *stage.args[1:]), {name: one for name, one in stage.kw.items() if name != "batchsize"}
    return alone


def _facts(dataset: Any, stages: list[Any], behind: list[Any]) -> dict[str, Any]:
    batched = [one for one in behind if _name(one) == "_batched"]
    buffers = [_argument(one, 0, "bufsize", 0) for one in behind if _is_shuffle(one)]
    is_resampled = "Resampled" in _name(stages[0])
    return {
        "is_shuffled": is_resampled or any(map(_is_shuffle, stages)),
        "buffer": max(buffers, default=0),
        "epoch": dataset.nsamples if dataset.repetitions != 1 and dataset.nsamples > 0 else None,
        "is_resampled": is_resampled,
        "selects": [_said(_argument(one, 0, "predicate", one)) for one in behind if _name(one) in _SELECTS],
        "drops": bool(batched) and not _argument(batched[0], 2, "partial", True),
    }


def _said(predicate: Any) -> str:
    return str(getattr(predicate, "__name__", type(predicate).__name__))


def spread(length: int, count: int) -> list[int]:
    """Return `count` positions spread evenly over a sequence, both ends included, or all of a shorter one."""
    return sorted({round(place * max(0, length - 1) / (count - 1)) for place in range(count)})


class _TableRows(Samples):
    """Rows of a Hugging Face table in Arrow files, with embedded files."""

    def __init__(
        self, dataset: Any, paths: list[str], table: Any, rows: list[int], places: dict[str, list[int]]
    ) -> None:
        """`rows`: of the table. `places`: the same `rows` in the files, one after the other, unless these are all."""
        super().__init__(dataset, len(rows))
        self.opened = {"files": list(map(os.path.abspath, paths)), **places}
        self._table, self._rows = table, rows
        kinds = zip(table.schema.names, map(str, table.schema.types))
        self._names = [name for name, kind in kinds if kind in _BYTES or kind.startswith("struct<bytes: binary")]

    def raw(self, index: int) -> dict[str, Any]:
        row = self._table.slice(self._rows[index], 1)
        found = {name: row[name][0].as_py() for name in self._names}
        found = {name: one.get("bytes") if isinstance(one, dict) else one for name, one in found.items()}
        return {name: one for name, one in found.items() if one is not None}

    def columns(self) -> Iterator[Column]:
        others = [name for name in self._table.schema.names if name not in self._names]
        found = [sequence_of(self._table[name], name) for name in others]
        return (one.picked(array("q", self._rows)) for one in found if one is not None)


_BYTES = ("binary", "large_binary")


def _table_rows(dataset: Any, length: int) -> _TableRows | None:
    own = attributes_of(dataset)
    if not {"_data", "_indices", "_fingerprint"} <= own.keys() or not 0 < length <= _MOST_ROWS:
        return None
    data, indices = own["_data"], own["_indices"]
    placed = _file_rows(data)
    if placed is None:
        return None
    files, in_files = placed
    rows = list(range(length)) if indices is None else indices.column(0).to_pylist()
    picked = [in_files[row] for row in rows]
    is_whole = picked == list(range(sum(files.values())))
    found = _TableRows(dataset, list(files), data.table, rows, {} if is_whole else {"rows": picked})
    return found if found.raw(0) else None


_KEEP_ROWS = ("cast", "flatten", "combine_chunks", "rename_columns", "drop", "select", "add_column", "append_column",
              "remove_column", "set_column", "replace_schema_metadata")  # fmt: skip


def _file_rows(data: Any) -> tuple[dict[str, int], list[int]] | None:
    """Return the number of rows of each Arrow file of a table, and the table's rows, counted through the files.

    A contiguous selection is a table of slices, without indices. None for a table that is not wholly in files.
    """
    blocks = [list(each) for each in vars(data).get("blocks", [[data]])]
    if any(len(each) != 1 or not {"path", "replays"} <= vars(each[0]).keys() for each in blocks):
        return None
    files: dict[str, int] = {}
    starts: dict[str, int] = {}
    rows: list[int] = []
    for (block,) in blocks:
        if block.path not in files:
            starts[block.path] = sum(files.values())
            files[block.path] = type(block).from_file(block.path).num_rows
        first = starts[block.path]
        for name, arguments, _ in block.replays:
            if name == "slice":
                first += arguments[0]
            elif name not in _KEEP_ROWS:
                return None
        rows += range(first, first + block.num_rows)
    return files, rows


# Listed files that cannot be pictures: missing, empty, of another kind, or cut short.

_KINDS: dict[str, tuple[Any, bytes]] = {
    ".jpg": (b"\xff\xd8", b"\xff\xd9"),
    ".jpeg": (b"\xff\xd8", b"\xff\xd9"),
    ".png": (b"\x89PNG", b"IEND\xaeB`\x82"),
    ".gif": (b"GIF8", b""),
    ".bmp": (b"BM", b""),
    ".webp": (b"RIFF", b""),
    ".tif": ((b"II", b"MM"), b""),
    ".tiff": ((b"II", b"MM"), b""),
}
"""First bytes of a file by its suffix, and bytes near its end."""
MOST_ODD = 2
_MOST_FILES, _MOST_S = 4096, 1.5
_END = 64


def odd_rows(columns: list[Column]) -> list[int]:
    """Return samples whose files are no pictures of their suffix, as far as a column lists files by whole paths."""
    until = time.monotonic() + _MOST_S
    for column in columns:
        paths: list[Any] = [value for chunk in column.chunks() for value in chunk]
        if not paths or not all(isinstance(path, str) and _suffix(path) in _KINDS for path in paths):
            continue
        if not os.path.dirname(paths[0]) or not any(map(os.path.exists, paths[:8])):
            continue
        found: list[int] = []
        for row in spread(len(paths), min(_MOST_FILES, len(paths))) if len(paths) > 1 else [0]:
            if time.monotonic() > until or len(found) == MOST_ODD:
                break
            if not _is_whole(paths[row]):
                found.append(row)
        return found
    return []


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _is_whole(path: str) -> bool:
    begin, end = _KINDS[_suffix(path)]
    try:
        with open(path, "rb") as file:
            if not file.read(8).startswith(begin):
                return False
            file.seek(-min(_END, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return end in file.read(_END)
    except OSError:
        return False
