"""Caches of what is the same each time a sample is made: in RAM or on a disk, bounded, checked, shared by a node."""

from headrace.cache.identity import CacheIdentity, identity_of
from headrace.cache.spec import CacheSpec, parse_spec
from headrace.cache.stats import CacheStats
from headrace.cache.storage import Store

__all__ = ["CacheIdentity", "CacheSpec", "CacheStats", "Store", "identity_of", "parse_spec"]
