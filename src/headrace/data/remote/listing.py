"""Objects that match an address, a brace list or a pattern; a prefix is listed only if necessary."""

from __future__ import annotations

import fnmatch
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.remote.key_ranges import list_beginning, list_objects
from headrace.data.remote.remote_file import ObjectPath, pin_of, tag_of
from headrace.data.storage.file_writing import UnwritableError, finish_partial_file
from headrace.data.storage.paths import brace_parts
from headrace.data.storage.safetensors import (
    ArrayContent,
    InvalidFileError,
    MappedArrays,
    checked_array,
    checked_strings,
    write_arrays,
)
from headrace.data.storage.sidecar import build_cached, cache_folder, read_cached
from headrace.data.storage.strings import Ints, StringColumn
from headrace.errors import NotFoundError
from headrace.stores import (
    HUB_SCHEME,
    HubStore,
    ListedObject,
    ObjectAddress,
    ObjectStore,
    RangeRequest,
    StoreAddress,
    parse_address,
    with_remote_retries,
    without_credentials,
)
from headrace.system import work_through

_MAGIC = re.compile(r"[*?\[]")
_OF_CONNECTIONS = ("client_options", "retry_config")
_MOST_STORES = 256
"""Connections that a dataset has open at most."""
_FORMAT = "headrace listing 1"
"""Raise the number whenever the meaning of a cached listing changes."""
_FEW_OBJECTS = 10_000
"""Objects that are listed again each time, in ten requests to most stores: a second or two."""
_CACHED_FOR_S = 24 * 3600
_LOOKED_AT = 8
"""Objects of a cached listing that are checked: enough to notice that a prefix was rewritten."""
_MOST_BEGINNINGS = 100
"""Texts with which the keys of one pattern may begin; each takes a request."""
_MOST_ROWS = 100_000
"""Objects in a prefix that may all be files of rows."""
_log = logging.getLogger("headrace")


class Stores:
    """Stores of one dataset, one per bucket, with the options of `open`."""

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        store: Any = None,
        left_out: tuple[str, ...] = (),
        *,
        retry_for_s: float | None = None,
        verify: bool = False,
    ) -> None:
        """Take `store_options=`, `store=`, `retry_for=`, `verify=`, and the credentials left in another process."""
        self._options, self._given, self._left_out, self._retry_for_s = options, store, left_out, retry_for_s
        self._verify = verify
        self._stores: dict[StoreAddress, ObjectStore] = {}
        self._repositories: dict[StoreAddress, tuple[HubStore, str]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without credentials, as `ObjectStore` does."""
        kept, left_out = without_credentials(self._options or {})
        given = () if self._given is None else ("store=",)
        names = tuple(dict.fromkeys((*self._left_out, *left_out, *given)))
        return partial(Stores, retry_for_s=self._retry_for_s, verify=self._verify), (kept, None, names)

    def path(self, text: str, *, among_others: bool = False) -> ObjectPath:
        """Return the one object at an address. The only request, made once, resolves the commit of a Hub repository.

        `among_others`: addresses of several stores share the options; a web server gets only connection options. Raises
        UsageError; for the Hub also NotFoundError and ReadError.
        """
        address = parse_address(text)
        if address.store.scheme == HUB_SCHEME:
            return self._in_repository(address)
        options = self._options
        if among_others and address.store.is_web:
            options = {name: value for name, value in (options or {}).items() if name in _OF_CONNECTIONS}
        store = self._stores.get(address.store)  # other threads add and remove stores
        if store is None:
            if len(self._stores) >= _MOST_STORES:  # each signed web address has its own connection
                self._stores.pop(next(iter(list(self._stores))), None)
            given = None if among_others and address.store.is_web else self._given
            made = ObjectStore.of(address.store, options, given, retry_for_s=self._retry_for_s, verify=self._verify)
            store = replace(made, left_out=self._left_out) if self._left_out else made
            self._stores[address.store] = store
        return ObjectPath(store, address.key)

    def resolve(self, text: str) -> list[ObjectPath]:
        """Return the objects that an address names: braces in the given order, globs in the order of their keys.

        Only globs are listed: the keys that begin as the pattern does before the first `*`, `?` or large `[…]`. Raises
        UsageError, ReadError, and NotFoundError if no object matches.
        """
        found: list[ObjectPath] = []
        for part in brace_parts(text):
            path = self.path(part)
            found += self._matching(path) if _is_pattern(path) else [path]
        return found

    def _in_repository(self, address: ObjectAddress) -> ObjectPath:
        if address.store not in self._repositories:
            given = HubStore.of(
                address.store, self._options, self._given, retry_for_s=self._retry_for_s, verify=self._verify
            )
            store, folder = _open_repository(given)
            store = replace(store, left_out=self._left_out) if self._left_out else store
            self._repositories[address.store] = store, folder
        store, folder = self._repositories[address.store]
        return ObjectPath(store, "/".join(filter(None, (folder, address.key))))

    def _matching(self, pattern: ObjectPath) -> list[ObjectPath]:
        matches = _key_pattern(pattern.key)
        begins = _beginnings(pattern.key)
        if not any(map(pattern.key.startswith, begins)):  # a key may be the pattern itself
            begins.append(pattern.key)
        listed = list_beginning(pattern.store, begins)
        found = [
            path_of(pattern.store, each) for each in listed if each.key == pattern.key or matches.fullmatch(each.key)
        ]
        if not found:
            below = pattern.store.address.show(_MAGIC.split(pattern.key)[0].rpartition("/")[0])
            raise NotFoundError(f"expected objects that match {pattern}, got none below {below}. Check the address")
        return found


def prefix_path(path: ObjectPath) -> ObjectPath | None:
    """Return the prefix for an address that ends in a slash or names only a bucket; None: an object."""
    if path.key and not path.key.endswith("/"):
        return None
    return ObjectPath(path.store, path.key.rstrip("/"))


@dataclass(frozen=True, eq=False)
class Listing:
    """Objects in a prefix, in bytewise order of their keys."""

    prefix: ObjectPath
    names: StringColumn
    """Keys relative to the prefix."""
    sizes: Ints
    tags: npt.NDArray[np.bytes_]
    """`tag_of` of each object."""
    place: str | None = None
    """Path of the cached listing."""
    age_s: float = 0.0
    """Seconds since the cached listing was made."""

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> ObjectPath:
        """Return an object, pinned to the content in the listing."""
        key = f"{self.prefix.key}/{self.names[number]}".lstrip("/")
        pin = pin_of(int(self.sizes[number]), bytes(self.tags[number]))
        return ObjectPath(self.prefix.store, key, {"pin": pin}, self.place)

    def files(self, choose: Callable[[list[str]], Sequence[str]], *, beside: Callable[[str], bool]) -> list[ObjectPath]:
        """Return the objects that `choose` selects among the names directly in the prefix, without `beside` ones.

        Empty if there are objects deeper in the prefix, or too many.
        """
        if len(self) > _MOST_ROWS:
            return []
        number_of = {name: number for number, name in enumerate(self.names) if not beside(name.partition("/")[0])}
        if not number_of or any("/" in name for name in number_of):
            return []
        return [self.path(number_of[name]) for name in choose(list(number_of))]


def prefix_listing(prefix: ObjectPath, cache: str | None) -> Listing:
    """Return the objects in a prefix as listed now.

    A listing of more than 10,000 objects is cached for a day, in the folder `cache` or the default cache folder; other
    processes wait for it. A cached listing is used while a few of its objects are unchanged, and its age is logged.
    Raises UsageError for a web server, ReadError.
    """
    known = hashlib.blake2b(f"{_FORMAT}\0{prefix}".encode(), digest_size=16).hexdigest()
    place = os.path.join(cache_folder() if cache is None else cache, f"listing.{known}.headrace")

    def load() -> Listing | None:
        return read_cached(place, _FORMAT, lambda arrays, metadata: _load(prefix, place, arrays, metadata))

    def build(partial: int) -> None:
        listing = _list_prefix(prefix)
        contents: dict[str, ArrayContent] = {
            "names.blob": listing.names.blob,
            "names.offsets": listing.names.offsets,
            "sizes": listing.sizes,
        }
        contents["tags"] = np.frombuffer(listing.tags.tobytes(), np.uint8)
        metadata = {"format": _FORMAT, "listed": str(time.time()), "tag_bytes": str(listing.tags.itemsize)}
        finish_partial_file(partial, place, lambda file: write_arrays(file, contents, metadata))

    with suppress(InvalidFileError):
        found = load()
        if found is not None and _is_unchanged(found):
            if not isinstance(prefix.store, HubStore):  # a commit is immutable
                _log.warning(
                    "%s: its %s objects are those of a listing taken %.1f h ago; later ones are missing. To list it "
                    "anew, delete %s",
                    prefix,
                    f"{len(found):,}",
                    found.age_s / 3600,
                    place,
                )
            return found
    with suppress(OSError):
        os.unlink(place)
    few = _list_prefix(prefix, most=_FEW_OBJECTS)
    if len(few) <= _FEW_OBJECTS:
        return few
    try:
        return build_cached(place, load, build)
    except UnwritableError:  # list again each time
        return _list_prefix(prefix)


def _load(prefix: ObjectPath, place: str, arrays: MappedArrays, metadata: Mapping[str, str]) -> Listing | None:
    """Return a cached listing; None if older than a day. Raises InvalidFileError."""
    arrays.check_all()
    try:
        age_s, tag_bytes = time.time() - float(metadata["listed"]), int(metadata["tag_bytes"])
    except (KeyError, ValueError) as error:
        raise InvalidFileError("its time is missing") from error
    sizes = checked_array(arrays, "sizes", np.int64)
    tags = checked_array(arrays, "tags", np.uint8, len(sizes) * tag_bytes)
    if not 0 <= age_s < _CACHED_FOR_S:
        return None
    names = checked_strings(arrays, "names", len(sizes))
    return Listing(prefix, names, sizes, tags.view(f"S{tag_bytes}"), place, age_s)


def _is_unchanged(listing: Listing) -> bool:
    """Return True if a few of the objects are unchanged."""
    spread = np.unique(np.linspace(0, max(0, len(listing) - 1), _LOOKED_AT).astype(np.int64))[: len(listing)].tolist()
    changed: list[int] = []

    def look(number: int) -> None:
        path = listing.path(number)
        try:
            found = ObjectPath(path.store, path.key).open().pin()
        except NotFoundError:
            changed.append(number)
            return
        if path.pin is None or not path.pin.is_same(found):
            changed.append(number)

    if len(spread):
        work_through(spread, look, name="listing", threads=len(spread))
    return not changed


def _list_prefix(prefix: ObjectPath, *, most: int | None = None) -> Listing:
    """List a prefix, or part of it, as `list_objects` does."""
    found = list_objects(prefix.store, prefix.key, most=most)
    cut = len(prefix.key) + 1 if prefix.key else 0
    names = StringColumn.from_list(each.key[cut:] for each in found)
    sizes = np.fromiter((each.pin.size for each in found), np.int64, len(found))
    return Listing(prefix, names, sizes, np.array([tag_of(each.pin) for each in found], np.bytes_))


def _open_repository(store: HubStore) -> tuple[HubStore, str]:
    """Return a repository at its commit, and the folder in it if the second part of the name is a folder."""
    if store.is_resolved:
        return store, ""
    try:
        return _at_commit(store), ""
    except NotFoundError:
        name, _, folder = store.repository.partition("/")
        if store.revision is not None or not folder:
            raise
        try:
            return _at_commit(replace(store, address=StoreAddress(HUB_SCHEME, f"datasets/{name}"))), folder
        except NotFoundError:
            pass
        raise


def _at_commit(store: HubStore) -> HubStore:
    return with_remote_retries(store, RangeRequest(str(store.address), verb="found"), store.resolved)


def path_of(store: ObjectStore, listed: ListedObject) -> ObjectPath:
    """Return the path of a listed object, pinned to the content in the listing."""
    return ObjectPath(store, listed.key, {"pin": listed.pin})


def _is_pattern(path: ObjectPath) -> bool:
    return _MAGIC.search(path.key) is not None


def _beginnings(pattern: str) -> list[str]:
    """Return the texts with which keys that match begin: few classes such as `[0-4]` are written out."""
    begins, at = [""], 0
    while magic := _MAGIC.search(pattern, at):
        begins = [each + pattern[at : magic.start()] for each in begins]
        end = pattern.find("]", magic.start() + 2)
        if magic[0] != "[" or end < 0:
            return begins
        matches = _key_pattern(pattern[magic.start() : end + 1])
        characters = [each for each in map(chr, range(ord(" "), ord("~") + 1)) if matches.fullmatch(each)]
        is_plain = pattern[magic.start() + 1] != "!" and pattern.isascii() and pattern.isprintable()
        if not is_plain or not 0 < len(begins) * len(characters) < _MOST_BEGINNINGS:
            return begins
        begins, at = [each + character for each in begins for character in characters], end + 1
    return begins


def _key_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for keys: as in glob, `*` and `?` match within a part, `**` spans parts."""
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
            characters = fnmatch.translate(pattern[at : end + 1]).removeprefix("(?s:").rpartition(")")[0]
            yield f"(?!/){characters}"
            at = end + 1
        else:
            yield {"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at]))
            at += 1
