"""Samples cached between epochs, in RAM or on a disk, shared by the processes of a node.

Used by `loader`. Read `storage.py` and `spec.py` first.
"""

from __future__ import annotations

from headrace.cache.claims import Claims
from headrace.cache.spec import CacheIdentity, CacheSpec, CacheStats, identity_of, parse_size, parse_spec, size_text
from headrace.cache.storage import DescriptorServer, Store, shared_descriptor
