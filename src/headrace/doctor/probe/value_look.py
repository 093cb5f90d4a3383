"""Look at the values of a loader's samples: each made several times, with what it is made from, into one file.

A sample is looked at as the loader hands it over: in a batch of its own. The file holds the bytes of all arrays and
inputs, equal ones once; then the look as JSON, and its place as the last eight bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from threading import Thread, Timer
from typing import Any, BinaryIO, Callable

from .columns import ColumnBudget, found_columns, sequence_lengths
from .held_pictures import held_pictures
from .live_objects import live_objects
from .raw_samples import KEY, RawSamples, raw_samples
from .sample_comparison import generators_held, generators_kept, generators_moved
from .sample_makers import SampleMakers
from .value_trace import ValueTrace

LOOK_FILE = "look"
HELD = ".npy"
"""Ending of the file, beside the look's, of the pictures that the dataset holds in memory."""
PARTIAL = ".partial"
"""End of the name of a look that is not whole yet."""
MOST_S = 10.0
GRACE_S = 5.0
"""How much longer a sample may take that was begun within the look's time."""
LATE = f"a sample took more than {GRACE_S:.0f} s"
MOST_BYTES = 256 << 20
_MIXINGS = 3
"""Batches of the same two samples: what mixes them may draw a factor that changes nothing."""
MOST_LEAVES = 64
MOST_DEPTH = 6
MOST_TEXT = 20_000
_ODD = object()
"""In place of what lies under a key that is no text."""
_MOST_BITS = 64
"""Of a whole number."""
MOST_COLUMNS_S = 5.0
MOST_COLUMN_BYTES = 64 << 20
"""JSON of all columns together."""


class _Content:
    """Bytes in the file, equal ones once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[bytes, tuple[int, int]] = {}
        self.size = 0
        self.is_full = False
        """Whether there was no room for something."""

    def takes(self, count: int) -> bool:
        """Tell whether there is room for so many bytes."""
        self.is_full = self.is_full or self.size + count > MOST_BYTES
        return not self.is_full

    def put(self, data: bytes) -> tuple[int, int]:
        """Return where the bytes lie: first byte and count."""
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest not in self._places:
            self._places[digest] = self.size, len(data)
            self._file.write(data)
            self.size += len(data)
        return self._places[digest]


def look_within(loader: Any, path: str, most_s: float = MOST_S) -> str:
    """Look at a loader's values in a thread of its own, and return why there is no look; empty where there is one.

    A sample that never comes costs the look, and no more time than the look's own: the process ends soon after, even
    where threads of the dataset's do not.
    """
    why = [LATE]

    def look() -> None:
        try:
            look_at_values(loader, path, most_s=most_s)
            why[0] = ""
        except BaseException as error:  # of the dataset's own, whatever it is: the run ends as it would have
            why[0] = _said(error)

    thread = Thread(target=look, name="headrace-look", daemon=True)
    thread.start()
    thread.join(most_s + GRACE_S)
    if why[0] == LATE:
        timer = Timer(GRACE_S, _leave)
        timer.daemon = True
        timer.start()
    return why[0]


def _leave() -> None:
    """End the process, whatever it waits for."""
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(0)


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except Exception:  # the user's exception fails to say what it is
        return type(error).__name__


def look_at_values(loader: Any, path: str, *, most_s: float = MOST_S) -> dict[str, Any]:
    """Make samples spread over a DataLoader's dataset, write what they are and are made from, and return the outline.

    The shared generators of random numbers are put back to where they were. The look ends by itself once it has taken
    `most_s` or would write more than 256 MB; what raises is noted, and ends the look of that sample. Of a stream, the
    first samples are taken, of a fresh iterator each time: in the same order, where the shared generators draw that. Of
    a webdataset pipeline, samples of several tars are made as its stages make each alone.
    """
    dataset = loader.dataset
    length = _length(dataset)
    found: dict[str, Any] = {"class": type(dataset).__name__, "length": length, "samples": [], "ended": ""}
    found["is_batched"] = _makes_batches(loader)
    until = time.monotonic() + most_s
    partial = path + PARTIAL
    with open(partial, "wb") as file, generators_kept():
        content = _Content(file)
        collate = _collate_of(loader)
        held = None if length is None else held_pictures(dataset, length)
        raw = raw_samples(dataset, length)
        makers = SampleMakers(dataset, length, raw)
        for makings in ((0, 1), (2, 3)):  # two of each first: one shows what is drawn
            for making, index, make in makers.of(makings):
                found["ended"] = "size" if content.is_full else "time" if time.monotonic() > until else ""
                if found["ended"]:
                    break
                said = _looked_at(make, collate, index, making, content, held, keeps_order=makers.is_stream)
                found["samples"].append({**said, **_raw(makers.raw(index), content)})
        found["mixed"] = None if found["ended"] == "size" else _mixed(makers, loader)
        found["columns"] = _columns(dataset, length, raw, content, until + GRACE_S / 2)
        found["opened"] = raw and {"files": raw.files, **raw.facts}
        found["holds"] = held is not None and any(said["is_held"] for said in found["samples"])
        if found["holds"]:
            with open(f"{path}{HELD}", "wb") as pictures:
                sys.modules["numpy"].save(pictures, held)
        found["transforms"], tokenizers = live_objects(loader)
        found["tokenizers"] = [content.put(text.encode()) for text in tokenizers]
        found["chosen"] = _chosen(loader, length)
        outline = json.dumps(found).encode()
        file.write(outline)
        file.write(content.size.to_bytes(8, "little"))
    os.replace(partial, path)
    return found


def _mixed(makers: SampleMakers, loader: Any) -> list[list[Any]] | None:
    """Return the paths of what a batch of two holds otherwise than the batches of one, such as MixUp's pictures.

    None where no batch of two could be made.
    """
    ends = [] if makers.is_stream else [make for _, _, make in makers.of((0,))]
    if len(ends) < 2 or getattr(loader, "batch_size", None) == 1 or _makes_batches(loader):
        return []
    try:
        samples = [ends[0](), ends[-1]()]
        alone = [_values_of(loader.collate_fn([sample])) for sample in samples]
        found: dict[str, list[Any]] = {}
        for _ in range(_MIXINGS):
            both = _values_of(loader.collate_fn(samples))
            for key, (path, value) in both.items():
                if key in alone[0] and not _are_rows(value, [one.get(key, (None, None))[1] for one in alone]):
                    found[key] = path
        return list(found.values())
    except Exception:  # of a sample, or of the collate function
        return None


def _values_of(batch: Any) -> dict[str, tuple[list[Any], Any]]:
    """Return the arrays of a batch by their paths."""
    found: dict[str, tuple[list[Any], Any]] = {}

    for path, value in _parts(batch, []):
        array = _as_array(value)
        if array is not None and array.ndim:
            found[repr(path)] = path, array.copy()
    return found


def _are_rows(both: Any, alone: list[Any]) -> bool:
    """Tell whether a batch of two holds the batches of one as its rows, as far as they have the same shapes."""
    if any(one is None or one.shape[1:] != both.shape[1:] or len(one) != 1 for one in alone) or len(both) != 2:
        return True  # padded to the batch, or no array a sample
    return all((both[place] == one[0]).all() or (both[place] != both[place]).any() for place, one in enumerate(alone))


def _length(dataset: Any) -> int | None:
    """Return the samples that may be asked for by number; None of a stream."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        return None
    return len(dataset) if hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__") else None


def _makes_batches(loader: Any) -> bool:
    """Tell whether the loader's dataset makes batches itself."""
    return getattr(loader, "batch_sampler", None) is None and getattr(loader, "batch_size", None) is None


def _collate_of(loader: Any) -> Callable[[Any], Any]:
    """Return what makes a batch of one sample; of a dataset that makes its batches itself, what the loader does."""
    collate: Callable[[Any], Any] = loader.collate_fn
    if _makes_batches(loader):
        return collate
    return lambda sample: collate([sample])


def _chosen(loader: Any, length: int | None) -> list[int] | None:
    """Return the samples that the loader's sampler takes, where that takes some of them by a list of their places."""
    indices = getattr(getattr(loader, "sampler", None), "indices", None)
    if indices is None or length is None:
        return None
    try:
        taken = [int(index) for index in islice(iter(indices), length + 1)]
    except Exception:  # of a sampler of the user's own, which means something else by that name
        return None
    return taken if len(taken) <= length and all(0 <= index < length for index in taken) else None


def _columns(
    dataset: Any, length: int | None, raw: RawSamples | None, content: _Content, until: float
) -> list[dict[str, Any]]:
    """Write the columns that the dataset holds, whole ones, and return their names, lengths and places.

    Of a stream, those of each length that a sequence of its own has.
    """
    until, left = min(until, time.monotonic() + MOST_COLUMNS_S), MOST_COLUMN_BYTES
    found: list[dict[str, Any]] = []
    lengths = [length] if length is not None else sequence_lengths(dataset)
    each = (column for one in lengths for column in found_columns(dataset, one, ColumnBudget()))
    for column in each if raw is None else raw.columns():
        values: list[Any] = []
        try:
            for chunk in column.chunks():
                if time.monotonic() > until:
                    return found
                values += chunk
            data = json.dumps(values).encode()
        except Exception:  # of a library, which cannot read its own elements
            continue
        left -= len(data)
        if left < 0:
            break
        found.append({"name": column.name, "length": len(values), "at": content.put(data)})
    return found


def _raw(raw: dict[str, Any], content: _Content) -> dict[str, Any]:
    """Write what a sample is made from, and return its key and the places of its files."""
    files = {str(name): one for name, one in raw.items() if isinstance(one, bytes) and content.takes(len(one))}
    return {"key": raw.get(KEY), "members": {name: content.put(one) for name, one in files.items()}}


def _looked_at(
    make: Callable[[], Any],
    collate: Callable[[Any], Any],
    index: int,
    making: int,
    content: _Content,
    held: Any,
    *,
    keeps_order: bool,
) -> dict[str, Any]:
    """Make a sample and say what it is. `keeps_order`: what it draws does not change what the stream gives next."""
    put_back: list[Callable[[], None]] = []

    def draw_anew() -> None:
        put_back.append(generators_held())
        generators_moved(making)

    trace = ValueTrace(draw_anew if keeps_order else None)
    said: dict[str, Any] = {"index": index, "making": making, "leaves": []}
    trace.begin()
    try:
        try:
            batch = collate(make())
        finally:
            trace.end()
            for call in put_back:
                call()
        for path, value in islice(_parts(batch, []), MOST_LEAVES):
            said["leaves"].append({"path": path, **_leaf(value, content)})
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
    said.update(boxes=trace.boxes, sizes=trace.sizes)
    return said


def _parts(value: Any, path: list[Any]) -> Iterator[tuple[list[Any], Any]]:
    """Yield the parts of a nested batch that hold no others, in its order, with their paths.

    Of what lies under a key that no batch of the Loader's has, the path and `_ODD` are yielded.
    """
    members = _members(value) if len(path) < MOST_DEPTH else None
    if members is None:
        yield path, value
        return
    for key, one in members:
        if isinstance(key, str) or isinstance(value, (list, tuple)):
            yield from _parts(one, [*path, key])
        else:
            yield [*path, repr(key)], _ODD


def _members(value: Any) -> list[tuple[Any, Any]] | None:
    """Return what a dict, a list or the like holds, by key or place; None of anything else."""
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    try:
        if isinstance(value, dict) or (callable(value.keys) and callable(value.items)):
            return [(key, one) for key, one in islice(value.items(), MOST_LEAVES)]
    except Exception:  # a class without these, or of the user's own, which means something else by the name
        return None
    return None


def _leaf(value: Any, content: _Content) -> dict[str, Any]:
    if value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _MOST_BITS):
        return {"kind": "number" if value is not None else "none", "value": value}
    if isinstance(value, str):
        return {"kind": "text", "value": value[:MOST_TEXT]}
    if isinstance(value, bytes) and content.takes(len(value)):
        return {"kind": "bytes", "at": content.put(value)}
    try:
        array = _as_array(value)
        if array is not None and content.takes(array.nbytes):
            return {
                "kind": "array",
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "at": content.put(array.tobytes()),
            }
    except Exception:  # a class of the user's own may do anything
        return {"kind": "object"}
    return {"kind": "object"}


def _as_array(value: Any) -> Any:
    """Return a tensor, an array or a picture as numpy's array; None of anything else."""
    torch, numpy, image = (sys.modules.get(name) for name in ("torch", "numpy", "PIL.Image"))
    if torch is not None and isinstance(value, torch.Tensor):
        plain = value.detach().as_subclass(torch.Tensor).cpu()
        return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()
    if numpy is None:
        return None
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(value)
        return None if array.dtype.hasobject else array
    if image is not None and isinstance(value, image.Image):
        return numpy.asarray(value)
    return None
