"""Retries of requests to stores: one policy for blocking readers and event loops.

`RetryPolicy` and `RequestAttempts` are pure: the caller has the clock. `StoreAttempts` counts the attempts of one
request to a store, and `with_remote_retries` makes them in the calling thread.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from headrace.errors import HeadraceError
from headrace.stores.object_store import ObjectStore
from headrace.stores.request_errors import FailedRequestError, FailureKind, RangeRequest, remote_error

T = TypeVar("T")

_GROWTH = 2.0
_JITTER = (0.5, 1.5)
"""Range of factors on a pause, so that clients that failed together do not retry together (Brooker, "Exponential
backoff and jitter", 2015)."""
_DRAW = random.SystemRandom()
"""Source of jitter, independent of the program's own generators and different in each forked process."""
_ODD_ANSWERS = 3
"""Confirmations of a response that should be final: a proxy or one of many servers may be wrong."""
_log = logging.getLogger("headrace")


class NextAttempt(NamedTuple):
    """Preparation of another attempt."""

    pause_s: float
    renews: bool = False
    """True if the connection is renewed, which reads the credentials again."""
    recovered: Future[None] | None = None
    """Future that ends the pause, once an outage is over; None outside an outage."""


@dataclass(frozen=True)
class RetryPolicy:
    """Policy of retries: failures to retry, for how long and after which pauses.

    Transient failures are retried for `retry_for_s`, with pauses that double. Refused credentials may have expired, so
    each further attempt renews the connection first, and the first such attempt has no pause. If they were accepted
    before, and others may come, they are retried for `retry_for_s`, too. Any other failure is confirmed by four
    attempts in all, except for a missing object that was never seen, and for what this machine refuses to send.
    """

    retry_for_s: float = 300.0
    """Latest start of an attempt, in seconds after the first one: `retry_for=`."""
    unanswered_s: float = 30.0
    """Like `retry_for_s`, for a store that has never responded and may have a wrong address."""
    first_pause_s: float = 0.05
    most_pause_s: float = 1.0

    def begin(self, now_s: float, draw: random.Random, *, is_known: bool = False) -> RequestAttempts:
        """Return the attempts of a request that starts now.

        `draw`: source of jitter. `is_known`: True if the object existed before.
        """
        return RequestAttempts(self, now_s, draw, is_known=is_known)

    def of(self, store: ObjectStore) -> RetryPolicy:
        """Return the policy with a store's `retry_for=`, which also applies before its first response."""
        if store.retry_for_s is not None:
            return replace(self, retry_for_s=store.retry_for_s, unanswered_s=store.retry_for_s)
        return replace(self, unanswered_s=self.retry_for_s) if store.answered else self


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
        self._has_renewed = False

    def after(
        self, failure: FailedRequestError, now_s: float, *, has_lapsed: bool = False, turn_s: float | None = None
    ) -> NextAttempt | None:
        """Return and count the next attempt; None if the request failed for good.

        `has_lapsed`: True if the refused credentials were accepted before. `turn_s`: pause instead of the policy's.
        """
        policy = self._policy
        if failure.kind is not FailureKind.PASSING and not has_lapsed:
            self._odd += 1
            is_final = failure.kind is FailureKind.LOCAL or (failure.kind is FailureKind.MISSING and not self._is_known)
            if is_final or self._odd > _ODD_ANSWERS:
                return None
        left_s = self._began_s - now_s + (policy.unanswered_s if failure.is_unanswered else policy.retry_for_s)
        if left_s <= 0:
            return None
        self.count += 1
        renews = failure.kind is FailureKind.CREDENTIALS
        if renews and not self._has_renewed:
            self._has_renewed = True
            return NextAttempt(0.0, renews)
        pause_s = self._pause_s * self._draw.uniform(*_JITTER)
        self._pause_s = min(policy.most_pause_s, _GROWTH * self._pause_s)
        return NextAttempt(min(pause_s if turn_s is None else turn_s, left_s), renews)


class StoreAttempts:
    """Attempts of one request to a store."""

    def __init__(self, store: ObjectStore, now_s: float, *, is_known: bool, verb: str = "read") -> None:
        """Start with the first attempt. `is_known`: True if the object, or a part of the listing, existed before."""
        self._store, self._began_s, self._is_known, self._verb = store, now_s, is_known, verb
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

    def after(self, failure: FailedRequestError, now_s: float) -> NextAttempt | None:
        """Return the next attempt; None if the request failed for good."""
        outage, turn_s, has_lapsed = self._store.outage, None, self._has_lapsed(failure)
        if failure.kind is FailureKind.PASSING or has_lapsed:
            turn_s = outage.turn_s(now_s, _DRAW)
        following = self._attempts.after(failure, now_s, has_lapsed=has_lapsed, turn_s=turn_s)
        if following is None:
            self._store.end_outage()  # others have no more time left; a later request begins anew
            return None
        if following.renews:
            self._store.renew(self._connection)
        if turn_s is None:
            return following
        if outage.is_reported_at(now_s):
            _log.warning(
                "%s: %s, for %.0f s by now. Requests are tried again%s for %.0f s in all (retry_for=)",
                self._store.address,
                failure.reason,
                outage.length_s(now_s),
                ", with credentials read again," if following.renews else "",
                self._policy.unanswered_s if failure.is_unanswered else self._policy.retry_for_s,
            )
        return following._replace(recovered=outage.over)

    def error(self, failure: FailedRequestError, request: RangeRequest) -> HeadraceError:
        """Return the error for the request, which failed for good."""
        if self._has_lapsed(failure):
            reason = f"{failure.reason}, though it accepted earlier requests: the credentials have expired"
            failure = FailedRequestError(failure.kind, reason, failure.advice)
        return remote_error(failure, request, attempts=self.count)

    def _has_lapsed(self, failure: FailedRequestError) -> bool:
        """Return True if the store refuses credentials that it accepted for such a request."""
        is_refused = failure.kind is FailureKind.CREDENTIALS and self._is_known
        return is_refused and self._verb in self._store.answered and self._store.rereads_credentials


def with_remote_retries(
    store: ObjectStore, request: RangeRequest, attempt: Callable[[], T], *, is_known: bool = False
) -> T:
    """Return the result of `attempt`, retried as in `REMOTE_RETRIES`.

    `is_known`: True if the object, or a part of the listing, existed before. Raises ReadError, NotFoundError or
    ChangedError, which name the request.
    """
    attempts = StoreAttempts(store, time.monotonic(), is_known=is_known, verb=request.verb)
    while True:
        attempts.start()
        try:
            return attempt()
        except FailedRequestError as error:
            failure = error
        following = attempts.after(failure, time.monotonic())
        if following is None:
            break
        if following.recovered is None:
            time.sleep(following.pause_s)
        else:
            wait([following.recovered], following.pause_s)
    raise attempts.error(failure, request)
