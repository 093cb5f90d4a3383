"""Objects read as files: what they hold, what is retried, and what errors name and keep to themselves."""

from __future__ import annotations

import pickle
import random
import re
import traceback
from itertools import pairwise
from typing import Any

import pytest
from processes import eventually, in_fork
from servers import KEY_ID, SECRET, Answer, StoreServer

from headrace.data.remote.listing import Stores
from headrace.data.remote.remote_file import ObjectPath
from headrace.errors import ChangedError, HeadraceError, NotFoundError, ReadError, UsageError
from headrace.stores.addresses import is_remote, parse_address
from headrace.stores.request_errors import FailedRequestError, FailureKind
from headrace.stores.retrying import RetryPolicy, StoreAttempts

DATA = bytes(range(256)) * 40
KEY = "shards/a b/é {1}.bin"


def opened(store: StoreServer, key: str = KEY, *, retry_for_s: float | None = None, **more: Any) -> ObjectPath:
    store.objects.setdefault(key, DATA)
    return Stores(store.options | more, retry_for_s=retry_for_s).path(f"s3://bucket/{key}")


def error_of(path: ObjectPath, kind: type[HeadraceError]) -> str:
    """Return the whole report of the error that reading ends with."""
    with pytest.raises(kind) as caught:
        path.open().read(10, 90)
    return "".join(traceback.format_exception(caught.value))


def test_addresses_name_what_they_say_and_hide_credentials() -> None:
    for text, name, key in (
        ("s3://bucket/a b/é?#.tar", "bucket", "a b/é?#.tar"),
        ("gs://bucket/x", "bucket", "x"),
        ("abfss://box@account.dfs.core.windows.net/x/y", "box@account.dfs.core.windows.net", "x/y"),
        ("https://user:pass%40word@host:81/a%20b/%C3%A9.tar?sig=abc&se=1", "host:81", "a b/é.tar"),
    ):
        address = parse_address(text)
        assert (address.store.name, address.key) == (name, key)
        assert parse_address(str(address)).key == key
        for shown in (str(address), repr(address), pickle.dumps(address).decode("latin-1")):
            assert not any(secret in shown for secret in ("pass", "sig=", "abc&"))
    assert is_remote("s3://b/k")
    assert not is_remote("/data/s3://b")
    assert not is_remote("s3:/b/k")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3:///key", "names no bucket or host"),
        ("s3://id:secretword@bucket/key", "expected a bucket, got credentials before it"),
        ("s3://bucket/a//b", "got one with '' between slashes"),
        ("https://host/a/../b", "got one with '..' between slashes"),
        ("https://host/a#b", "Write a # in a name as %23"),
    ],
)
def test_wrong_addresses_are_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        parse_address(text)
    assert said in str(caught.value)
    assert "secretword" not in str(caught.value)


def test_ranges_are_those_of_the_object_and_pin_it(store: StoreServer) -> None:
    file = opened(store).open()
    assert file.read(250, 20) == DATA[250:270]
    assert file.size() == len(DATA)
    assert file.read(len(DATA) - 5, 100) == DATA[-5:]
    assert file.read(len(DATA) + 5, 100) == b""
    buffer = bytearray(30)
    assert file.read_into(memoryview(buffer), 3) == 30
    assert buffer == DATA[3:33]
    # Nothing is asked for but the ranges, and each after the first only of that content.
    assert [(seen.start, seen.end) for seen in store.requests] == [(250, 270), (len(DATA) - 5, len(DATA)), (3, 33)]
    assert ["if-match" in seen.headers for seen in store.requests] == [False, True, True]
    assert opened(store, "empty").open().read(0, 10) == DATA[:10]
    store.objects["none"] = b""
    assert opened(store, "none").open().read(0, 10) == b""


def test_a_web_server_with_a_user_and_a_query(store: StoreServer) -> None:
    store.objects[KEY] = DATA
    path = Stores().path(store.url(KEY, user="me:planted%20pass", query="sig=planted"))
    assert path.open().read(1, 3) == DATA[1:4]
    assert store.requests[-1].query == "sig=planted"
    assert store.requests[-1].headers["authorization"].startswith("Basic ")
    store.fault = lambda _: Answer(403, "AccessDenied")
    said = error_of(path, ReadError)
    assert "403 Forbidden (AccessDenied)" in said
    assert "planted" not in said + repr(path) + str(pickle.dumps(path))


PASSING = {
    "throttled": (Answer(503, "SlowDown"), "503 Service Unavailable (SlowDown)"),
    "too many": (Answer(429, "TooManyRequests"), "429 Too Many Requests"),
    "a server's error": (Answer(500, "InternalError"), "500 Internal Server Error"),
    "reset": (Answer(act="reset"), "the connection ended before the answer was complete"),
    "truncated": (Answer(act="truncate"), "the connection ended before the answer was complete"),
}


@pytest.mark.parametrize("answer", PASSING)
@pytest.mark.one_in(3)
def test_what_passes_is_tried_again_and_then_named(store: StoreServer, answer: str) -> None:
    store.fail_first(8, PASSING[answer][0])
    assert opened(store).open().read(10, 90) == DATA[10:100]
    assert len(store.requests) == 9
    store.fault = lambda _: PASSING[answer][0]
    said = error_of(opened(store, retry_for_s=0.5), ReadError)
    assert f"s3://bucket/{KEY}, bytes 10 to 100: could not be read" in said
    assert PASSING[answer][1] in said
    assert re.search(r"at each of \d+ attempts", said)
    assert KEY_ID not in said


def attempts_s(policy: RetryPolicy, failure: FailedRequestError, *, took_s: float = 0.0, **known: bool) -> list[float]:
    """Return when attempts begin that each fail after `took_s`."""
    now_s, begun = 100.0, [0.0]
    attempts = policy.begin(now_s, random.Random(3), **known)
    while (following := attempts.after(failure, now_s + took_s)) is not None:
        now_s += took_s + following.pause_s
        begun.append(now_s - 100)
    assert attempts.count == len(begun)
    return begun


def test_pauses_grow_with_jitter_and_nothing_begins_after_the_budget() -> None:
    passing = FailedRequestError(FailureKind.PASSING, "reset")
    begun = attempts_s(RetryPolicy(), passing)
    pauses = [later - before for before, later in pairwise(begun)]
    assert all(0.5 <= pause / mean <= 1.5 for pause, mean in zip(pauses[:5], (0.05, 0.1, 0.2, 0.4, 0.8), strict=True))
    assert max(pauses) <= 1.5
    assert begun[-1] == pytest.approx(300)
    assert 239 < attempts_s(RetryPolicy(), passing, took_s=60)[-1] <= 300
    assert attempts_s(RetryPolicy(retry_for_s=0), passing) == [0]


def test_a_store_that_never_answered_is_given_up_sooner(store: StoreServer) -> None:
    for reason in ("no connection (Connection refused)", "no complete answer in time", "no whole answer within 10 s"):
        silent = FailedRequestError(FailureKind.PASSING, reason)
        assert attempts_s(RetryPolicy(), silent)[-1] == pytest.approx(30)
        assert attempts_s(RetryPolicy(unanswered_s=300), silent)[-1] == pytest.approx(300)
    path = opened(store)
    assert RetryPolicy().of(path.store).unanswered_s == 30
    path.open().read(0, 1)
    assert RetryPolicy().of(path.store).unanswered_s == 300
    assert RetryPolicy().of(opened(store, retry_for_s=7).store) == RetryPolicy(retry_for_s=7, unanswered_s=7)


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind not in (FailureKind.PASSING, FailureKind.LOCAL)])
def test_an_answer_that_should_be_final_is_confirmed(kind: FailureKind) -> None:
    failure = FailedRequestError(kind, "")
    begun = attempts_s(RetryPolicy(), failure, is_known=True)
    assert len(begun) == 4
    assert begun[-1] < 3
    assert len(attempts_s(RetryPolicy(), failure)) == (1 if kind is FailureKind.MISSING else 4)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_refusal_before_any_request_is_final(is_known: bool) -> None:
    assert attempts_s(RetryPolicy(), FailedRequestError(FailureKind.LOCAL, ""), is_known=is_known) == [0.0]


def test_an_outage_is_logged_once_and_ends_with_the_next_answer(
    store: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    path = opened(store)
    gone = FailedRequestError(FailureKind.PASSING, "no connection")
    path.open().read(0, 1)
    for outage in (1, 2):
        for _ in range(2):
            attempts = StoreAttempts(path.store, 100.0, is_known=True)
            assert attempts.after(gone, 101.0) is not None
            assert attempts.after(gone, 109.0) is not None
            assert attempts.after(gone, 112.0) is not None
        assert [record.levelname for record in caplog.records] == ["WARNING"] * outage
        path.open().read(0, 1)


def test_retries_leave_the_programs_random_numbers_alone(store: StoreServer) -> None:
    random.seed(3)
    expected = random.Random(3).random()
    store.fail_first(2, Answer(503))
    opened(store).open().read(0, 10)
    assert random.random() == expected


def test_an_answer_that_does_not_come_has_a_deadline(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    store.fail_first(1, Answer(act="stall"))
    assert opened(store, client_options={"timeout": "200ms"}).open().read(10, 90) == DATA[10:100]
    assert len(store.requests) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "said", "requests"),
    [
        (Answer(404, "NoSuchKey"), NotFoundError, "404 Not Found (NoSuchKey). Check the address", 1),
        (Answer(404, "NoSuchBucket"), NotFoundError, "404 Not Found (NoSuchBucket)", 1),
        (Answer(403, "AccessDenied"), ReadError, "403 Forbidden (AccessDenied), at each of 4 attempts", 4),
        (Answer(403, "RequestTimeTooSkewed"), ReadError, "this machine's clock", 4),
        (Answer(400, "ExpiredToken"), ReadError, "Check the credentials", 4),
        (Answer(301, "PermanentRedirect"), ReadError, "in another region", 4),
        (Answer(act="whole"), ReadError, "use a server that answers range requests with 206", 4),
    ],
)
def test_what_does_not_pass_is_named_soon(
    store: StoreServer, answer: Answer, kind: type[HeadraceError], said: str, requests: int
) -> None:
    path = opened(store)
    store.fault = lambda _: answer
    error = error_of(path, kind)
    assert said in error
    assert f"s3://bucket/{KEY}, bytes 10 to 100" in error
    assert len(store.requests) == requests
    assert KEY_ID not in error
    assert SECRET not in error


def test_a_redirect_is_followed(store: StoreServer) -> None:
    path = opened(store)
    target = store.url("elsewhere")
    store.objects["elsewhere"] = DATA
    store.fault = lambda seen: Answer(307, headers={"Location": target}) if seen.key == KEY else None
    assert path.open().read(10, 90) == DATA[10:100]


def test_expired_credentials_are_read_again(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "OLDKEY"), ("SECRET_ACCESS_KEY", SECRET), ("ENDPOINT", store.endpoint)):
        monkeypatch.setenv(f"AWS_{name}", value)
    store.objects[KEY] = DATA
    path = Stores().path(f"s3://bucket/{KEY}")
    assert path.open().read(0, 1) == DATA[:1]
    store.fault = lambda seen: Answer(400, "ExpiredToken") if "OLDKEY" in seen.headers["authorization"] else None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEWKEY")
    assert path.open().read(0, 1) == DATA[:1]
    assert len(store.requests) == 3


def test_credentials_of_a_provider_are_renewed_by_obstore(store: StoreServer) -> None:
    from datetime import UTC, datetime, timedelta

    from obstore.store import S3Store

    given: list[str] = []

    def provide() -> Any:
        given.append(f"KEY{len(given)}")
        soon = datetime.now(UTC) + timedelta(seconds=30)
        return {"access_key_id": given[-1], "secret_access_key": SECRET, "token": None, "expires_at": soon}

    made = S3Store("bucket", endpoint=store.endpoint, client_options={"allow_http": True}, credential_provider=provide)
    store.objects[KEY] = DATA
    path = Stores(store=made).path(f"s3://bucket/{KEY}")
    # What ends within minutes is asked for again, a moment after it was had.
    assert eventually(lambda: path.open().read(0, 1) == DATA[:1] and len(given) >= 2)
    with pytest.raises(UsageError, match="expected a store of s3://other, got one of 'bucket'"):
        Stores(store=made).path("s3://other/x").open()


@pytest.mark.parametrize("etags", [True, False])
def test_an_object_replaced_under_the_run_is_named(store: StoreServer, etags: bool) -> None:
    store.states_etags = etags
    path = opened(store)
    path.open().read(0, 10)
    store.objects[KEY] = DATA[::-1] + b"more"
    assert f"s3://bucket/{KEY}, bytes 10 to 100" in error_of(path, ChangedError)
    copy = pickle.loads(pickle.dumps(path))  # the content goes with the path
    assert copy.pin == path.pin


def test_a_fork_reads_with_a_connection_of_its_own(store: StoreServer) -> None:
    path = opened(store)
    path.open().read(0, 10)
    assert in_fork(lambda: path.open().read(20, 30))() == DATA[20:50]


def test_credentials_stay_in_their_process(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    path = opened(store, retry_for_s=0.5)
    sent = pickle.dumps(path)
    assert KEY_ID.encode() not in sent
    assert SECRET.encode() not in sent
    assert KEY_ID not in repr(path) + str(path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "THERE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    there = pickle.loads(sent)
    assert there.open().read(0, 3) == DATA[:3]
    assert "THERE" in store.requests[-1].headers["authorization"]
    store.fault = lambda _: Answer(403, "AccessDenied")
    assert "(access_key_id, secret_access_key) are not sent to other processes" in error_of(there, ReadError)


def test_a_proxys_password_stays_in_its_process(store: StoreServer) -> None:
    options = {"proxy_url": f"http://me:{SECRET}@127.0.0.1:{store.port}"}
    path = opened(store, anonymous=True, client_options=options)
    sent = pickle.dumps(path)
    assert SECRET.encode() not in sent
    store.fault = lambda _: Answer(407, "ProxyAuthenticationRequired")
    assert "proxy_url) are not sent to other processes" in error_of(pickle.loads(sent), ReadError)


def test_patterns_list_and_braces_do_not(store: StoreServer) -> None:
    keys = ["t/000.tar", "t/001.tar", "t/x/002.tar", "t/x/y z é/003.tar", "t/notes.txt", "u/000.tar"]
    store.objects.update(dict.fromkeys(keys, b"x"))
    stores = Stores(store.options)

    def named(text: str) -> list[str]:
        return [path.key for path in stores.resolve(text)]

    assert named("s3://bucket/t/{001,000,009}.tar") == ["t/001.tar", "t/000.tar", "t/009.tar"]
    assert store.requests == []
    assert named("s3://bucket/t/*.tar") == keys[:2]
    assert "prefix=t%2F" in store.requests[-1].query
    assert named("s3://bucket/t/**/*.tar") == keys[:4]
    assert named("s3://bucket/t/00[!0].tar") == ["t/001.tar"]
    assert named("s3://bucket/t/00[^0].tar") == ["t/000.tar"]  # as glob has it: one of these two
    for none in ("t[!a]*.tar", "t/00[9-0].tar"):
        with pytest.raises(NotFoundError):
            named(f"s3://bucket/{none}")
    store.objects |= {"t/b[12].jpg": b"x", "t/b1.jpg": b"x", "t/b3.jpg": b"x"}
    assert named("s3://bucket/t/b[12].jpg") == ["t/b1.jpg", "t/b[12].jpg"]
    assert named("s3://bucket/*/00?.tar") == ["t/000.tar", "t/001.tar", "u/000.tar"]
    assert all(path.pin is not None for path in stores.resolve("s3://bucket/t/*.tar"))
    with pytest.raises(NotFoundError, match=r"objects that match s3://bucket/t/\*.zip, got none below s3://bucket/t"):
        named("s3://bucket/t/*.zip")
    with pytest.raises(UsageError, match="a web server has no listing"):
        stores.resolve(store.url("t/") + "*.tar")


def test_a_listing_of_many_pages(store: StoreServer) -> None:
    store.objects.update((f"many/{number:05}", b"") for number in range(3_500))
    store.fail_first(1, Answer(503))
    assert len(Stores(store.options).resolve("s3://bucket/many/*")) == 3_500
    assert len(store.requests) == 5


@pytest.mark.long
def test_a_listing_of_a_hundred_thousand_keys(store: StoreServer) -> None:
    store.objects.update((f"many/{number:06}", b"") for number in range(100_000))
    found = Stores(store.options).resolve("s3://bucket/many/*")
    assert [path.key for path in found] == sorted(store.objects)
