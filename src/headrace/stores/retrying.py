"""Retries of requests to stores: one policy for blocking readers and event loops.

`RetryPolicy` and `RequestAttempts` are pure: the caller has the clock. `StoreAttempts` counts the attempts of one
request to a store, and `with_remote_retries` makes them in the calling thread.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from headrace.errors import HeadraceError
from headrace.stores.object_store import ObjectStore
from headrace.stores.request_errors import FailedRequestError, FailureKind, RangeRequest, remote_error

T = TypeVar("T")

_GROWTH = 3.0
_JITTER = (0.5, 1.5)
"""Range of factors on a pause, so that clients that failed together do not retry together (Brooker, "Exponential
backoff and jitter", 2015)."""
_DRAW = random.SystemRandom()
"""Source of jitter, independent of the program's own generators and different in each forked process."""
_ODD_ANSWERS = 3
"""Confirmations of a response that should be final: a proxy or one of many servers may be wrong."""
_REPORT_AFTER_S = 10.0
"""Duration in seconds after which an outage is logged."""
_log = logging.getLogger("headrace")


class NextAttempt(NamedTuple):
    """Preparation of another attempt."""

    pause_s: float
    renews: bool
    """True if the connection is renewed, which reads the credentials again."""


@dataclass(frozen=True)
class RetryPolicy:
    """Policy of retries: failures to retry, for how long and after which pauses.

    Transient failures are retried for `retry_for_s`, with pauses that triple. Refused credentials may have expired, so
    each further attempt renews the connection first, and the first such attempt has no pause. Any other failure is
    confirmed by as many attempts, except for a missing object that was never seen.
    """

    retry_for_s: float = 300.0
    """Latest start of an attempt, in seconds after the first one: `retry_for=`."""
    unanswered_s: float = 30.0
    """Like `retry_for_s`, for a store that has never responded and may have a wrong address."""
    first_pause_s: float = 0.1
    most_pause_s: float = 8.0

    def begin(self, now_s: float, draw: random.Random, *, is_known: bool = False) -> RequestAttempts:
        """Return the attempts of a request that starts now.

        `draw`: source of jitter. `is_known`: True if the object existed before.
        """
        return RequestAttempts(self, now_s, draw, is_known=is_known)

    def of(self, store: ObjectStore) -> RetryPolicy:
        """Return the policy with a store's `retry_for=`, which also applies before its first response."""
        if store.retry_for_s is not None:
            return replace(self, retry_for_s=store.retry_for_s, unanswered_s=store.retry_for_s)
        return replace(self, unanswered_s=self.retry_for_s) if store.has_answered else self


REMOTE_RETRIES = RetryPolicy()
"""Retry policy of every request to a store, apart from its `retry_for=`."""


class RequestAttempts:
    """Attempts of one request."""

    def __init__(self, policy: RetryPolicy, began_s: float, draw: random.Random, *, is_known: bool) -> None:
        self.count = 1
        self._policy, self._draw, self._is_known = policy, draw, is_known
        self._began_s = began_s
        self._pause_s = policy.first_pause_s
        self._odd = 0

    def after(self, failure: FailedRequestError, now_s: float) -> NextAttempt | None:
        """Return and count the next attempt; None if the request failed for good."""
        policy = self._policy
        renews = failure.kind is FailureKind.CREDENTIALS
        if failure.kind is not FailureKind.PASSING:
            self._odd += 1
            if self._odd > _ODD_ANSWERS or (failure.kind is FailureKind.MISSING and not self._is_known):
                return None
        pause_s = 0.0
        if not renews or self._odd > 1:
            pause_s = self._pause_s * self._draw.uniform(*_JITTER)
            self._pause_s = min(policy.most_pause_s, _GROWTH * self._pause_s)
        most_s = policy.unanswered_s if failure.is_unanswered else policy.retry_for_s
        if now_s + pause_s - self._began_s > most_s:
            return None
        self.count += 1
        return NextAttempt(pause_s, renews)


class StoreAttempts:
    """Attempts of one request to a store."""

    def __init__(self, store: ObjectStore, now_s: float, *, is_known: bool) -> None:
        """Start with the first attempt. `is_known`: True if the object existed before."""
        self._store, self._began_s = store, now_s
        self._policy = REMOTE_RETRIES.of(store)
        self._attempts = self._policy.begin(now_s, _DRAW, is_known=is_known)
        self._connection = 0

    def start(self) -> None:
        """Record the connection of the next attempt."""
        self._connection = self._store.connections

    @property
    def count(self) -> int:
        """Number of attempts so far."""
        return self._attempts.count

    def after(self, failure: FailedRequestError, now_s: float) -> float | None:
        """Return the pause before the next attempt in seconds; None if the request failed for good."""
        following = self._attempts.after(failure, now_s)
        if following is None:
            return None
        if following.renews:
            self._store.renew(self._connection)
        failing_s = now_s - self._began_s
        if failure.kind is FailureKind.PASSING and failing_s >= _REPORT_AFTER_S and self._store.report_outage():
            _log.warning(
                "%s: %s, for %.0f s by now. Requests are tried again for %.0f s in all (retry_for=)",
                self._store.address,
                failure.reason,
                failing_s,
                self._policy.unanswered_s if failure.is_unanswered else self._policy.retry_for_s,
            )
        return following.pause_s

    def error(self, failure: FailedRequestError, request: RangeRequest) -> HeadraceError:
        """Return the error for the request, which failed for good."""
        return remote_error(failure, request, attempts=self.count)


pause = time.sleep


def with_remote_retries(
    store: ObjectStore, request: RangeRequest, attempt: Callable[[], T], *, is_known: bool = False
) -> T:
    """Return the result of `attempt`, retried as in `REMOTE_RETRIES`.

    `is_known`: True if the object existed before. Raises ReadError, NotFoundError or ChangedError, which name the
    request.
    """
    attempts = StoreAttempts(store, time.monotonic(), is_known=is_known)
    while True:
        attempts.start()
        try:
            return attempt()
        except FailedRequestError as error:
            failure = error
        pause_s = attempts.after(failure, time.monotonic())
        if pause_s is None:
            break
        pause(pause_s)
    raise attempts.error(failure, request)
