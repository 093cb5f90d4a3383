"""Connections to stores, one per bucket and process: single requests, without retries.

obstore makes the requests, with credentials and options from the environment or the caller. Its threads do not survive
a fork, and waiting for them would never end: a forked process loads its own copy.
"""

from __future__ import annotations

import copy
import importlib
import importlib.machinery
import importlib.util
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from headrace.errors import UsageError
from headrace.stores.addresses import StoreAddress
from headrace.stores.connections import connect, without_credentials
from headrace.stores.object_content import ListedObject, ListingPage, ObjectPin, is_other_content, pin_of_answer
from headrace.stores.request_errors import FailedRequestError, FailureKind, Outage, failure_of

_PAGE_KEYS = 1000
_MODULE = "obstore._obstore"
_NOT_ITS_TAG = (
    "Upload it again if it is damaged. If its ETag is no MD5, as with SSE-KMS and SSE-C, open without verify=True"
)


class _LoadedModule:
    """obstore as loaded in this process."""

    def __init__(self) -> None:
        self.process: int | None = None
        self.lock = threading.Lock()

    def forked(self) -> None:
        self.lock = threading.Lock()  # another thread of the parent may have held the lock

    def get(self) -> Any:
        """Return obstore. Raises UsageError if it is not installed."""
        if self.process == os.getpid():
            return sys.modules["obstore"]
        with self.lock:
            if self.process is not None and self.process != os.getpid():
                _load_copy()
            try:
                import obstore
                import obstore.store
            except ImportError as error:
                raise UsageError(
                    "remote addresses need obstore, which is not installed. Install it: pip install 'headrace[remote]'"
                ) from error
            self.process = os.getpid()
            return obstore


def _load_copy() -> None:
    """Load the extension again, from memory: the dynamic loader identifies loaded files by inode."""
    origin = sys.modules[_MODULE].__file__
    assert origin is not None
    for name in [name for name in sys.modules if name == "obstore" or name.startswith("obstore.")]:
        del sys.modules[name]
    descriptor = os.memfd_create("headrace-obstore", os.MFD_CLOEXEC)
    try:
        with open(origin, "rb") as file:
            left = os.fstat(file.fileno()).st_size
            while left > 0:
                left -= os.sendfile(descriptor, file.fileno(), None, left)
        path = f"/proc/self/fd/{descriptor}"
        loader = importlib.machinery.ExtensionFileLoader(_MODULE, path)
        spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__file__ = origin
        sys.modules[_MODULE] = module
        loader.exec_module(module)
    finally:
        os.close(descriptor)


_loaded = _LoadedModule()
os.register_at_fork(after_in_child=_loaded.forked)


@dataclass(frozen=True, eq=False)
class ObjectStore:
    """Bucket, container or web server, with its connection options.

    Pickles its address and options. Credentials in them stay in this process and its forks; any other process reads its
    own environment or profile.
    """

    address: StoreAddress
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """`store_options=`: options of obstore's store of that kind, plus `anonymous` and `profile`."""
    given: bytes | None = field(default=None, repr=False)
    """Pickled obstore store from the user, for forked processes; empty if it cannot be pickled."""
    left_out: tuple[str, ...] = ()
    """Names of the credentials that stayed in the process that was given them."""
    retry_for_s: float | None = None
    """`retry_for=`: seconds to retry requests; None: not given."""
    verify: bool = False
    """`verify=`: True to compare objects that one answer holds with their MD5, where the ETag is one."""
    _connected: dict[str, Any] = field(default_factory=dict, repr=False)
    _hidden_from: ClassVar[tuple[FailureKind, ...]] = (FailureKind.CREDENTIALS,)
    """Kinds of failures with which the store may respond to clients without access to an object."""

    @classmethod
    def of(
        cls,
        address: StoreAddress,
        options: Mapping[str, Any] | None,
        store: Any = None,
        *,
        retry_for_s: float | None = None,
        verify: bool = False,
    ) -> ObjectStore:
        """Check the arguments of `open`. Raises UsageError."""
        if store is None:
            return cls(address, dict(options or {}), retry_for_s=retry_for_s, verify=verify)
        if options:
            raise UsageError("store_options: expected none beside store=, which has its own. Leave one out")
        if not hasattr(store, "__module__") or not type(store).__module__.startswith("obstore"):
            raise UsageError(f"store: expected a store of obstore's, such as S3Store(…), got {type(store).__name__}")
        if getattr(store, "prefix", None):
            raise UsageError(
                "store: expected a store of a whole bucket, got one with a prefix. Put it into the address"
            )
        config = getattr(store, "config", None) or {}
        name = config.get("bucket", config.get("container_name", address.name))
        if name != address.name.partition("@")[0]:
            raise UsageError(f"store: expected a store of {address}, got one of {name!r}")
        try:
            given = pickle.dumps(store)
        except Exception:  # a credential provider may not pickle: it serves this process, and a fork raises UsageError
            given = b""
        made = cls(address, {}, given, retry_for_s=retry_for_s, verify=verify)
        made._connected.update(process=os.getpid(), store=store)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        kept, left_out = without_credentials(self.options)
        if self.given is not None:
            left_out = ("store=",)
        if self.address.credential is not None or self.address.query is not None:
            left_out = (*left_out, "those of the address")
        names = tuple(dict.fromkeys((*self.left_out, *left_out)))
        return ObjectStore, (self.address, kept, None, names, self.retry_for_s, self.verify)

    @property
    def lasting_address(self) -> StoreAddress:
        """Address that stays the same while an object's content does: indices are found by it."""
        return self.address

    @property
    def answered(self) -> Set[str]:
        """Kinds of requests that succeeded in this process or its parents, by the verbs of `RangeRequest`."""
        found: set[str] = self._connected.setdefault("answered", set())
        return found

    def note_answer(self, verb: str) -> None:
        """Record a response, which ends an outage."""
        self._connected.setdefault("answered", set()).add(verb)
        self.end_outage()

    @property
    def outage(self) -> Outage:
        """Outage of the requests that fail now."""
        found: Outage = self._connected.setdefault("outage", Outage())
        return found

    def end_outage(self) -> None:
        """Release the requests that wait for the end of an outage."""
        outage: Outage | None = self._connected.pop("outage", None)  # atomic: one thread gets it
        if outage is not None:
            outage.over.set_result(None)

    @property
    def connections(self) -> int:
        """Number of times that the connection was renewed."""
        count: int = self._connected.get("renewed", 0)
        return count

    @property
    def rereads_credentials(self) -> bool:
        """True if other credentials may come: from the environment, a profile or a provider."""
        if self.given is not None:
            return getattr(self._connection(), "credential_provider", None) is not None
        static = set(without_credentials(self.options)[1]) - {"credential_provider"}
        return not (static or self.address.is_web or self.options.get("anonymous"))

    def renew(self, before: int) -> None:
        """Connect again at the next request, which rereads the environment or the profile.

        `before`: value of `connections` when the refused request began. If another request has renewed the connection
        since, keep it. For a store from the user, a copy asks its provider again: obstore caches credentials until they
        expire, if they state a time.
        """
        if before == self.connections:
            if self.given is None:
                self._connected.pop("store", None)
            else:
                self._connected["store"] = copy.copy(self._connected["store"])
            self._connected["renewed"] = before + 1

    def head(self, key: str) -> ObjectPin:
        """Return the content pin of an object. Raises FailedRequestError."""
        return pin_of_answer(self._try("found", lambda obstore, store: obstore.head(store, key)))

    def read(self, key: str, start: int, end: int, pin: ObjectPin | None) -> tuple[memoryview, ObjectPin]:
        """Return bytes `start` to `end` (fewer at the object's end), and their content pin.

        Raises FailedRequestError, with kind CHANGED if the content is not `pin`.
        """

        def request(obstore: Any, store: Any) -> tuple[memoryview, ObjectPin]:
            answer = obstore.get(store, key, options=_get_options(start, end, pin))
            found = _checked_pin(answer.meta, pin)
            return self._checked_bytes(memoryview(answer.bytes()), start, end, found), found

        answered: tuple[memoryview, ObjectPin] = self._try("read", request)
        return answered

    def write(self, key: str, path: str) -> None:
        """Write the file at `path` as an object, replacing any previous one. Raises FailedRequestError."""
        self._try("written", lambda obstore, store: obstore.put(store, key, Path(path)))

    async def read_async(
        self, key: str, start: int, end: int, pin: ObjectPin | None, begun: Callable[[], None]
    ) -> tuple[memoryview, ObjectPin]:
        """Read asynchronously, otherwise like `read`; call `begun` when the response begins."""
        try:
            answer = await self._obstore().get_async(self._connection(), key, options=_get_options(start, end, pin))
            begun()
            found = _checked_pin(answer.meta, pin)
            return self._checked_bytes(memoryview(await answer.bytes_async()), start, end, found), found
        except UsageError:
            raise
        except Exception as error:
            failure = self._explained(failure_of(error))
        raise failure

    @property
    def lists_in_order(self) -> bool:
        """True if listings are expected in the order of the keys: all but directory buckets of S3."""
        return not self.address.name.endswith("--x-s3")

    def list(self, prefix: str, resume: str | None = None, *, chunk: int = _PAGE_KEYS) -> Iterator[ListingPage]:
        """Yield the objects in a prefix, which ends at a boundary between parts of keys, in the order of their keys.

        `resume`: continue after the page with this `resume`, or after a key of a store that lists in order. `chunk`:
        objects that arrive or fail together. Pass 1 after a failure: otherwise all of a chunk has to come without one.
        Raises FailedRequestError after yielding all objects that arrived, and UsageError for a web server, which has
        no listing.
        """
        if self.address.is_web:
            raise UsageError(
                f"{self.address.show(prefix)}: a web server has no listing. Name the files, or write a brace list "
                f"such as train-{{000..009}}.tar"
            )
        listed = self._listed(prefix, resume, chunk)
        keys = [] if resume is None else [resume]
        is_ordered, failure = self.lists_in_order, None
        while failure is None:
            objects: list[ListedObject] = []
            try:
                objects.extend(islice(listed, _PAGE_KEYS))
            except FailedRequestError as error:
                failure = error
            keys = [*keys[-1:], *(each.key for each in objects)]  # in the order of their bytes, as texts are
            is_ordered = is_ordered and keys == sorted(keys)  # S3's directory buckets have no order to resume by
            if objects:  # an empty page before a failure would count as progress
                yield ListingPage(objects, keys[-1] if is_ordered else None)
            if failure is None and len(objects) < _PAGE_KEYS:
                return
        raise failure

    def _listed(self, prefix: str, resume: str | None, chunk: int) -> Iterator[ListedObject]:
        stream = None

        def following(obstore: Any, store: Any) -> Any:
            nonlocal stream
            if stream is None:  # without any request yet
                stream = obstore.list(store, prefix=prefix or None, offset=resume, chunk_size=chunk)
            return next(stream, None)

        while (found := self._try("listed", following)) is not None:
            for each in found:
                if resume is None or each["path"] > resume:  # Azure lists the key `resume` again
                    yield ListedObject(each["path"], pin_of_answer(each))

    def _checked_bytes(self, data: memoryview, start: int, end: int, pin: ObjectPin) -> memoryview:
        expected = min(end, pin.size) - start
        if len(data) != expected:
            raise FailedRequestError(FailureKind.PASSING, f"expected {expected} bytes, got {len(data)}")
        if self.verify and len(data) == pin.size and is_other_content(data, pin.etag or ""):
            raise FailedRequestError(FailureKind.OTHER, f"its bytes do not have the hash {pin.etag}", _NOT_ITS_TAG)
        self.note_answer("read")
        return data

    def _try(self, verb: str, request: Any) -> Any:
        try:
            answer = request(self._obstore(), self._connection())
            self.note_answer(verb)
            return answer
        except UsageError:
            raise
        except Exception as error:
            failure = self._explained(failure_of(error))
        raise failure  # outside the handler: obstore's error may contain credentials of the request

    def _explained(self, failure: FailedRequestError) -> FailedRequestError:
        if failure.kind not in self._hidden_from or not self.left_out:
            return failure
        names = ", ".join(self.left_out)
        return FailedRequestError(
            failure.kind,
            f"{failure.reason}; credentials given in the program ({names}) are not sent to other processes: set them "
            f"in the environment, or name a profile",
        )

    def _obstore(self) -> Any:
        return _loaded.get()

    def _connection(self) -> Any:
        """Return obstore's store in this process."""
        if self._connected.get("process") == os.getpid():
            store = self._connected.get("store")  # another thread may remove it for renewal
            if store is not None:
                return store
        self._obstore()  # a forked process loads its own
        if self.given == b"":
            raise UsageError(
                f"{self.address}: expected a store= that can be pickled, since this process was forked. Give "
                f"store_options=, or set the credentials in the environment"
            )
        try:
            store = connect(self.address, self.options) if self.given is None else pickle.loads(self.given)
        except Exception as error:
            if not self.connections:
                raise
            why = f"its credentials could not be read again ({type(error).__name__})"  # a file that is being written
            raise FailedRequestError(FailureKind.CREDENTIALS, why) from None
        self._connected.update(process=os.getpid(), store=store)
        return store


def _get_options(start: int, end: int, pin: ObjectPin | None) -> dict[str, Any]:
    options: dict[str, Any] = {"range": (start, end)}
    if pin is not None and pin.match is not None:
        options["if_match"] = pin.match
    return options


def _checked_pin(meta: Mapping[str, Any], pin: ObjectPin | None) -> ObjectPin:
    found = pin_of_answer(meta)
    if pin is not None and not pin.is_same(found):
        raise FailedRequestError(FailureKind.CHANGED, "the store holds another version")
    return found
