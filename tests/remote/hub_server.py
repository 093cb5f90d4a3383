"""A Hub of datasets on loopback, with what huggingface_hub asks of it, and a host of its own for large files' bytes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

from servers import Answer, Seen, StoreServer

TOKEN = "hf_planted-token-of-tests"
_LFS_BYTES = 1000
"""Larger files lie on the other host, as those that git-lfs or Xet have."""
_PAGE = 3


@dataclass
class Repository:
    """Dataset: the files of each commit, and the commit that each revision is."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    card: Mapping[str, Any] | None = None
    private: bool = False
    gated: bool = False

    def commit(self, files: Mapping[str, bytes], revision: str = "main") -> str:
        """Add a commit, and let a revision be it."""
        sha = hashlib.sha1(repr((revision, len(self.commits))).encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.revisions[revision] = sha
        return sha


class Asked(NamedTuple):
    method: str
    path: str
    """Without percent signs."""
    query: str
    headers: Mapping[str, str]


class HubServer:
    """Datasets by name. Bytes of large files are given for addresses signed since the last `expire`."""

    def __init__(self, files: StoreServer) -> None:
        self.datasets: dict[str, Repository] = {}
        self.asked: list[Asked] = []
        self.answers: list[int] = []
        """Statuses of the next answers; 200: the answer is what it should be."""
        self.files = files
        self.signature = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads, self._http.block_on_close = True, False  # clients keep connections open
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), name="hub-server")
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def clear(self) -> None:
        self.datasets.clear()
        self.asked.clear()
        self.answers.clear()
        self.files.fault = self._unsigned

    def expire(self) -> None:
        """Take no address any more that was signed before."""
        self.signature += 1

    def _unsigned(self, seen: Seen) -> Answer | None:
        return None if seen.query == f"sig=%2B{self.signature}" else Answer(403, "AccessDenied")

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def running_hub(files: StoreServer) -> Iterator[HubServer]:
    server = HubServer(files)
    try:
        yield server
    finally:
        server.close()


class _RefusedError(Exception):
    def __init__(self, status: int, code: str = "") -> None:
        super().__init__(status)
        self.status, self.code = status, code


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 5

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            path = [unquote(part) for part in parts.path.split("/")[1:]]
            hub.asked.append(Asked(self.command, "/".join(path), parts.query, dict(self.headers)))
            try:
                if hub.answers and (status := hub.answers.pop(0)) != 200:
                    raise _RefusedError(status)
                if path[:2] == ["api", "datasets"]:
                    self.about(path[2:], parse_qs(parts.query))
                elif path[:2] == ["api", "resolve-cache"]:
                    at = next(at for at, part in enumerate(path) if len(part) == 40)
                    self.give(self.dataset(path[3:at]).commits[path[at]]["/".join(path[at + 1 :])])
                else:
                    self.resolve(path[1:])
            except _RefusedError as refused:
                self.answer(refused.status, b"{}", {"X-Error-Code": refused.code} if refused.code else {})

        def dataset(self, name: list[str]) -> Repository:
            found = hub.datasets.get("/".join(name))
            who = self.headers.get("authorization")
            if who not in (None, f"Bearer {TOKEN}"):
                raise _RefusedError(401)
            if found is None or (found.private and who is None):
                raise _RefusedError(401 if who is None else 404, "RepoNotFound")
            if found.gated and who is None:
                raise _RefusedError(401, "GatedRepo")
            return found

        def split(self, path: list[str], word: str) -> tuple[list[str], list[str]]:
            at = path.index(word) if word in path else len(path)
            return path[:at], path[at + 1 :]

        def commit(self, found: Repository, revision: str) -> str:
            sha = found.revisions.get(revision, revision)
            if sha not in found.commits:
                raise _RefusedError(404, "RevisionNotFound")
            return sha

        def about(self, path: list[str], query: Mapping[str, list[str]]) -> None:
            if "tree" in path:
                name, (revision, *below) = self.split(path, "tree")
                found = self.dataset(name)
                self.tree(found.commits[self.commit(found, revision)], "/".join(below), query)
                return
            name, revisions = self.split(path, "revision")
            found = self.dataset(name)
            sha = self.commit(found, revisions[0] if revisions else "main")
            about = {"id": "/".join(name), "sha": sha, "siblings": [], "cardData": found.card, "tags": []}
            self.answer(200, json.dumps(about).encode(), {"Content-Type": "application/json"})

        def tree(self, files: Mapping[str, bytes], below: str, query: Mapping[str, list[str]]) -> None:
            names = sorted(name for name in files if not below or name.startswith(f"{below}/"))
            if not names:
                raise _RefusedError(404, "EntryNotFound")
            folders = {name.rpartition("/")[0] for name in names} - {""}
            entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": name} for name in sorted(folders)]
            entries += [_entry(name, files[name]) for name in names]
            first = int(query.get("cursor", ["0"])[0])
            more = {}
            if first + _PAGE < len(entries):
                url = f"{hub.endpoint}{urlsplit(self.path).path}?recursive=True&cursor={first + _PAGE}"
                more = {"Link": f'<{url}>; rel="next"'}
            self.answer(200, json.dumps(entries[first : first + _PAGE]).encode(), more)

        def resolve(self, path: list[str]) -> None:
            name, (revision, *key) = self.split(path, "resolve")
            found = self.dataset(name)
            sha = self.commit(found, revision)
            data = found.commits[sha].get("/".join(key))
            if data is None:
                raise _RefusedError(404, "EntryNotFound")
            headers = {"X-Repo-Commit": sha, "ETag": f'"{_blob(data)}"'}
            if len(data) <= _LFS_BYTES:
                inner = quote("/".join(key), safe="")
                place = f"/api/resolve-cache/datasets/{'/'.join(name)}/{sha}/{inner}?etag=%22x%22"
                self.answer(307, b"", headers | {"Location": place})
                return
            content = hashlib.sha256(data).hexdigest()
            hub.files.objects[content] = data
            headers |= {"X-Linked-Etag": f'"{content}"', "X-Linked-Size": str(len(data))}
            headers["Location"] = hub.files.url(content, query=f"sig=%2B{hub.signature}")
            self.answer(302, b"", headers)

        def give(self, data: bytes) -> None:
            start, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            headers = {"ETag": f'"{_blob(data)}"'}
            if not start:
                self.answer(200, data, headers)
            elif int(start) >= len(data):
                self.answer(416, b"", {})
            else:
                end = min(int(last) + 1, len(data))
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
                self.answer(206, data[int(start) : end], headers)

        def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            self.wfile.write("\r\n".join([*lines, "", ""]).encode() + (b"" if self.command == "HEAD" else body))

    return Handler


def _entry(name: str, data: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": _blob(data), "size": len(data), "path": name}
    if len(data) > _LFS_BYTES:
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry
