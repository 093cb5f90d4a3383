"""Objects that an address, a brace list or a pattern names; a prefix is listed only where it must be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.data.remote.addresses import StoreAddress, parse_address
from headrace.data.remote.remote_errors import RangeRequest
from headrace.data.remote.remote_file import ObjectPath, with_remote_retries
from headrace.data.remote.stores import ListedObject, ObjectStore
from headrace.data.storage.paths import brace_parts
from headrace.errors import NotFoundError

_MAGIC = re.compile(r"[*?\[]")


class Stores:
    """Stores of one dataset: one a bucket, with the options that `open` was given."""

    def __init__(self, options: Mapping[str, Any] | None = None, store: Any = None) -> None:
        """Take `store_options=` and `store=`."""
        self._options, self._given = options, store
        self._stores: dict[StoreAddress, ObjectStore] = {}

    def path(self, text: str) -> ObjectPath:
        """Return the one object at an address. Nothing is requested. Raises UsageError."""
        address = parse_address(text)
        if address.store not in self._stores:
            self._stores[address.store] = ObjectStore.of(address.store, self._options, self._given)
        return ObjectPath(self._stores[address.store], address.key)

    def resolve(self, text: str) -> list[ObjectPath]:
        """Return the objects that an address names: braces in the order written, globs in the order of their keys.

        Only globs are listed, by one listing of the part before the first of `*`, `?` and `[`. Raises UsageError,
        ReadError, and NotFoundError where none matches.
        """
        found: list[ObjectPath] = []
        for part in brace_parts(text):
            path = self.path(part)
            found += self._matching(path) if _is_pattern(path) else [path]
        return found

    def _matching(self, pattern: ObjectPath) -> list[ObjectPath]:
        magic = _MAGIC.search(pattern.key)
        assert magic is not None
        prefix = pattern.key[: magic.start()].rpartition("/")[0]
        matches = _key_pattern(pattern.key)
        listed = list_objects(pattern.store, prefix)
        found = [
            path_of(pattern.store, each) for each in listed if each.key == pattern.key or matches.fullmatch(each.key)
        ]
        if not found:
            below = pattern.store.address.show(prefix)
            raise NotFoundError(f"expected objects that match {pattern}, got none below {below}. Check the address")
        return found


def path_of(store: ObjectStore, listed: ListedObject) -> ObjectPath:
    """Return the path of an object that was listed, pinned to the content that it had then."""
    return ObjectPath(store, listed.key, {"pin": listed.pin})


def list_objects(store: ObjectStore, prefix: str) -> Iterable[ListedObject]:
    """Return the objects below a prefix by key, bytewise; not those that stand for folders. Raises ReadError.

    The listing is asked for again from its start where it fails half-way, since its pages follow one another.
    """

    def attempt() -> list[ListedObject]:
        return [each for each in store.list(prefix) if not each.key.endswith("/") and _below(each.key, prefix)]

    request = RangeRequest(store.address.show(prefix), verb="listed")
    return sorted(with_remote_retries(store, request, attempt), key=lambda each: each.key.encode())


def _below(key: str, prefix: str) -> bool:
    return not prefix or key.startswith(prefix.rstrip("/") + "/")


def _is_pattern(path: ObjectPath) -> bool:
    return _MAGIC.search(path.key) is not None


def _key_pattern(pattern: str) -> re.Pattern[str]:
    """Return a pattern of keys: `*` and `?` stay within a part, `**` spans parts, as glob has them."""
    return re.compile("".join(_pieces(pattern)), re.DOTALL)


def _pieces(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            yield "(?:[^/]+/)*"
            at += 3
        elif pattern.startswith("**", at):
            yield ".*"
            at += 2
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inner = pattern[at + 1 : end].replace("\\", "\\\\")
            yield f"[{'^' + inner[1:] if inner[0] == '!' else inner}]"
            at = end + 1
        else:
            yield {"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at]))
            at += 1
