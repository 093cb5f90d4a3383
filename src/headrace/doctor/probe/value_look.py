"""Look at the values of a dataset's samples: each made several times, with what it is made from, into one file.

The file holds the bytes of all arrays and inputs, equal ones once; then the look as JSON, and its place as the last
eight bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import Any, BinaryIO

from .columns import ColumnBudget, found_columns
from .sample_comparison import generators_kept
from .value_trace import ValueTrace

MOST_S = 10.0
MOST_BYTES = 256 << 20
INDICES, MAKINGS = 8, 4
MOST_LEAVES = 64
MOST_DEPTH = 6
MOST_TEXT = 20_000
MOST_COLUMNS_S = 5.0
MOST_COLUMN_BYTES = 64 << 20
"""JSON of all columns together."""


class _Content:
    """Bytes in the file, equal ones once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[bytes, tuple[int, int]] = {}
        self.size = 0

    def put(self, data: bytes) -> tuple[int, int]:
        """Return where the bytes lie: first byte and count."""
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest not in self._places:
            self._places[digest] = self.size, len(data)
            self._file.write(data)
            self.size += len(data)
        return self._places[digest]


def look_at_values(dataset: Any, length: int, path: str, *, most_s: float = MOST_S) -> dict[str, Any]:
    """Make samples spread over a dataset, write what they are and what they are made from, and return the outline.

    The shared generators of random numbers are put back to where they were. The look ends by itself once it has taken
    `most_s` or would write more than 256 MB; what raises is noted, and ends the look of that sample.
    """
    spread = sorted({round(place * (length - 1) / max(1, INDICES - 1)) for place in range(INDICES)})
    found: dict[str, Any] = {"class": type(dataset).__name__, "length": length, "samples": [], "ended": ""}
    until = time.monotonic() + most_s
    partial = f"{path}.partial"
    with open(partial, "wb") as file, generators_kept():
        content = _Content(file)
        for making in range(MAKINGS):
            for index in spread:
                if time.monotonic() > until or content.size > MOST_BYTES:
                    found["ended"] = "time" if content.size <= MOST_BYTES else "size"
                    break
                found["samples"].append(_looked_at(dataset, index, making, content))
        found["columns"] = _columns(dataset, length, content)
        outline = json.dumps(found).encode()
        file.write(outline)
        file.write(content.size.to_bytes(8, "little"))
    os.replace(partial, path)
    return found


def _columns(dataset: Any, length: int, content: _Content) -> list[dict[str, Any]]:
    """Write the columns that the dataset holds, whole ones, and return their names and places."""
    until, left = time.monotonic() + MOST_COLUMNS_S, MOST_COLUMN_BYTES
    found: list[dict[str, Any]] = []
    for column in found_columns(dataset, length, ColumnBudget()):
        values: list[Any] = []
        for chunk in column.chunks():
            if time.monotonic() > until:
                return found
            values += chunk
        data = json.dumps(values).encode()
        left -= len(data)
        if left < 0:
            break
        found.append({"name": column.name, "at": content.put(data)})
    return found


def _looked_at(dataset: Any, index: int, making: int, content: _Content) -> dict[str, Any]:
    trace = ValueTrace()
    said: dict[str, Any] = {"index": index, "making": making, "leaves": []}
    begun = time.monotonic_ns()
    trace.begin()
    try:
        sample = dataset[index]
    except Exception as error:
        said["error"] = f"{type(error).__name__}: {error}"[:300]
        sample = None
    finally:
        trace.end()
    said["wall_us"] = (time.monotonic_ns() - begun) // 1000
    _add_leaves(sample, [], said["leaves"], content)
    said["inputs"] = [
        {"decoder": one.decoder, "path": one.path, "member": one.member, "at": content.put(one.data)}
        for one in trace.inputs
    ]
    said.update(boxes=trace.boxes, sizes=trace.sizes, calls=trace.calls[:MOST_LEAVES])
    return said


def _add_leaves(value: Any, path: list[Any], leaves: list[dict[str, Any]], content: _Content) -> None:
    """Add the leaves of a nested sample, in its order."""
    if len(leaves) >= MOST_LEAVES:
        return
    if (len(path) < MOST_DEPTH and isinstance(value, dict)) or (hasattr(value, "keys") and hasattr(value, "items")):
        for key, one in list(value.items()):
            _add_leaves(one, [*path, key if isinstance(key, (str, int)) else repr(key)], leaves, content)
    elif len(path) < MOST_DEPTH and isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            _add_leaves(one, [*path, place], leaves, content)
    else:
        leaves.append({"path": path, **_leaf(value, content)})


def _leaf(value: Any, content: _Content) -> dict[str, Any]:
    if value is None or isinstance(value, (bool, int, float)):
        return {"kind": "number" if value is not None else "none", "value": value}
    if isinstance(value, str):
        return {"kind": "text", "value": value[:MOST_TEXT]}
    if isinstance(value, bytes):
        return {"kind": "bytes", "at": content.put(value)}
    try:
        array = _as_array(value)
        if array is not None:
            data = array.tobytes()
            if content.size + len(data) <= MOST_BYTES:
                return {
                    "kind": "array",
                    "dtype": array.dtype.str,
                    "shape": list(array.shape),
                    "of": type(value).__name__,
                    "at": content.put(data),
                }
    except Exception as error:  # a class of the user's own may do anything
        return {"kind": "object", "class": type(value).__name__, "error": type(error).__name__}
    return {"kind": "object", "class": type(value).__name__}


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
