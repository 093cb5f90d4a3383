"""Sidecars that are nearly right: sound ones after edits that keep most of their form."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fuzzed_files import edited_bytes
from hypothesis import strategies as st
from index_checksums import put_together, taken_apart

NUMPY_TYPES = {"U8": "<u1", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8"}
EXTREMES = [-(2**63), -(2**31), -513, -1, 0, 1, 511, 512, 513, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]

numbers = st.one_of(st.integers(-3, 40), st.sampled_from(EXTREMES))
texts = st.text(st.characters(codec=None), max_size=6)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=6,
)


@st.composite
def edited_sidecars(draw: st.DrawFn, sound: bytes) -> bytes:
    """A sidecar after one edit to three: of array entries, of the header, of the metadata, or of any bytes. Its
    checksums fit again, but for one in eight."""
    header, body = taken_apart(sound)
    for _ in range(draw(st.integers(1, 3))):
        draw(st.sampled_from([_edit_values, _edit_values, _edit_entry, _edit_metadata, _edit_outline]))(
            draw, header, body
        )
    file = put_together(header, body)
    return draw(edited_bytes(file)) if draw(st.integers(0, 7)) == 0 else file


def _edit_values(draw: st.DrawFn, header: dict[str, Any], body: bytearray) -> None:
    """Single numbers of one array."""
    name = draw(st.sampled_from(sorted(set(header) - {"__metadata__"}) or [""]))
    match header.get(name):
        case {"dtype": str(dtype), "data_offsets": [int(start), int(stop)]} if (
            dtype in NUMPY_TYPES and stop > start >= 0
        ):
            item = np.dtype(NUMPY_TYPES[dtype])
            at = start + item.itemsize * draw(st.integers(0, max(0, (stop - start) // item.itemsize - 1)))
            value = draw(numbers) % (1 << 8 * item.itemsize)
            body[at : at + item.itemsize] = value.to_bytes(item.itemsize, "little")


def _edit_entry(draw: st.DrawFn, header: dict[str, Any], _: bytearray) -> None:
    """What the header says of one array: another type or place, nothing, or nonsense."""
    name = draw(st.sampled_from(sorted(header) or [""]))
    entry = header.get(name)
    if not isinstance(entry, dict) or draw(st.integers(0, 5)) == 0:
        header.pop(name, None)
        header[draw(st.one_of(st.just(name), texts))] = draw(json_values)
        return
    what = draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
    header[name] = entry | {
        what: {
            "dtype": draw(st.sampled_from([*NUMPY_TYPES, "F32", "BOOL"])),
            "shape": draw(st.lists(numbers, max_size=2)),
            "data_offsets": draw(st.lists(numbers, min_size=1, max_size=3)),
        }[what]
    }


def _edit_metadata(draw: st.DrawFn, header: dict[str, Any], _: bytearray) -> None:
    header["__metadata__"] = draw(json_values)


def _edit_outline(draw: st.DrawFn, header: dict[str, Any], _: bytearray) -> None:
    """The JSON text inside the metadata: one entry of it."""
    match header.get("__metadata__"):
        case {"outline": str(text)} if text.startswith("{"):
            outline = json.loads(text)
            outline[draw(st.sampled_from([*outline, "ungrouped"]))] = draw(json_values)
            header["__metadata__"]["outline"] = json.dumps(outline)
