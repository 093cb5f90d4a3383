"""What remedies for images share: which image of Pillow's may be answered for, and where its bytes come from."""

from __future__ import annotations

import hashlib
import os
from typing import Any

_STARTS = {"JPEG": b"\xff\xd8", "PNG": b"\x89PNG"}


def is_unread(image: Any) -> bool:
    """Whether it is a file that was opened and of which no pixel has been decoded: one frame of a usual kind."""
    return bool(
        getattr(image, "tile", None)
        and getattr(image, "format", None) in _STARTS
        and image.mode in ("L", "RGB")
        and "transparency" not in image.info
        and getattr(image, "n_frames", 1) == 1
        and not image.decoderconfig  # a JPEG that is to be decoded at a smaller size
        and (image.format == "JPEG" or image.tile[0][3] in ("L", "RGB"))  # 8 bits a channel
    )


def whole_bytes(image: Any) -> bytes | None:
    """The file that it was opened from, whose position stays; None where it does not begin with the image."""
    file = image.fp
    at = file.tell()
    file.seek(0)
    data: bytes = file.read()
    file.seek(at)
    return data if data.startswith(_STARTS[image.format]) else None


def source_key(image: Any) -> tuple[Any, ...] | None:
    """What tells the file that it was opened from: its path, its place in a tar, or what it holds."""
    raw = getattr(image.fp, "raw", None)
    if type(raw).__module__ == "tarfile":
        member: Any = raw
        archive = getattr(getattr(member, "fileobj", None), "name", None)
        return (archive, member.offset, member.size) if isinstance(archive, str) else None
    if image.filename:
        return (os.fsdecode(image.filename), os.fstat(image.fp.fileno()).st_mtime_ns)
    if hasattr(image.fp, "getbuffer"):
        return (hashlib.blake2b(image.fp.getbuffer(), digest_size=16).digest(),)
    return None


def finish(image: Any) -> None:
    """Its pixels are there: what Pillow's own `load` does when it is done."""
    image.tile = []
    if image._exclusive_fp and image._close_exclusive_fp_after_loading and image.fp is not None:
        image.fp.close()
    if getattr(image, "png", None) is not None:
        image.png.close()
        image.png = None
    image.fp = None
