"""Samples as bytes, and back to the same types, bit for bit. No pickle: what is read may come from a file.

Layout, little endian: `hrs1`, the outline's length (4 bytes), the outline (MessagePack), then the contents of arrays,
tensors and images, each at a multiple of 16 from the end of the outline.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from headrace.compat.caching.trees import decode_node, encode_node
from headrace.dropins.sample_encoding import Contents, Unsuitable
from headrace.errors import UsageError

_MAGIC = b"hrs1"
_HEAD = struct.Struct("<4sI")


class UndecodableError(Exception):
    """Bytes that are no sample of this version."""


def encode_sample(sample: Any, index: int) -> bytes:
    """Raises UsageError that names what of sample `index` cannot be kept."""
    contents = Contents()
    try:
        outline = msgspec.msgpack.encode(encode_node(sample, contents, f"sample {index:,}"))
    except Unsuitable as error:
        raise UsageError(f"cached: {error}") from None
    except RecursionError:
        raise UsageError(f"cached: sample {index:,}: expected values nested a little, got lists in a circle") from None
    return b"".join([_HEAD.pack(_MAGIC, len(outline)), outline, *contents.parts])


def decode_sample(data: bytes) -> Any:
    """New objects each time, which own their memory. Raises UndecodableError."""
    try:
        magic, length = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise UndecodableError("another version")
        outline = msgspec.msgpack.decode(memoryview(data)[_HEAD.size : _HEAD.size + length])
        return decode_node(outline, memoryview(data)[_HEAD.size + length :])
    except (struct.error, msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise UndecodableError(str(error)) from error
