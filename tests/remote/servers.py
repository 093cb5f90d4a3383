"""A store on loopback that speaks what tests need of S3's and of plain HTTP, counts requests, and fails as told."""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

KEY_ID, SECRET = "AKIAPLANTEDKEY", "planted-secret-of-tests"


class Seen(NamedTuple):
    """One request that came: its method, its key without the bucket, its first and last byte, and its headers."""

    method: str
    key: str
    start: int | None
    end: int | None
    headers: Mapping[str, str]
    query: str


class Answer(NamedTuple):
    """What a fault answers instead."""

    status: int = 503
    code: str = "SlowDown"
    headers: Mapping[str, str] = {}
    act: str = ""
    """"reset", "truncate", "whole" (200 instead of 206), "stall" (until the client gives up), "half" (so after half of
    the bytes), "shifted" (the bytes one further), "html" (HTML in place of the bytes, and as many), "page" (200 and
    HTML, as of a proxy) or "close" (the connection ends after the answer)."""


Fault = Callable[[Seen], Answer | None]


class StoreServer:
    """Objects by bucket and key, the requests that came, and a fault that decides which of them fail."""

    def __init__(self, objects: Mapping[str, bytes] | None = None, *, bucket: str = "bucket") -> None:
        self.bucket = bucket
        self.objects: dict[str, bytes] = dict(objects or {})
        self.uploads: dict[str, dict[int, bytes]] = {}
        """Parts that have come, by upload and number."""
        self.requests: list[Seen] = []
        self.fault: Fault | None = None
        self.states_etags = True
        self.page = 1000
        """Keys in one page of a listing."""
        self.modified_s = 1_700_000_000.0
        """When all objects were last changed."""
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads, self._http.block_on_close = True, False  # clients keep connections open
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), name="store-server")
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._http.server_port)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """`store_options=` of S3's."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": KEY_ID,
            "secret_access_key": SECRET,
        }

    def url(self, key: str, *, user: str = "", query: str = "") -> str:
        """Return the web address of an object."""
        who = f"{user}@" if user else ""
        return f"http://{who}127.0.0.1:{self.port}/{self.bucket}/{quote(key)}" + (f"?{query}" if query else "")

    def fail_first(self, count: int, answer: Answer) -> None:
        """Answer so to the next requests for bytes, and to no more than `count` of them."""
        left = [count]

        def fault(seen: Seen) -> Answer | None:
            if left[0] == 0:
                return None
            left[0] -= 1
            return answer

        self.fault = fault

    def bytes_read(self) -> int:
        """Return how many bytes were asked for."""
        return sum(seen.end - seen.start for seen in self.requests if seen.start is not None and seen.end is not None)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def running_store(objects: Mapping[str, bytes] | None = None, *, bucket: str = "bucket") -> Iterator[StoreServer]:
    """Run a store for a while."""
    server = StoreServer(objects, bucket=bucket)
    try:
        yield server
    finally:
        server.close()


@lru_cache(maxsize=8)
def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _handler(store: StoreServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 5

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            key = unquote(parts.path).lstrip("/").partition("/")[2]
            query = parse_qs(parts.query, keep_blank_values=True)
            found = Seen(self.command, key, None, None, dict(self.headers), parts.query)
            store.requests.append(found)
            fault = store.fault(found) if store.fault is not None else None
            upload = query.get("uploadId", [""])[0]
            if fault is not None:
                self.answer(fault.status, _error(fault.code), fault.headers)
            elif "uploads" in query:
                upload = f"upload-{len(store.requests)}"
                store.uploads[upload] = {}
                self.answer(200, _upload("Initiate", f"<UploadId>{upload}</UploadId>"), {})
            elif self.command == "DELETE":
                store.uploads.pop(upload, None)
                self.answer(204, b"", {})
            elif self.command == "PUT" and upload:
                store.uploads[upload][int(query["partNumber"][0])] = data
                self.answer(200, b"", {"ETag": etag(data)})
            else:
                pieces = sorted(store.uploads.pop(upload).items()) if upload else [(1, data)]
                store.objects[key] = b"".join(piece for _, piece in pieces)
                tag = etag(store.objects[key])
                self.answer(200, _upload("Complete", f"<ETag>{escape(tag)}</ETag>") if upload else b"", {"ETag": tag})

        def do_POST(self) -> None:
            self.do_PUT()

        def do_DELETE(self) -> None:
            self.do_PUT()

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
            if f"{key}?{parts.query}" in store.objects:  # as a server of downloads by number
                key = f"{key}?{parts.query}"
            asked = self.headers.get("Range", "")
            start, _, last = asked.removeprefix("bytes=").partition("-")
            found = Seen(
                self.command,
                key,
                int(start) if start else None,
                int(last) + 1 if last else None,
                dict(self.headers),
                parts.query,
            )
            store.requests.append(found)
            fault = store.fault(found) if store.fault is not None else None
            if fault is not None and not fault.act:
                self.answer(fault.status, _error(fault.code), fault.headers)
            elif fault is not None and fault.act == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()
            elif fault is not None and fault.act == "stall":
                self.connection.recv(1)  # until the client closes it
                self.close_connection = True
            elif fault is not None and fault.act == "page":
                self.answer(200, b"<!DOCTYPE html><p>Please log in", {"Content-Type": "text/html"})
            elif bucket != store.bucket:
                self.answer(404, _error("NoSuchBucket"), {})
            elif not key:
                query = parse_qs(parts.query)
                listing = _azure_listing if "comp" in query else _listing
                act = fault.act if fault is not None else ""
                self.answer(200, listing(store, query), {"Content-Type": "application/xml"}, act)
            elif key not in store.objects:
                self.answer(404, _error("NoSuchKey"), {})
            else:
                self.give(store.objects[key], found, fault.act if fault is not None else "")

        def give(self, data: bytes, seen: Seen, act: str) -> None:
            tags = {"ETag": etag(data)} if store.states_etags else {}
            headers = {**tags, "Last-Modified": formatdate(store.modified_s, usegmt=True), "Accept-Ranges": "bytes"}
            wanted = seen.headers.get("if-match", seen.headers.get("If-Match"))
            if wanted is not None and wanted != etag(data):
                self.answer(412, _error("PreconditionFailed"), {})
            elif seen.start is None or act == "whole":
                self.answer(200, data, headers)
            elif seen.start >= len(data):
                self.answer(416, _error("InvalidRange"), {})
            else:
                end = min(len(data) if seen.end is None else seen.end, len(data))
                if act == "shifted":
                    seen = seen._replace(start=seen.start + 1)
                    end = min(end + 1, len(data))
                headers["Content-Range"] = f"bytes {seen.start}-{end - 1}/{len(data)}"
                self.answer(206, data[seen.start : end], headers, act)

        def answer(self, status: int, body: bytes, headers: Mapping[str, str], act: str = "") -> None:
            lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            if self.command == "HEAD":
                body = b""
            elif act in ("truncate", "half"):
                body = body[: len(body) // 2]
            elif act == "html":
                body = b"<!DOCTYPE html><p>Please log in".ljust(len(body))[: len(body)]
            self.wfile.write("\r\n".join([*lines, "", ""]).encode() + body)
            if act == "half":
                self.connection.recv(1)  # until the client closes it
            self.close_connection = self.close_connection or bool(act)

    return Handler


def _error(code: str) -> bytes:
    """Return what S3 answers: it repeats who asked. Without a code, as to a HEAD, there is no body."""
    if not code:
        return b""
    return f"<Error><Code>{code}</Code><Message>m</Message><AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId></Error>".encode()


def _upload(what: str, content: str) -> bytes:
    return f"<{what}MultipartUploadResult>{content}</{what}MultipartUploadResult>".encode()


def _page(store: StoreServer, prefix: str, after: str, *, first: str = "") -> tuple[list[str], bool]:
    """Return one page of the keys below a prefix, and whether others follow. As on Azure, `first` itself is listed."""
    keys = [
        key
        for key in sorted(store.objects, key=str.encode)
        if key.startswith(prefix) and key.encode() > after.encode() and key.encode() >= first.encode()
    ]
    return keys[: store.page], len(keys) > store.page


def _listing(store: StoreServer, query: Mapping[str, list[str]]) -> bytes:
    prefix, token = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
    after = max(token, query.get("start-after", [""])[0], key=str.encode)
    page, is_cut = _page(store, prefix, after)
    more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if is_cut else ""
    modified = datetime.fromtimestamp(store.modified_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.123Z")
    tags = [f"<ETag>{escape(etag(store.objects[key]))}</ETag>" if store.states_etags else "" for key in page]
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified>{tag}"
        f"<Size>{len(store.objects[key])}</Size></Contents>"
        for key, tag in zip(page, tags, strict=True)
    )
    state = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated><KeyCount>{len(page)}</KeyCount>"
    return f'<?xml version="1.0"?><ListBucketResult>{state}{more}{entries}</ListBucketResult>'.encode()


def _azure_listing(store: StoreServer, query: Mapping[str, list[str]]) -> bytes:
    prefix, after = query.get("prefix", [""])[0], query.get("marker", [""])[0]
    page, is_cut = _page(store, prefix, after, first=query.get("startFrom", [""])[0])
    blobs = "".join(
        f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{formatdate(1_700_000_000, usegmt=True)}"
        f"</Last-Modified><Content-Length>{len(store.objects[key])}</Content-Length>"
        f"<Content-Type>x/y</Content-Type><Etag>{escape(etag(store.objects[key]))}</Etag></Properties></Blob>"
        for key in page
    )
    more = f"<NextMarker>{escape(page[-1])}</NextMarker>" if is_cut else "<NextMarker/>"
    return f'<?xml version="1.0"?><EnumerationResults><Blobs>{blobs}</Blobs>{more}</EnumerationResults>'.encode()
