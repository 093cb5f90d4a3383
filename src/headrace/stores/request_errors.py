"""Failures of stores by kind, and the errors raised for them. Each names the object or range, never a credential."""

from __future__ import annotations

import enum
import random
import re
from concurrent.futures import Future
from typing import NamedTuple

from headrace.errors import ChangedError, HeadraceError, NotFoundError, ReadError
from headrace.stores.addresses import show_address


class FailureKind(enum.Enum):
    """Kind of failure, by remedy."""

    PASSING = "passing"
    """Throttled, reset, cut short, timed out, or a server error: another attempt may succeed."""
    CREDENTIALS = "credentials"
    """Refused because of the client: missing, wrong or expired credentials, or no permission."""
    MISSING = "missing"
    CHANGED = "changed"
    """The object is no longer the one that was opened."""
    RANGES = "ranges"
    """The server sent other bytes than requested, such as the whole object."""
    EMPTY_RANGE = "empty range"
    """The range is outside the object."""
    LOCAL = "local"
    """Refused on this machine before any request was sent, so another attempt fails alike."""
    OTHER = "other"


_ADVICE = {
    FailureKind.PASSING: "Check the network and the store's limits, and run again: a saved state goes on from there",
    FailureKind.CREDENTIALS: (
        "Check the credentials (environment, profile, store_options=) and that they may read it, and this machine's "
        "clock; anonymous access needs store_options={'anonymous': True}"
    ),
    FailureKind.MISSING: "Check the address, or open the dataset again",
    FailureKind.CHANGED: (
        "It was replaced since it was opened: open it again. Where index= names it, build that again first"
    ),
    FailureKind.RANGES: "Samples cannot be read from there: use a server that answers range requests with 206",
    FailureKind.EMPTY_RANGE: "It is shorter than when it was opened: open it again",
    **dict.fromkeys((FailureKind.LOCAL, FailureKind.OTHER), "Check the address and store_options="),
}
_STATUS_KINDS = {
    **dict.fromkeys((408, 425, 429, 500, 502, 503, 504), FailureKind.PASSING),
    **dict.fromkeys((401, 403, 407), FailureKind.CREDENTIALS),
    **dict.fromkeys((404, 410), FailureKind.MISSING),
    409: FailureKind.CHANGED,
    412: FailureKind.CHANGED,
    416: FailureKind.EMPTY_RANGE,
}
_CODE_KINDS = {
    **dict.fromkeys(
        ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestTimeTooSkewed", "InvalidToken"),
        FailureKind.CREDENTIALS,
    ),
    **dict.fromkeys(("SlowDown", "RequestTimeout", "InternalError", "ServerBusy"), FailureKind.PASSING),
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound"), FailureKind.MISSING),
}
"""Codes in a store's response, which are more specific than its status."""
_STATUS = re.compile(r"\bstatus(?: code)?: (\d{3})\b(?: ([A-Z][A-Za-z -]*))?")
_CODE = re.compile(r"<Code>([A-Za-z0-9_.]{1,64})</Code>")
_THROTTLING = re.compile(r"\b(429|503)\b|SlowDown|ServerBusy")
_NO_ANSWER = re.compile(r"no connection|no (complete|whole) answer")
_TRANSPORT = re.compile(r"kind: (Timeout|Interrupted|Connect|Decode|Request|Unknown)\b")
_BEFORE_ANSWER = re.compile(r"\bSendRequest\b|\bIncompleteMessage\b|\bConnectionReset\b|\bBrokenPipe\b")
"""Failures before a response, such as a keep-alive connection that the server closed as the request went out."""
_WRONG_RANGES = {
    "NotPartial": "the server answers with the whole object instead of a part (200, not 206)",
    "UnexpectedRange": "the server answers with other bytes than it was asked for",
    "NoContentRange": "the server does not say which bytes it answers with (no Content-Range)",
    "MissingContentLength": "the server does not say how long its answer is (no Content-Length)",
}
_SYSTEM = re.compile(r'message: \\?"([A-Za-z ]{1,80})\\?"')
_TRANSPORT_WORDS = {
    "Timeout": "no complete answer in time",
    "Interrupted": "the connection ended before the answer was complete",
    "Connect": "no connection",
    "Decode": "the answer could not be decoded",
    "Request": "the request could not be sent",
    "Unknown": "the transport failed",
}
_BY_CLASS = {
    "FileNotFoundError": (FailureKind.MISSING, "not found"),
    "NotFoundError": (FailureKind.MISSING, "not found"),
    "PreconditionError": (FailureKind.CHANGED, "the store holds another version"),
    "PermissionDeniedError": (FailureKind.CREDENTIALS, "permission denied"),
    "UnauthenticatedError": (FailureKind.CREDENTIALS, "not authenticated"),
}
_FIRST_WORDS = 160
_KEY = re.compile(r'Path "(.*?)"(?: contained|:)', re.DOTALL)
_ODD_KEY = (
    "Rename or remove it: no part of a key may be empty, '.' or '..', or have control characters. Or open the prefixes "
    "beside it, or a list of the objects"
)


_PROBED_AFTER_S, _MOST_PROBE_S = 1.0, 8.0
_PROBE_SHARE = 4
"""A store is probed after each 1/n of an outage's length so far: that is what the outage costs in addition."""
_PROBE_JITTER = 0.75, 1.25
_REPORTED_AFTER_S = 10.0


class Outage:
    """Time from a store's first failed request to its next answer. Any thread may call it.

    After a second, requests take turns: a single one probes the store, and its answer releases all others.
    """

    def __init__(self) -> None:
        self.over: Future[None] = Future()
        """Future that is done once the store answers."""
        self._began_s: float | None = None
        self._turn_s = 0.0
        """Latest turn."""
        self._is_reported = False

    def length_s(self, now_s: float) -> float:
        """Return the seconds since the first failure, which is now if there was none."""
        self._began_s = now_s if self._began_s is None else self._began_s
        return now_s - self._began_s

    def turn_s(self, now_s: float, draw: random.Random) -> float | None:
        """Return the pause of a failed request before its turn; None while each may have its own."""
        length_s = self.length_s(now_s)
        if length_s < _PROBED_AFTER_S:
            return None
        each_s = min(max(_PROBED_AFTER_S, length_s / _PROBE_SHARE), _MOST_PROBE_S)
        self._turn_s = max(now_s, self._turn_s) + each_s * draw.uniform(*_PROBE_JITTER)
        return self._turn_s - now_s

    def is_reported_at(self, now_s: float) -> bool:
        """Return True once, after ten seconds: the outage is to be logged."""
        is_due = not self._is_reported and self.length_s(now_s) >= _REPORTED_AFTER_S
        self._is_reported = self._is_reported or is_due
        return is_due


class FailedRequestError(Exception):
    """Failed request, without any part of the response that could contain a credential."""

    def __init__(self, kind: FailureKind, reason: str, advice: str | None = None) -> None:
        """Take the kind, the reason in words, and specific advice; None: the advice for the kind."""
        super().__init__(kind, reason, advice)
        self.kind = kind
        self.reason = reason
        self.advice = _ADVICE[kind] if advice is None else advice

    @property
    def is_throttling(self) -> bool:
        """True if the store asks for fewer requests."""
        return self.kind is FailureKind.PASSING and _THROTTLING.search(self.reason) is not None

    @property
    def is_unanswered(self) -> bool:
        """True if there was no response, as from an address without a store."""
        return self.kind is FailureKind.PASSING and _NO_ANSWER.match(self.reason) is not None


class RangeRequest(NamedTuple):
    """Requested range: first byte and end (exclusive); None: the whole object, or only its size."""

    address: str
    """Address as shown in messages."""
    start: int | None = None
    end: int | None = None
    verb: str = "read"

    def __str__(self) -> str:
        return self.address if self.start is None else f"{self.address}, bytes {self.start} to {self.end}"


def failure_of(error: BaseException) -> FailedRequestError:
    """Return the failure for an error of obstore or the system: its kind, and a reason of known words only.

    A response's body may repeat the request's signature or key, so nothing of it is used except an alphanumeric code.
    """
    if isinstance(error, FailedRequestError):
        return error
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is not None:
        words = " ".join(filter(None, (status[1], (status[2] or "").strip(), code and f"({code[1]})")))
        kind = kind_of_status(int(status[1]))
        if code is not None:
            kind = _CODE_KINDS.get(code[1], kind)
        elif status[1] == "400":  # S3's answer without a body to a HEAD with an expired token
            kind = FailureKind.CREDENTIALS
        return FailedRequestError(kind, f"the store answers {words}")
    wrong = next((why for name, why in _WRONG_RANGES.items() if re.search(rf"\b{name}\b", text)), None)
    if wrong is not None:
        return FailedRequestError(FailureKind.RANGES, wrong)
    known = _BY_CLASS.get(type(error).__name__)
    if known is not None:
        return FailedRequestError(*known)
    transport = _TRANSPORT.search(text)
    if transport is not None or isinstance(error, TimeoutError | ConnectionError):
        system = _SYSTEM.search(text)
        why = _TRANSPORT_WORDS["Timeout" if transport is None else transport[1]]
        return FailedRequestError(FailureKind.PASSING, why if system is None else f"{why} ({system[1]})")
    if _BEFORE_ANSWER.search(text):
        return FailedRequestError(FailureKind.PASSING, "the connection ended before there was an answer")
    if "Received redirect without LOCATION" in text:
        return FailedRequestError(
            FailureKind.OTHER, "the bucket is in another region: give store_options={'region': …}"
        )
    if type(error).__name__ == "InvalidPathError":
        named = _KEY.search(text)
        key = "a key" if named is None else f"the key {named[1]!r}"
        return FailedRequestError(FailureKind.OTHER, f"it lists {key}, which no request can name", _ODD_KEY)
    if "edential" in text and "query" not in text:  # no credential provider has credentials
        return FailedRequestError(FailureKind.CREDENTIALS, "no credentials could be had")
    first = show_address(text.partition("\n")[0].partition("<")[0])[:_FIRST_WORDS].rstrip()
    return FailedRequestError(FailureKind.OTHER, first or type(error).__name__)


def kind_of_status(status: int) -> FailureKind:
    """Return the kind of failure for an HTTP status of 400 or more."""
    return _STATUS_KINDS.get(status, FailureKind.PASSING if status >= 500 else FailureKind.OTHER)


def remote_error(failure: FailedRequestError, request: RangeRequest, *, attempts: int) -> HeadraceError:
    """Return the error for a request that failed for good, after `attempts` attempts."""
    tried = "" if attempts == 1 else f", at each of {attempts} attempts"
    text = f"{request}: could not be {request.verb}: {failure.reason}{tried}. {failure.advice}"
    kind: type[HeadraceError] = {
        FailureKind.MISSING: NotFoundError,
        FailureKind.CHANGED: ChangedError,
        FailureKind.EMPTY_RANGE: ChangedError,
    }.get(failure.kind, ReadError)
    return kind(text)
