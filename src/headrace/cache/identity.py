"""What a cache holds: which samples, cut and made how, and of which state of their files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CacheIdentity:
    """`key` and `stamp` are digests of 32 bytes. A cache of another key is another cache. One of this key and another
    stamp is an older state of the same, and is made anew."""

    entries: int
    key: bytes
    stamp: bytes

    @property
    def name(self) -> str:
        return self.key[:16].hex()


def identity_of(entries: int, what: Any, stamp: Any = None) -> CacheIdentity:
    """`what` and `stamp` are plain JSON values. Equal ones give equal identities, in every process and on every
    machine; `what` has to say all that the bytes of an entry depend on."""
    return CacheIdentity(entries, _digest([entries, what]), _digest(stamp))


def _digest(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, allow_nan=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
