"""The checksums of a kept index by `zlib`, after what was kept is edited: so that what lies behind them is tested."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

BLOCK_BYTES = 1 << 14


def taken_apart(whole: bytes) -> tuple[dict[str, Any], bytearray]:
    """The header, and all that follows."""
    size = int.from_bytes(whole[:8], "little")
    return json.loads(whole[8 : 8 + size]), bytearray(whole[8 + size :])


def put_together(header: dict[str, Any], body: bytes) -> bytes:
    """The file, whose checksums fit what it holds, as far as the header says where they are."""
    body = bytearray(body)
    match header:
        case {"__metadata__": dict(metadata), "checksums": {"data_offsets": [int(start), int(stop)]}} if (
            0 <= start <= stop <= len(body)
        ):
            data = body[stop:]
            blocks = [zlib.crc32(data[at : at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)]
            sums = struct.pack(f"<{len(blocks)}I", *blocks)[: stop - start].ljust(stop - start, b"\0")
            body[start:stop] = sums
            known = {"checksum": "0" * 8, "checksums": f"{zlib.crc32(sums):08x}"}
            header = {"__metadata__": known | {key: metadata[key] for key in metadata if key not in known}} | {
                key: value for key, value in header.items() if key != "__metadata__"
            }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    whole = struct.pack("<Q", len(text)) + text
    return whole.replace(b'"checksum": "00000000"', b'"checksum": "%08x"' % zlib.crc32(whole), 1) + bytes(body)
