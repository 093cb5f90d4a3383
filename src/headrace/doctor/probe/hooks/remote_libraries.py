"""Hooks on libraries that read from object stores and web servers.

A stage is a call that blocks the thread: of boto3, fsspec filesystems, requests, urllib3, urllib, and
reads of webdataset pipes. Requests are counted one level below, where each is made: in http.client, under urllib3 and
so botocore and requests; in aiohttp, under fsspec filesystems; and at the start of a pipe's process. Nothing
is imported and no data is read: sizes come from answer headers.
"""

from __future__ import annotations

import functools
import re
import shlex
import time
from typing import Any, Callable

from ..batch_production import NAMED, OTHERS, BatchRecorder, place_of
from ..patches import Fault, Function, HookGuard
from ..stages import CallTimer, timed_call
from .file_libraries import SMALL_BYTES, TimedCall, timed_reads

REMOTE = "remote"
REMOTE_CALLS: dict[str, list[TimedCall]] = {
    "s3transfer.futures": [("TransferFuture.result", REMOTE, "boto3 transfer")],
    "http.client": [("HTTPResponse.read", REMOTE, "http.client", timed_reads)],
    "urllib3.response": [("HTTPResponse.read", REMOTE, "urllib3", timed_reads)],
    "botocore.response": [("StreamingBody.read", REMOTE, "boto3 body", timed_reads)],
    "requests.sessions": [("Session.send", REMOTE, "requests")],
    "urllib.request": [("OpenerDirector.open", REMOTE, "urllib")],
    "urllib3.connectionpool": [("HTTPConnectionPool.urlopen", REMOTE, "urllib3")],
    "huggingface_hub.hf_file_system": [
        ("HfFileSystemFile._fetch_range", REMOTE, "HfFileSystem"),
        ("HfFileSystemStreamFile.read", REMOTE, "HfFileSystem"),
    ],
    "huggingface_hub.file_download": [("hf_hub_download", REMOTE, "hf_hub_download")],
}
"""Calls that are stages, by the module that defines them."""
ASKED = "_headrace_asked"
"""Attribute of a connection: method, path and time of its last request."""
PIPE = "_headrace_pipe"
"""Attribute of a webdataset pipe: store, start and stage."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"']+")


class RequestCounter:
    """Counter of requests. Every public method is guarded and never raises."""

    def __init__(self, timer: CallTimer, batches: BatchRecorder, fault: Fault) -> None:
        self.timer = timer
        self.stages = timer.stages
        self._reads = batches.remote
        guard = HookGuard(fault, "remote reads")
        self.ask, self.answer, self.count = guard(self._ask), guard(self._answer), guard(self._count)
        self.begin_pipe, self.read_pipe = guard(self._begin_pipe), guard(self._read_pipe)

    def timed(self, label: str, original: Function) -> Function:
        """Return a call that counts as the stage of a label, which only its arguments tell."""
        return timed_call(self.stages, self.timer.stage(REMOTE, label), original)

    # http.client.

    def _ask(self, connection: Any, method: Any, url: Any) -> None:
        vars(connection)[ASKED] = (method, str(url), time.monotonic_ns())

    def _answer(self, connection: Any, response: Any) -> None:
        method, url, begun = vars(connection).pop(ASKED)
        if "://" not in url:  # the form of a request to a proxy
            scheme = "https" if "HTTPS" in type(connection).__name__ else "http"
            url = f"{scheme}://{connection.host}{url}"
        self._count(method, url, begun, response.status, response.headers)

    def _count(self, method: Any, url: Any, begun_ns: int, status: int, headers: Any) -> None:
        size = headers.get("Content-Length") if method == "GET" else None
        bytes_ = int(size) if size and size.isdigit() else 0
        self._reads.answered(place_of(url), begun_ns, bytes_, failed=status >= 400)

    # webdataset pipes.

    def _begin_pipe(self, pipe: Any, begun_ns: int, command: Any) -> None:
        text = command if isinstance(command, str) else shlex.join(map(str, command))
        found = _ADDRESS.search(text)
        if found is None:  # `cat` of a file
            vars(pipe)[PIPE] = (None, 0, self.timer.stage("read", "webdataset pipe"))
            return
        address = found[0].partition("?")[0]
        scheme, _, rest = address.partition("://")
        is_web = scheme in ("http", "https")
        place = place_of(address) if is_web else OTHERS if "@" in rest else f"{scheme}://{rest.partition('/')[0]}"
        vars(pipe)[PIPE] = (place, begun_ns, self.timer.stage(REMOTE, "webdataset pipe"))

    def _read_pipe(self, pipe: Any, data: Any) -> None:
        place, begun_ns, stage = vars(pipe)[PIPE]
        size = len(data)
        if place is None:
            return
        if begun_ns:
            self._reads.answered(place, begun_ns, size)
            vars(pipe)[PIPE] = (place, 0, stage)
        else:
            self._reads.more(place, size)


def install_http(counter: RequestCounter, client: Any) -> None:
    """Hook http.client: the start of each answer."""

    def putrequest(original: Function, connection: Any, method: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
        if counter.stages.is_counting:
            counter.ask(connection, method, url)
        return original(connection, method, url, *args, **kwargs)

    def getresponse(original: Function, connection: Any, *args: Any, **kwargs: Any) -> Any:
        response = original(connection, *args, **kwargs)
        if ASKED in vars(connection):
            counter.answer(connection, response)
        return response

    patches = counter.timer.patches
    patches.around(client.HTTPConnection, "putrequest", putrequest)
    patches.around(client.HTTPConnection, "getresponse", getresponse)


def install_botocore(counter: RequestCounter, client: Any) -> None:
    """Hook calls of boto3 clients by operation. Their parameters name the bucket."""

    def call(original: Function, its_client: Any, operation: Any, parameters: Any) -> Any:
        if not counter.stages.is_counting:
            return original(its_client, operation, parameters)
        token = NAMED.set(_bucket(parameters))
        try:
            return counter.timed(f"boto3 {operation}", original)(its_client, operation, parameters)
        finally:
            NAMED.reset(token)

    counter.timer.patches.around(client.BaseClient, "_make_api_call", call)


def install_fsspec(counter: RequestCounter, asyn: Any) -> None:
    """Hook the call in which fsspec filesystems (S3, GCS, Azure, HTTP, …) wait for their request thread."""

    def sync(original: Function, loop: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        if not counter.stages.is_counting:
            return original(loop, function, *args, **kwargs)
        owner = getattr(function, "__self__", args[0] if args else None)
        label = f"fsspec {type(getattr(owner, 'fs', owner)).__name__}"
        return counter.timed(label, original)(loop, function, *args, **kwargs)

    counter.timer.patches.around(asyn, "sync", sync)


def install_aiohttp(counter: RequestCounter, client: Any) -> None:
    """Count aiohttp requests, in any thread."""

    def make(original: Function) -> Function:
        @functools.wraps(original)
        async def request(session: Any, method: Any, url: Any, **kwargs: Any) -> Any:
            begun = time.monotonic_ns()
            response = await original(session, method, url, **kwargs)
            if counter.stages.is_counting:
                counter.count(method, url, begun, response.status, response.headers)
            return response

        return request

    counter.timer.patches.replace(client.ClientSession, "_request", make)


def install_pipes(counter: RequestCounter, gopen: Any) -> None:
    """Hook webdataset pipes: the started process counts as a request, and time waiting in reads as a stage."""

    def begin(original: Function, pipe: Any, *args: Any, **kwargs: Any) -> None:
        begun = time.monotonic_ns()
        original(pipe, *args, **kwargs)
        counter.begin_pipe(pipe, begun, args[0] if args else "")

    def read(original: Function, pipe: Any, *size: Any) -> Any:
        known = vars(pipe).get(PIPE)
        if known is None or not counter.stages.is_counting:
            return original(pipe, *size)
        is_small = bool(size) and type(size[0]) is int and 0 <= size[0] < SMALL_BYTES
        if is_small and not known[1]:  # the first read waits for the answer, and tarfile reads 512 bytes
            data = original(pipe, *size)
        else:
            data = timed_call(counter.stages, known[-1], original)(pipe, *size)
        counter.read_pipe(pipe, data)
        return data

    counter.timer.patches.around(gopen.Pipe, "__init__", begin)
    counter.timer.patches.around(gopen.Pipe, "read", read)


def _bucket(parameters: Any) -> str | None:
    bucket = parameters.get("Bucket") if isinstance(parameters, dict) else None
    return f"s3://{bucket}" if isinstance(bucket, str) and "@" not in bucket else None


REMOTE_HOOKS: list[tuple[str, Callable[[RequestCounter, Any], None]]] = [
    ("http.client", install_http),
    ("botocore.client", install_botocore),
    ("fsspec.asyn", install_fsspec),
    ("aiohttp.client", install_aiohttp),
    ("webdataset.gopen", install_pipes),
]
"""Installers of hooks on libraries that make requests, by module."""
