"""Datasets of the Hugging Face Hub as stores: `hf://datasets/OWNER/NAME@REVISION/path`.

huggingface_hub finds the endpoint, the token and the files. A revision is resolved to a commit once, so that its files
never change. The Hub redirects most reads to another host, with an address that is signed for one file and expires.
Once that host refuses the address, request another.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, NoReturn
from urllib.parse import quote, urlsplit

from headrace.errors import UsageError
from headrace.stores.addresses import HUB_SCHEME, StoreAddress
from headrace.stores.connections import without_credentials
from headrace.stores.object_content import ListedObject, ListingPage, ObjectPin
from headrace.stores.object_store import ObjectStore
from headrace.stores.request_errors import FailedRequestError, FailureKind, kind_of_status

_TIMEOUT_S = 20.0
"""Deadline of the Hub's own responses; responses with bytes have a store's deadline."""
_MOST_CONNECTIONS = 128
"""Signed addresses with their own connection, a megabyte each; the least recently used are closed."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TAKES = ("endpoint", "token", "anonymous", "client_options")
_LOG_IN = "Log in by `hf auth login`, or set HF_TOKEN, with a token that may read it"


class _Place(NamedTuple):
    """Location of a file: a web server's store, the key there, and the content pin."""

    web: ObjectStore
    key: str
    pin: ObjectPin


class _Places:
    """Locations of files by path, each requested once, even by concurrent callers."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._places: dict[str, Future[_Place]] = {}
        self._connected: dict[str, ObjectStore] = {}

    def claim(self, key: str) -> tuple[Future[_Place], bool]:
        """Return the future location of a file, and True if the caller has to find it."""
        with self._lock:
            found = self._places.get(key)
            if found is None:
                made: Future[_Place] = Future()
                self._places[key] = made
                return made, True
            return found, False

    def use(self, key: str, place: _Place) -> None:
        """Record the use of a location, and close the least recently used connection if there are too many."""
        if place.key:  # read from the Hub itself, over one connection for all files
            return
        with self._lock:
            self._connected.pop(key, None)
            self._connected[key] = place.web
            if len(self._connected) > _MOST_CONNECTIONS:
                closed = self._connected.pop(next(iter(self._connected)))
                closed.renew(closed.connections)

    def forget(self, key: str, of: Future[_Place]) -> None:
        with self._lock:
            if self._places.get(key) is of:
                del self._places[key]


@dataclass(frozen=True, eq=False)
class HubStore(ObjectStore):
    """Dataset repository with the commit in its address once `resolved`; options as in `store_options=`."""

    _hidden_from: ClassVar[tuple[FailureKind, ...]] = (FailureKind.CREDENTIALS, FailureKind.MISSING)

    @classmethod
    def of(
        cls,
        address: StoreAddress,
        options: Mapping[str, Any] | None,
        store: Any = None,
        *,
        retry_for_s: float | None = None,
        verify: bool = False,
    ) -> HubStore:
        """Check the arguments of `open`. Raises UsageError."""
        if store is not None:
            raise UsageError(f"store: expected none for {address}, which huggingface_hub finds. Leave it out")
        unknown = next((name for name in options or {} if name not in _TAKES), None)
        if unknown is not None:
            raise UsageError(f"store_options: expected {', '.join(_TAKES)} for {address}, got {unknown!r}")
        return cls(address, dict(options or {}), retry_for_s=retry_for_s, verify=verify)

    def __reduce__(self) -> tuple[Any, ...]:
        kept, left_out = without_credentials(self.options)
        names = tuple(dict.fromkeys((*self.left_out, *left_out)))
        return HubStore, (self.address, kept, None, names, self.retry_for_s, self.verify)

    @property
    def repository(self) -> str:
        """`OWNER/NAME`, or only `NAME` for the oldest datasets."""
        return self.address.name.removeprefix("datasets/").partition("@")[0]

    @property
    def revision(self) -> str | None:
        """Commit once resolved, else the revision that the user gave; None for the main branch."""
        return self.address.name.partition("@")[2] or None

    @property
    def lasting_address(self) -> StoreAddress:
        """Address without the commit, since commits share most files."""
        return StoreAddress(HUB_SCHEME, f"datasets/{self.repository}")

    @property
    def is_resolved(self) -> bool:
        return _COMMIT.fullmatch(self.revision or "") is not None

    def resolved(self) -> HubStore:
        """Return the repository at the current commit of its revision. Raises FailedRequestError."""
        info = self._ask(
            lambda hub: self._api(hub).dataset_info(self.repository, revision=self.revision, timeout=_TIMEOUT_S)
        )
        address = StoreAddress(HUB_SCHEME, f"datasets/{info.id}@{info.sha}")
        return replace(self, address=address, _connected={"answered": {"found"}})

    def renew(self, before: int) -> None:
        """Do nothing: each request reads the token, and refused addresses are forgotten."""

    def head(self, key: str) -> ObjectPin:
        """Return the content pin of a file. Raises FailedRequestError."""
        return self._place(key)[0].pin

    def read(self, key: str, start: int, end: int, pin: ObjectPin | None) -> tuple[memoryview, ObjectPin]:
        """Return bytes `start` to `end` (fewer at the file's end), and their content pin.

        Raises FailedRequestError, with kind CHANGED if the content is not `pin`.
        """
        place, claimed = self._place(key)
        try:
            data, found = place.web.read(place.key, start, end, None)
        except FailedRequestError as failure:
            self._refused(key, claimed, failure)
        content = _checked(place, found, pin)
        return self._checked_bytes(data, start, end, content), content

    def write(self, key: str, path: str) -> NoReturn:
        """Raise UsageError: a commit is immutable."""
        raise UsageError(
            f"{self.address.show(key)}: expected a file or a store to write to, got a commit of the Hub. Write a local "
            f"file, and upload it with huggingface_hub"
        )

    async def read_async(
        self, key: str, start: int, end: int, pin: ObjectPin | None, begun: Callable[[], None]
    ) -> tuple[memoryview, ObjectPin]:
        """Read asynchronously, otherwise like `read`."""
        place, claimed = await self._place_async(key)
        try:
            data, found = await place.web.read_async(place.key, start, end, None, begun)
        except FailedRequestError as failure:
            self._refused(key, claimed, failure)
        content = _checked(place, found, pin)
        return self._checked_bytes(data, start, end, content), content

    @property
    def lists_in_order(self) -> bool:
        return False

    def list(self, prefix: str, resume: str | None = None, *, chunk: int = 0) -> Iterator[ListingPage]:
        """Yield the files in a folder, with their sizes and content hashes. Raises FailedRequestError.

        `resume`: continue after the page with this `resume`.
        """
        below = f"/{quote(prefix.rstrip('/'), safe='')}" if prefix else ""
        first = f"/api/datasets/{self.repository}/tree/{quote(self.revision or 'main', safe='')}{below}"
        first = f"{first}?recursive=True&expand=False"
        url: str | None = first if resume is None else resume
        while url is not None:
            try:
                page = self._ask(lambda hub, url=url: self._page(hub, url))
            except FailedRequestError as failure:
                if failure.kind is FailureKind.MISSING and prefix and url == first:
                    return
                raise
            self.note_answer("listed")
            yield page
            url = page.resume

    def _page(self, hub: Any, page: str) -> ListingPage:
        # HfApi.list_repo_tree has no deadline, and its own retries.
        url = page if "://" in page else f"{self._endpoint(hub)}{page}"
        answer = hub.utils.get_session().get(url, headers=self._headers(hub), timeout=_TIMEOUT_S)
        hub.utils.hf_raise_for_status(answer)
        files = [hub.hf_api.RepoFile(**each) for each in answer.json() if each["type"] == "file"]
        listed = [ListedObject(file.path, ObjectPin(file.size, _content(file))) for file in files]
        return ListingPage(listed, answer.links.get("next", {}).get("url"))

    def _places(self) -> _Places:
        places = self._connected.get("places")
        if places is None or places.process != os.getpid():  # a thread lost in a fork may hold a claim
            places = self._connected["places"] = _Places()
        return places

    def _place(self, key: str) -> tuple[_Place, Future[_Place]]:
        places = self._places()
        claimed, is_ours = places.claim(key)
        if is_ours:
            self._find(key, claimed)
        place = claimed.result()
        places.use(key, place)
        return place, claimed

    async def _place_async(self, key: str) -> tuple[_Place, Future[_Place]]:
        places = self._places()
        claimed, is_ours = places.claim(key)
        if is_ours:
            # Shielded: cancelling this caller must not cancel the search for others that wait for the claim.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._find, key, claimed))
        place = await asyncio.shield(asyncio.wrap_future(claimed))
        places.use(key, place)
        return place, claimed

    def _find(self, key: str, claimed: Future[_Place]) -> None:
        try:
            claimed.set_result(self._ask(lambda hub: self._found(hub, key)))
        except BaseException as error:
            self._places().forget(key, claimed)
            claimed.set_exception(error)

    def _found(self, hub: Any, key: str) -> _Place:
        endpoint = self._endpoint(hub)
        url = hub.hf_hub_url(self.repository, key, repo_type="dataset", revision=self.revision, endpoint=endpoint)
        about = hub.get_hf_file_metadata(url, token=self._token, timeout=_TIMEOUT_S, endpoint=endpoint)
        if about.size is None or about.etag is None:
            raise FailedRequestError(FailureKind.OTHER, "the Hub states no size and hash of it")
        pin = ObjectPin(about.size, about.etag)
        there, here = urlsplit(about.location), urlsplit(endpoint)
        if (there.scheme, there.netloc) == (here.scheme, here.netloc):
            return _Place(self._hub_store(hub, endpoint), key, pin)
        signed = StoreAddress(there.scheme, there.netloc, None, there.query or None, there.path.lstrip("/"))
        return _Place(ObjectStore(signed, self._client_options({})), "", pin)

    def _hub_store(self, hub: Any, endpoint: str) -> ObjectStore:
        """Return the store for files on the Hub itself; the token is sent nowhere else."""
        store = self._connected.get("hub")
        if store is None:
            where = urlsplit(endpoint)
            folder = f"datasets/{self.repository}/resolve/{quote(self.revision or 'main', safe='')}"
            path = f"{where.path.strip('/')}/{folder}".lstrip("/")
            address = StoreAddress(where.scheme, where.netloc, None, None, path)
            headers = {name: text for name, text in self._headers(hub).items() if name.lower() == "authorization"}
            store = self._connected["hub"] = ObjectStore(address, self._client_options(headers))
        found: ObjectStore = store
        return found

    def _client_options(self, headers: Mapping[str, str]) -> dict[str, Any]:
        given = dict(self.options.get("client_options", {}))
        return {"client_options": {**given, "default_headers": {**given.get("default_headers", {}), **headers}}}

    def _refused(self, key: str, claimed: Future[_Place], failure: FailedRequestError) -> NoReturn:
        """Forget an address that is refused, so that the next attempt requests another."""
        if failure.kind is FailureKind.CREDENTIALS:
            self._places().forget(key, claimed)
            self._connected.pop("hub", None)
        raise failure

    @property
    def _token(self) -> str | bool | None:
        return False if self.options.get("anonymous") else self.options.get("token")

    def _endpoint(self, hub: Any) -> str:
        return str(self.options.get("endpoint") or hub.constants.ENDPOINT).rstrip("/")

    def _api(self, hub: Any) -> Any:
        return hub.HfApi(endpoint=self._endpoint(hub), token=self._token)

    def _headers(self, hub: Any) -> dict[str, str]:
        headers: dict[str, str] = hub.utils.build_hf_headers(token=self._token)
        return headers

    def _ask(self, request: Any) -> Any:
        hub = _library()
        try:
            answer = request(hub)
            self.note_answer("found")
            return answer
        except (UsageError, FailedRequestError):
            raise
        except Exception as error:
            failure = self._explained(_failure(hub, error))
        raise failure  # outside the handler: the library's error contains the request, with the token in its headers


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.hf_api
        import huggingface_hub.utils
    except ImportError as error:
        raise UsageError(
            "hf:// addresses need huggingface_hub, which is not installed. Install it: pip install 'headrace[hub]'"
        ) from error
    return huggingface_hub


def _content(file: Any) -> str:
    """Return the hash in a file's ETag on the Hub: SHA-256 for a file in LFS, else git's blob id."""
    return str(file.blob_id if file.lfs is None else file.lfs.sha256)


def _checked(place: _Place, found: ObjectPin, pin: ObjectPin | None) -> ObjectPin:
    """Return the content pin of a file. Raises FailedRequestError if it is not the one that the Hub stated."""
    if found.size != place.pin.size or (pin is not None and not pin.is_same(place.pin)):
        raise FailedRequestError(FailureKind.CHANGED, "another content lies there")
    return place.pin


def _failure(hub: Any, error: Exception) -> FailedRequestError:
    """Return the failure for an error of huggingface_hub or its HTTP client, without any of the error's text."""
    errors, passing = hub.errors, FailureKind.PASSING
    if isinstance(error, errors.GatedRepoError):
        reason = "the dataset is gated: accept its terms on its page"
        return FailedRequestError(FailureKind.CREDENTIALS, reason, _LOG_IN)
    if isinstance(error, errors.RevisionNotFoundError):
        return FailedRequestError(FailureKind.MISSING, "the dataset has no such revision")
    if isinstance(error, errors.EntryNotFoundError):
        return FailedRequestError(FailureKind.MISSING, "the dataset has no such file")
    if isinstance(error, errors.RepositoryNotFoundError):
        advice = f"Check the name. {_LOG_IN}"
        return FailedRequestError(FailureKind.MISSING, "there is no such dataset, or it is private", advice)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return FailedRequestError(FailureKind.LOCAL, "HF_HUB_OFFLINE is set", "Unset it: the files are not here")
    if isinstance(error, errors.HFValidationError):
        return FailedRequestError(FailureKind.LOCAL, "no name of a dataset", "Write hf://datasets/OWNER/NAME")
    answer = getattr(error, "response", None)
    if answer is not None:
        kind = kind_of_status(int(answer.status_code))
        log_in = _LOG_IN if kind is FailureKind.CREDENTIALS else None
        return FailedRequestError(kind, f"the Hub answers {answer.status_code}", log_in)
    name = type(error).__name__
    if "Timeout" in name:
        return FailedRequestError(passing, "no complete answer in time")
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "requests"):
        return FailedRequestError(passing, "no connection" if "Connect" in name else "the connection ended early")
    return FailedRequestError(FailureKind.OTHER, f"huggingface_hub reports {name}")
