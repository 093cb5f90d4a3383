"""Inspection of a loader's sample values: each sample made several times, with its inputs, in one file.

Each sample is inspected as the loader delivers it: in a batch of one. The file holds the bytes of all arrays and
inputs, identical ones once; then the outline as JSON; then the outline's position as the last eight bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Mapping
from itertools import islice
from threading import Thread
from typing import Any, BinaryIO, Callable

from .column_sources import Column, held_pictures, plain_value
from .held_objects import calls_seen, live_objects, texts_given
from .leaves import MOST_LEAVES, OddKey, Path, as_array, leaves_of
from .objects import RandomGenerator, attributes_of, generators_held, generators_kept, state_text
from .raw_samples import KEY, Samples, odd_rows, samples_of
from .value_trace import ValueTrace

LOOK_FILE = "look"
HELD = ".npy"
"""Suffix of the file, next to the look, with the images that the dataset holds in memory."""
PARTIAL = ".partial"
"""Suffix of an unfinished file."""
NUMBER = "_headrace_loader"
"""Attribute of a DataLoader: the evidence file that describes it, and its number there."""
MADE = "_headrace_made"
"""Attribute of a DataLoader: file and line of its construction."""
ORDINAL = "_headrace_ordinal"
"""Attribute of a DataLoader: its number among all that the process made."""
HANGS = ".hangs"
"""Suffix of the file with the pid of a process whose sample never came."""
MOST_S = 10.0
GRACE_S = 5.0
"""Extra time for a sample that was begun within the time of the look."""
LATE = f"a sample took more than {GRACE_S:.0f} s"
MOST_BYTES = 256 << 20
_MIXINGS = 3
"""Batches of the same two samples: a mixing factor may be drawn that changes nothing."""
_MOST_MIXED = 32 << 20
"""Mean bytes of samples of which a batch of two is still made, once the file is full."""
MOST_TEXT = 20_000
_MOST_BITS = 64
MOST_COLUMNS_S = 5.0
MOST_COLUMN_BYTES = 64 << 20


class _Content:
    """Bytes in the file, identical ones once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[bytes, tuple[int, int]] = {}
        self.size = 0
        self.is_full = False
        """True if something did not fit."""

    def takes(self, count: int) -> bool:
        self.is_full = self.is_full or self.size + count > MOST_BYTES
        return not self.is_full

    def put(self, data: bytes) -> tuple[int, int]:
        """Store the bytes and return their position: first byte and count."""
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest not in self._places:
            self._places[digest] = self.size, len(data)
            self._file.write(data)
            self.size += len(data)
        return self._places[digest]


def look_within(loader: Any, path: str, most_s: float = MOST_S, *, seeks_odd: bool = False) -> str:
    """Inspect a loader's values in a separate thread; return why there is no result, or an empty string.

    A sample that never comes costs the result, but no more time than the look's own limit: the doctor reads from a
    file with the suffix `HANGS` that threads of the dataset may not let the process end, and ends it by signal.
    """
    why = [LATE]

    def look() -> None:
        try:
            look_at_values(loader, path, most_s=most_s, seeks_odd=seeks_odd)
            why[0] = ""
        except BaseException as error:  # any error of the dataset: the run ends as usual
            why[0] = _said(error)

    thread = Thread(target=look, name="headrace-look", daemon=True)
    thread.start()
    thread.join(most_s + GRACE_S)
    if why[0] == LATE:  # Python joins threads at exit, so one of the dataset's that hangs would hold the process
        with open(os.path.join(os.path.dirname(path), LOOK_FILE + HANGS), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    return why[0]


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def look_at_values(loader: Any, path: str, *, most_s: float = MOST_S, seeks_odd: bool = False) -> dict[str, Any]:
    """Make samples spread over a DataLoader's dataset, write their values and inputs, and return the outline.

    The global random generators are restored. The look ends once it has taken `most_s` or would write more than 256 MB.
    An exception is noted and ends that sample. Of a stream, the first samples are taken, each time from a fresh
    iterator: in the same order, if the global generators draw the order. Of a webdataset pipeline, samples of several
    tars each pass its stages alone. `seeks_odd`: samples whose files are no pictures are made as well.
    """
    dataset = loader.dataset
    length = length_of_dataset(dataset)
    found: dict[str, Any] = {"class": type(dataset).__name__, "length": length, "samples": [], "ended": ""}
    found["ordinal"] = getattr(loader, ORDINAL, None)
    found["made"], found["loader"] = getattr(loader, MADE, None), getattr(loader, NUMBER, (None, None))[1]
    found["is_batched"] = _makes_batches(loader)
    until = time.monotonic() + most_s
    partial = path + PARTIAL
    with open(partial, "wb") as file, generators_kept():
        content = _Content(file)
        collate = _collate_of(loader)
        held = None if length is None else held_pictures(dataset, length)
        samples = samples_of(dataset, length)
        for makings in ((0, 1), (2, 3)):  # two repetitions of each first: the second shows what is random
            for making, index, make in samples.of(makings):
                found["ended"] = "size" if content.is_full else "time" if time.monotonic() > until else ""
                if found["ended"]:
                    break
                said = _looked_at(make, collate, index, making, content, held, samples.generators())
                found["samples"].append({**said, **_raw(samples.raw(index), content)})
        columns = list(samples.columns())
        odd = odd_rows(columns) if seeks_odd and length else []
        found["odd"] = [
            _looked_at(make, collate, index, 0, content, None, {}) | {"key": None, "members": {}}
            for index, make in (samples.made_of(odd) if odd else ())
        ]
        is_large = content.is_full and content.size > _MOST_MIXED * len(found["samples"])
        found["mixed"] = None if is_large else _mixed(samples, loader)
        indices = list(dict.fromkeys(said["index"] for said in found["samples"]))
        texts: dict[str, list[str]] = {}
        found["columns"] = _columns(columns, content, until + GRACE_S / 2, indices, texts)
        found["opened"] = samples.opened
        found["holds"] = held is not None and any(said["is_held"] for said in found["samples"])
        if found["holds"]:
            with open(f"{path}{HELD}", "wb") as pictures:
                sys.modules["numpy"].save(pictures, held)
        found["transforms"], tokenizers, calls = live_objects(loader)
        found["called"] = indices
        is_tried = calls and texts and length and time.monotonic() <= until
        firsts = [make for _, _, make in samples.of((0,))][:1] if is_tried else []
        given = texts_given(lambda: collate(firsts[0]())) if firsts else {}
        found["calls"] = [
            {**said, "length": rows.shape[1], "at": content.put(rows.tobytes())}
            for said, rows in calls_seen(calls, given, texts, until + GRACE_S / 2)
            if content.takes(rows.nbytes)
        ]
        found["tokenizers"] = [content.put(text.encode()) for text in tokenizers]
        found["chosen"] = chosen_of(loader, length)
        found["numbers"] = {
            name: value for name, value in attributes_of(dataset).items() if type(value) in (int, float)
        }
        outline = json.dumps(found).encode()
        file.write(outline)
        file.write(content.size.to_bytes(8, "little"))
    os.replace(partial, path)
    return found


def _mixed(samples: Samples, loader: Any) -> list[list[Any]] | None:
    """Return the paths at which a batch of two differs from batches of one, as with MixUp; None if none was made."""
    ends = [] if samples.is_stream else [make for _, _, make in samples.of((0,))]
    if len(ends) < 2 or getattr(loader, "batch_size", None) == 1 or _makes_batches(loader):
        return []
    try:
        two = [ends[0](), ends[-1]()]
        alone = [_values_of(loader.collate_fn([sample])) for sample in two]
        found: set[Path] = set()
        for _ in range(_MIXINGS):
            both = _values_of(loader.collate_fn(two))
            found |= {
                path
                for path, value in both.items()
                if path in alone[0] and not _are_rows(value, [one.get(path) for one in alone])
            }
        return [list(path) for path in both if path in found]
    except Exception:  # of a sample, or of the collate function
        return None


def _values_of(batch: Any) -> dict[Path, Any]:
    arrays = ((path, as_array(value)) for path, value in leaves_of(batch))
    return {path: array.copy() for path, array in arrays if array is not None and array.ndim}


def _are_rows(both: Any, alone: list[Any]) -> bool:
    """Return True if a batch of two has the batches of one as its rows, as far as shapes are the same."""
    if any(one is None or one.shape[1:] != both.shape[1:] or len(one) != 1 for one in alone) or len(both) != 2:
        return True  # padded to the batch, or no array per sample
    return all((both[place] == one[0]).all() or (both[place] != both[place]).any() for place, one in enumerate(alone))


def length_of_dataset(dataset: Any) -> int | None:
    """Return the number of samples with an index; None for a stream."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        return None
    return len(dataset) if hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__") else None


def _makes_batches(loader: Any) -> bool:
    """Return True if the loader's dataset makes batches itself."""
    return getattr(loader, "batch_sampler", None) is None and getattr(loader, "batch_size", None) is None


def _collate_of(loader: Any) -> Callable[[Any], Any]:
    """Return the function that collates one sample, or the loader's own if the dataset makes batches itself."""
    collate: Callable[[Any], Any] = loader.collate_fn
    if _makes_batches(loader):
        return collate
    return lambda sample: collate([sample])


def chosen_of(loader: Any, length: int | None) -> list[int] | None:
    """Return the indices of the loader's sampler, if it samples from a list of them."""
    indices: Any = getattr(getattr(loader, "sampler", None), "indices", None)
    if not hasattr(indices, "__len__") or length is None or len(indices) > length:
        return None
    taken = [index for index in map(plain_value, indices) if type(index) is int and 0 <= index < length]
    return taken if len(taken) == len(indices) else None


def _columns(
    columns: list[Column], content: _Content, until: float, indices: list[int], texts: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """Write a dataset's complete columns, and return where they are. `texts` gets the samples at `indices`."""
    until, left = min(until, time.monotonic() + MOST_COLUMNS_S), MOST_COLUMN_BYTES
    found: list[dict[str, Any]] = []
    for column in columns:
        values: list[Any] = []
        try:
            for chunk in column.chunks():
                if time.monotonic() > until:
                    return found
                values += chunk
            data = json.dumps(values).encode()
        except Exception:  # of a library that cannot read its own elements
            continue
        left -= len(data)
        if left < 0:
            break
        found.append({"name": column.name, "length": len(values), "at": content.put(data)})
        its = [values[index] for index in indices if index < len(values)]
        if len(its) == len(indices) > 1 and all(isinstance(one, str) for one in its):
            texts[column.name] = its
    return found


def _raw(raw: dict[str, Any], content: _Content) -> dict[str, Any]:
    """Write a sample's raw files, and return its key and the positions of the files."""
    files = {str(name): one for name, one in raw.items() if isinstance(one, bytes) and content.takes(len(one))}
    return {"key": raw.get(KEY), "members": {name: content.put(one) for name, one in files.items()}}


def _looked_at(
    make: Callable[[], Any],
    collate: Callable[[Any], Any],
    index: int,
    making: int,
    content: _Content,
    held: Any,
    generators: Mapping[str, RandomGenerator],
) -> dict[str, Any]:
    """Make a sample and describe it. `generators`: those of a stream, reseeded as its file is read, then restored."""
    put_back: list[Callable[[], None]] = []
    moved: dict[str, str] = {}

    def draw_anew() -> None:
        put_back.append(generators_held(generators))
        for name, one in generators.items():
            one.reseed(making)
            moved[name] = state_text(one.state())

    trace = ValueTrace(draw_anew if generators else None)
    said: dict[str, Any] = {"index": index, "making": making, "leaves": []}
    trace.begin()
    try:
        try:
            batch = collate(make())
        finally:
            trace.end()
            said["drawn"] = [name for name, state in moved.items() if state_text(generators[name].state()) != state]
            for call in put_back:
                call()
        for path, value in islice(leaves_of(batch), MOST_LEAVES):
            is_odd = any(type(key) is OddKey for key in path)
            said["leaves"].append({"path": path, **({"kind": "object"} if is_odd else _leaf(value, content))})
    except Exception as error:
        said["error"] = _said(error)
    said["inputs"] = [
        {"path": one.path, "member": one.member, "at": content.put(one.data)}
        for one in trace.inputs
        if content.takes(len(one.data))
    ]
    said["is_held"] = held is not None and not said["inputs"]
    if said["is_held"]:
        picture = io.BytesIO()
        sys.modules["numpy"].save(picture, held[index].squeeze())
        at = content.put(picture.getvalue())
        said["inputs"].append({"path": None, "member": None, "at": at})
    said["turned"] = [
        {"function": one.function, "degrees": one.degrees, **({} if one.pixels is None else _leaf(one.pixels, content))}
        for one in trace.turned
    ]
    said.update(boxes=trace.boxes, sizes=trace.sizes)
    return said


def _leaf(value: Any, content: _Content) -> dict[str, Any]:
    if value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _MOST_BITS):
        return {"kind": "number" if value is not None else "none", "value": value}
    if isinstance(value, str):
        return {"kind": "text", "value": value[:MOST_TEXT]}
    if isinstance(value, bytes) and content.takes(len(value)):
        return {"kind": "bytes", "at": content.put(value)}
    try:
        array = as_array(value)
        if array is not None and content.takes(array.nbytes):
            shape, at = list(array.shape), content.put(array.tobytes())
            return {"kind": "array", "dtype": array.dtype.str, "shape": shape, "at": at}
    except Exception:  # a user class may do anything
        return {"kind": "object"}
    return {"kind": "object"}
