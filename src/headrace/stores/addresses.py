"""Addresses of objects in stores: parsed, and printed without credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from headrace.errors import UsageError

CLOUD_SCHEMES = {
    "s3": "S3",
    "s3a": "S3",
    "gs": "Google Cloud Storage",
    "az": "Azure",
    "abfs": "Azure",
    "abfss": "Azure",
}
"""Schemes of stores that can be listed, with the stores' names."""
WEB_SCHEMES = ("http", "https")
HUB_SCHEME = "hf"
_KNOWN = (*CLOUD_SCHEMES, *WEB_SCHEMES, HUB_SCHEME)
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_EXPECTED = "an address such as s3://bucket/shards/000.tar, gs://…, az://container/…, hf://datasets/OWNER/NAME/… or https://host/…"


def is_remote(text: object) -> bool:
    """Return True if a text is the address of something in a supported store or on a web server."""
    found = _SCHEME.match(text) if isinstance(text, str) else None
    return found is not None and found["scheme"].lower() in _KNOWN


@dataclass(frozen=True)
class StoreAddress:
    """Bucket, container or web server to connect to."""

    scheme: str
    name: str
    """Bucket or container; for `abfs` also the account (`container@account.dfs.core.windows.net`); for the web, host
    and port; for the Hub, `datasets/OWNER/NAME@REVISION`."""
    credential: str | None = field(default=None, repr=False)
    """`user:password` of a web address; never shown, and not sent to other processes."""
    query: str | None = field(default=None, repr=False)
    """Query of a web address, as in signed addresses; never shown, and not sent to other processes."""
    path: str = field(default="", repr=False)
    """Path of a web address that prefixes the keys, as its server wrote it; not sent to other processes."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreAddress, (self.scheme, self.name)

    @property
    def is_web(self) -> bool:
        """True for a web server, which cannot be listed."""
        return self.scheme in WEB_SCHEMES

    @property
    def connection(self) -> str:
        """Address to open a store with: it includes the query, but not the user."""
        query = "" if self.query is None else f"?{self.query}"
        return f"{self.scheme}://{self.name}/{self.path}{query}" if self.is_web else f"{self.scheme}://{self.name}"

    def show(self, key: str) -> str:
        """Return the address of a key for messages, without credentials; parsing it yields the same object."""
        return f"{self}/{quote(key, safe=_SHOWN_AS_THEY_ARE) if self.is_web else key}"


_SHOWN_AS_THEY_ARE = "/!$&'()*+,;=:@~"


@dataclass(frozen=True)
class ObjectAddress:
    """Address of one object, or of a prefix or pattern of keys."""

    store: StoreAddress
    key: str
    """Key as in the store, with percent escapes decoded."""

    def __str__(self) -> str:
        return self.store.show(self.key)

    def at(self, key: str) -> ObjectAddress:
        """Return the address of another key in the same store."""
        return replace(self, key=key)


def parse_address(text: str) -> ObjectAddress:
    """Parse an address. Raises UsageError, without any credentials in its message."""
    found = _SCHEME.match(text)
    scheme = found["scheme"].lower() if found is not None else ""
    if found is None or scheme not in _KNOWN:
        raise UsageError(f"expected {_EXPECTED}, got {show_address(text)!r}")
    if scheme == HUB_SCHEME:
        address = _parse_hub(text, text[found.end() :])
    elif scheme in CLOUD_SCHEMES:  # keys may contain any character, even ? and #
        name, _, key = text[found.end() :].partition("/")
        address = ObjectAddress(StoreAddress("s3" if scheme == "s3a" else scheme, name), key)
        if "@" in name and scheme not in ("abfs", "abfss"):
            shown = f"{scheme}://{name.rpartition('@')[2]}/{key}"
            raise UsageError(f"{shown}: expected a bucket, got credentials before it. Give them as store_options=")
    else:
        parts = urlsplit(text)
        credential, _, host = parts.netloc.rpartition("@")
        if parts.fragment:  # even a # that is part of the name
            raise UsageError(
                f"{show_address(text)}: expected an address without a fragment. Write a # in a name as %23"
            )
        store = StoreAddress(scheme, host, credential or None, parts.query or None)
        address = ObjectAddress(store, unquote(parts.path).lstrip("/"))
    if not address.store.name:
        raise UsageError(f"expected {_EXPECTED}, got {show_address(text)!r}: it names no bucket or host")
    odd = next((part for part in address.key.rstrip("/").split("/") if part in ("", ".", "..")), None)
    if odd is not None and address.key:
        raise UsageError(f"{address}: expected a key whose parts have names, got one with {odd!r} between slashes")
    return address


_HUB_PATH = re.compile(
    r"datasets/(?P<name>[^/@]+(?:/[^/@]+)?)(?:@(?P<revision>refs/convert/[\w.-]+|refs/pr/\d+|[^/]+))?(?:/(?P<key>.*))?",
    re.DOTALL,
)
_PARQUET = {"~parquet": "refs/convert/parquet"}


def _parse_hub(text: str, path: str) -> ObjectAddress:
    """Return the repository and the file in it; only the Hub knows if a dataset has no owner, as the oldest do."""
    found = _HUB_PATH.fullmatch(path)
    if found is None:
        raise UsageError(f"expected an address such as hf://datasets/OWNER/NAME@REVISION/path, got {text!r}")
    revision = unquote(found["revision"] or "")
    name = f"datasets/{found['name']}" + (f"@{_PARQUET.get(revision, revision)}" if revision else "")
    return ObjectAddress(StoreAddress(HUB_SCHEME, name), found["key"] or "")


_CREDENTIAL_OF_URL = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY_OF_URL = re.compile(r"(?P<url>[A-Za-z][A-Za-z0-9+.-]*://[^\s?\"'<>]*)\?[^\s\"'<>]*")


def show_address(text: str) -> str:
    """Return a text without the credentials in its addresses: `user:password@`, and queries such as `?sig=…`."""
    return _QUERY_OF_URL.sub(r"\g<url>", _CREDENTIAL_OF_URL.sub("", text))
