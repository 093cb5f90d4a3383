"""Content versions of objects, as stores state them, and listings of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_HASH = re.compile(r'"[0-9a-f]{32}"|[0-9a-f]{40}|[0-9a-f]{64}')
"""ETags that are a hash: an MD5 where S3 received an object in one part, unless it is encrypted with SSE-KMS or SSE-C;
on the Hub git's blob id, or an SHA-256."""


class ObjectPin(NamedTuple):
    """Content version of an object, as its store states it."""

    size: int
    etag: str | None
    version: str | None = None
    modified: str | None = None
    """Modification time; used if the store states no ETag."""

    def is_same(self, other: ObjectPin) -> bool:
        """Return True if both are the same content, as far as the store states."""
        if self.etag is not None and other.etag is not None:
            return self.size == other.size and self.etag == other.etag
        return self.size == other.size and self.modified == other.modified

    @property
    def match(self) -> str | None:
        """ETag for an If-Match header; None for a weak ETag, which never matches."""
        return None if self.etag is None or self.etag.startswith("W/") else self.etag


class ListedObject(NamedTuple):
    """Object in a listing."""

    key: str
    pin: ObjectPin


class ListingPage(NamedTuple):
    """Part of a listing."""

    objects: Sequence[ListedObject]
    resume: str | None
    """Argument of `list` to continue after this page; None if a listing can only start over."""


def pin_of_answer(meta: Mapping[str, Any]) -> ObjectPin:
    modified = meta.get("last_modified")
    # Whole seconds: listings may have fractions, response headers have none.
    changed = None if modified is None else modified.replace(microsecond=0).isoformat()
    return ObjectPin(int(meta["size"]), meta.get("e_tag"), meta.get("version"), changed)


def is_other_content(data: memoryview, tag: str) -> bool:
    """Return True if an object's ETag is the hash of another content."""
    if _HASH.fullmatch(tag) is None:
        return False
    stated = tag.strip('"')
    if len(stated) == 40:
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() != stated
    return hashlib.new("md5" if len(stated) == 32 else "sha256", data, usedforsecurity=False).hexdigest() != stated
