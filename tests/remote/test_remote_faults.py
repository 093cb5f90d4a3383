"""Whole runs over a store that fails: the batches of the same files here, or an error that says what, where and what
to do; and no secret in anything that is left."""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from link_proxy import LinkProxy
from processes import DEADLINE_S, eventually, run_python
from remote_runs import CONTENT, WINDOWED, assert_same, loader, open_here, open_there
from servers import KEY_ID, SECRET, Answer, Fault, Seen, StoreServer

import headrace as hr
from headrace.errors import ChangedError, HeadraceError, NotFoundError, ReadError
from headrace.stores import request_errors as remote_errors

TOKEN = "planted-token-of-tests"
SHORT = {"client_options": {"timeout": "250ms"}}
"""Options under which an answer that does not come is given up soon."""


@pytest.fixture
def local(tmp_path: Path) -> hr.Dataset:
    return open_here(tmp_path)


@pytest.fixture
def remote(store: StoreServer, tmp_path: Path) -> hr.Dataset:
    return open_there(store, tmp_path / "indices", token=TOKEN, **SHORT)


def now_and_then(seed: int, *answers: Answer) -> Fault:
    """Return a fault that fails requests for bytes: each range at first, then by drawing, three times at most."""
    draw, failed = random.Random(seed), Counter[tuple[str, int | None]]()

    def fault(seen: Seen) -> Answer | None:
        place = (seen.key, seen.start)
        if seen.start is None or failed[place] == 3 or (failed[place] and draw.random() < 0.5):
            return None
        failed[place] += 1
        return draw.choice(answers)

    return fault


# --- what passes ---

SLOW_DOWN, RESET, TRUNCATED = Answer(503, "SlowDown"), Answer(act="reset"), Answer(act="truncate")
STALLED, HALF = Answer(act="stall"), Answer(act="half")
PASSING = {
    "throttled": (SLOW_DOWN, Answer(429, "TooManyRequests")),
    "server's errors": (Answer(500, "InternalError"), Answer(502), Answer(504)),
    "reset": (RESET,),
    "truncated": (TRUNCATED,),
    "slow": (STALLED, HALF),
    "connections that end": (Answer(act="close"),),
    "all of them": (SLOW_DOWN, Answer(500), RESET, TRUNCATED, Answer(408, "RequestTimeout")),
    "answers that should be final": (
        Answer(act="whole"),
        Answer(act="shifted"),
        Answer(act="page"),
        Answer(404, "NoSuchKey"),
        Answer(412, "PreconditionFailed"),
        Answer(403, "AccessDenied"),
        Answer(400, "BadRequest"),
    ),
}
RUNS: dict[str, dict[str, Any]] = {
    "global, 1 thread": {"threads": 1},
    "windowed, 2 threads": {"order": WINDOWED},
    "global, 4 threads, wrapped": {"threads": 4, "remainder": "wrap"},
    "first of two ranks, windowed": {"order": WINDOWED, "world_size": 2, "rank": 0},
    "last of two ranks, global": {"world_size": 2, "rank": 1, "threads": 1},
    "skipping bad samples": {"max_bad": 0.5, "batch_size": 4},
    "cached": {"cache": "ram:10MB", "view": hr.Resize((24, 24))},
}


@pytest.mark.one_in(12)
@pytest.mark.parametrize(
    ("fault", "run"),
    [
        pytest.param(fault, run, marks=() if (at - place) % len(RUNS) == 0 else pytest.mark.long)
        for at, fault in enumerate(PASSING)
        for place, run in enumerate(RUNS)
    ],
)
def test_what_passes_changes_no_batch(
    local: hr.Dataset, remote: hr.Dataset, store: StoreServer, fault: str, run: str
) -> None:
    store.fault = now_and_then(len(fault), *PASSING[fault])
    ours, here = loader(remote, **RUNS[run]), loader(local, **RUNS[run])
    for _ in range(2):
        assert_same(ours, here)
        assert ours.stats().bad == 0


@pytest.mark.parametrize("order", ["global", WINDOWED], ids=["global", "windowed"])
@pytest.mark.parametrize("taken", [0, 2, 5])
@pytest.mark.one_in(3)
def test_a_run_resumes_in_mid_epoch_while_requests_fail(
    local: hr.Dataset, remote: hr.Dataset, store: StoreServer, order: Any, taken: int
) -> None:
    store.fault = now_and_then(taken, *PASSING["all of them"][:4])
    options = {} if order == "global" else {"order": order}
    first, here = loader(remote, **options), iter(loader(local, **options))
    batches = iter(first)
    assert_same(islice(batches, taken), islice(here, taken))
    state = json.loads(json.dumps(first.state_dict()))
    batches.close()
    second = loader(remote, **options, threads=1)
    second.load_state_dict(state)
    assert_same(second, here if taken < 5 else second_epoch(local, **options))


def second_epoch(dataset: hr.Dataset, **options: Any) -> Iterator[Any]:
    made = loader(dataset, **options)
    list(made)
    return iter(made)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("status", "place"), [(301, "absolute"), (302, "path"), (307, "absolute"), (308, "absolute")])
def test_redirects_that_say_where_are_followed(
    local: hr.Dataset, remote: hr.Dataset, store: StoreServer, status: int, place: str
) -> None:
    store.objects |= {f"moved/{key}": data for key, data in CONTENT.items()}

    def fault(seen: Seen) -> Answer | None:
        if seen.key.startswith("moved/") or seen.start is None:
            return None
        target = store.url(f"moved/{seen.key}", query="X-Amz-Signature=planted-signature")
        return Answer(status, headers={"Location": target if place == "absolute" else target[len(store.endpoint) :]})

    store.fault = fault
    assert_same(loader(remote), loader(local))


def test_a_proxy_that_dies_and_comes_back_changes_no_batch(
    local: hr.Dataset, store: StoreServer, tmp_path: Path
) -> None:
    with LinkProxy(store.port) as proxy:
        ours, here = loader(open_there(store, tmp_path / "indices", endpoint=proxy.endpoint)), loader(local)
        short = loader(open_there(store, tmp_path / "indices", endpoint=proxy.endpoint, retry_for=0.1))
        assert_same(ours, here)
        second: list[Any] = []
        proxy.die()
        thread = threading.Thread(target=lambda: second.extend(ours))
        thread.start()
        assert eventually(lambda: _retries(ours) >= 3)
        assert second == []
        proxy.come_back()
        thread.join(DEADLINE_S)
        assert_same(second, here)
        proxy.die()
        with pytest.raises(ReadError, match=r"^s3://bucket/shards/\d.tar, bytes .*: no connection .* attempts"):
            list(short)
        assert short.stats().bad == 0


def _retries(of: hr.Loader) -> int:
    fetch = of.stats().fetch
    return 0 if fetch is None else fetch.counts.retries


# --- credentials that expire under the run ---


def expiring(store: StoreServer, valid: list[str], code: str = "ExpiredToken") -> None:
    """Refuse every request that is not signed with the last of the keys."""
    store.fault = lambda seen: None if valid[-1] in seen.headers["authorization"] else Answer(400, code)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken", "RequestTimeTooSkewed"])
def test_credentials_of_the_environment_are_renewed_in_mid_epoch(
    local: hr.Dataset, store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    for name, value in (("ACCESS_KEY_ID", "OLDKEY"), ("SECRET_ACCESS_KEY", SECRET), ("ENDPOINT", store.endpoint)):
        monkeypatch.setenv(f"AWS_{name}", value)
    valid = ["OLDKEY"]
    expiring(store, valid, code)
    store.objects |= CONTENT
    ours, here = loader(hr.open("s3://bucket/shards/*.tar", cache=tmp_path / "indices")), iter(loader(local))
    batches = iter(ours)
    assert_same(islice(batches, 2), islice(here, 2))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEWKEY")
    valid.append("NEWKEY")
    assert_same(batches, here)
    assert_same(ours, second_epoch(local))


@pytest.mark.parametrize("answer", [Answer(400, ""), Answer(403, ""), Answer(403, "AccessDenied")], ids=str)
@pytest.mark.parametrize("come", [True, False], ids=["new keys come late", "none come"])
def test_credentials_that_lapse_are_asked_for_until_the_budget_ends(
    local: hr.Dataset,
    store: StoreServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    come: bool,
) -> None:
    for name, value in (("ACCESS_KEY_ID", "OLDKEY"), ("SECRET_ACCESS_KEY", SECRET), ("ENDPOINT", store.endpoint)):
        monkeypatch.setenv(f"AWS_{name}", value)
    store.objects |= CONTENT
    retry_for = 60 if come else 0.5
    data = hr.open("s3://bucket/shards/*.tar", cache=tmp_path / "indices", retry_for=retry_for)
    list(loader(data))  # so that reads have been accepted
    refused: list[Seen] = []

    def fault(seen: Seen) -> Answer | None:
        if "NEWKEY" in seen.headers["authorization"]:
            return None
        refused.append(seen)
        if come and len(refused) == 60:
            os.environ["AWS_ACCESS_KEY_ID"] = "NEWKEY"  # monkeypatch restores it
        return answer

    store.fault = fault
    if come:
        assert_same(loader(data), loader(local))
        assert len(refused) >= 60
    else:
        with pytest.raises(ReadError, match="accepted earlier requests: the credentials have expired"):
            list(loader(data))


def test_credentials_of_a_provider_are_renewed_in_mid_epoch(
    local: hr.Dataset, store: StoreServer, tmp_path: Path
) -> None:
    from obstore.store import S3Store

    valid = ["KEY0"]

    def provide() -> Any:
        soon = datetime.now(UTC) + timedelta(seconds=30)  # obstore asks again before that
        return {"access_key_id": valid[-1], "secret_access_key": SECRET, "token": None, "expires_at": soon}

    made = S3Store("bucket", endpoint=store.endpoint, client_options={"allow_http": True}, credential_provider=provide)
    store.objects |= CONTENT
    data = hr.open("s3://bucket/shards/*.tar", store=made, cache=tmp_path / "indices")
    list(loader(data))
    valid.append("KEY1")
    # Tokens are cached for a moment however soon they end, and refused ones are tried again at once.
    assert eventually(lambda: made is not None and _signed_with(data, store, "KEY1"))
    expiring(store, valid)
    assert_same(loader(data), loader(local))


def test_a_provider_is_asked_again_when_its_credentials_are_refused(
    local: hr.Dataset, store: StoreServer, tmp_path: Path
) -> None:
    """A provider that states no time of expiry is asked once by obstore, for ever."""
    from obstore.store import S3Store

    valid = ["KEY0"]

    def provide() -> Any:
        return {"access_key_id": valid[-1], "secret_access_key": SECRET, "token": None, "expires_at": None}

    made = S3Store("bucket", endpoint=store.endpoint, client_options={"allow_http": True}, credential_provider=provide)
    store.objects |= CONTENT
    ours = loader(hr.open("s3://bucket/shards/*.tar", store=made, cache=tmp_path / "indices"))
    here = iter(loader(local))
    batches = iter(ours)
    assert_same(islice(batches, 2), islice(here, 2))
    valid.append("KEY1")
    expiring(store, valid)
    assert_same(batches, here)
    assert_same(ours, second_epoch(local))


def _signed_with(data: hr.Dataset, store: StoreServer, key: str) -> bool:
    _ = data[0]
    return key in store.requests[-1].headers["authorization"]


# --- what stays wrong ---

STAYING: dict[str, tuple[Answer, type[HeadraceError], str]] = {
    "forbidden": (Answer(403, "AccessDenied"), ReadError, "403 Forbidden (AccessDenied), at each of 4 attempts. Check"),
    "unauthorized": (Answer(401, "x"), ReadError, "401 Unauthorized (x), at each of 4 attempts. Check the credentials"),
    "expired": (Answer(400, "ExpiredToken"), ReadError, "(ExpiredToken), at each of 4 attempts. Check the credentials"),
    "skewed": (Answer(403, "RequestTimeTooSkewed"), ReadError, "(RequestTimeTooSkewed), at each of 4 attempts. Check"),
    "gone": (
        Answer(404, "NoSuchKey"),
        NotFoundError,
        "404 Not Found (NoSuchKey), at each of 4 attempts. Check the address, or open the",
    ),
    "no bucket": (
        Answer(404, "NoSuchBucket"),
        NotFoundError,
        "404 Not Found (NoSuchBucket), at each of 4 attempts. Check the address, or",
    ),
    "replaced": (Answer(412, "PreconditionFailed"), ChangedError, "It was replaced since it was opened: open it again"),
    "other region": (Answer(301, "PermanentRedirect"), ReadError, "in another region: give store_options={'region'"),
    "whole objects": (Answer(act="whole"), ReadError, "use a server that answers range requests with 206"),
    "other bytes": (
        Answer(act="shifted"),
        ReadError,
        "the server answers with other bytes than it was asked for",
    ),
    "throttled": (SLOW_DOWN, ReadError, "503 Service Unavailable (SlowDown), at each of"),
    "reset": (RESET, ReadError, "the connection ended before the answer was complete"),
    "odd": (Answer(400, "AuthorizationHeaderMalformed"), ReadError, "400 Bad Request (AuthorizationHeaderMalformed)"),
}


@pytest.mark.parametrize("stays", STAYING)
@pytest.mark.one_in(8)
def test_what_stays_wrong_is_named_and_the_run_goes_on_from_its_state(
    local: hr.Dataset,
    store: StoreServer,
    tmp_path: Path,
    stays: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    answer, error, words = STAYING[stays]
    remote = open_there(store, tmp_path / "indices", token=TOKEN, retry_for=0.3)
    ours, here = loader(remote, max_bad=1.0), iter(loader(local))
    batches = iter(ours)
    assert_same(islice(batches, 1), islice(here, 1))
    store.fault = lambda seen: answer if seen.key == "shards/1.tar" else None
    second = loader(remote, max_bad=1.0)  # of what is not fetched yet
    second.load_state_dict(json.loads(json.dumps(ours.state_dict())))
    with pytest.raises(error) as caught:
        list(second)
    said = str(caught.value)
    assert said.startswith("s3://bucket/shards/1.tar, bytes ")
    assert words in said
    assert second.stats().bad == 0
    batches.close()
    store.fault = None
    third = loader(remote)
    third.load_state_dict(second.state_dict())
    rest = list(third)
    assert_same(rest, list(here)[-len(rest) :])
    left = ["".join(traceback.format_exception(caught.value)), caplog.text, json.dumps(second.state_dict())]
    left += [repr(each) + str(each) for each in (remote, second, second.stats())]
    assert_no_secret(*left, pickle.dumps(remote).decode("latin-1"), *files_below(tmp_path))


def files_below(folder: Path) -> list[str]:
    return [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]


def assert_no_secret(*texts: str) -> None:
    for text in texts:
        for secret in (KEY_ID, SECRET, TOKEN, "planted-signature"):
            assert secret not in text


@pytest.mark.one_in(2)
@pytest.mark.parametrize("etags", [True, False], ids=["etags", "times alone"])
@pytest.mark.parametrize("size", ["same size", "shorter"])
def test_an_object_replaced_under_the_run_is_named(store: StoreServer, tmp_path: Path, etags: bool, size: str) -> None:
    store.states_etags = etags
    remote = open_there(store, tmp_path / "indices")
    ours = loader(remote, batch_size=2)
    assert len(list(ours)) == 12
    old = CONTENT["shards/2.tar"]
    store.objects["shards/2.tar"] = (CONTENT["shards/1.tar"] * 2)[: len(old)] if size == "same size" else old[:-512]
    store.modified_s += 5 if not etags else 0
    with pytest.raises(ChangedError, match=r"^s3://bucket/shards/\d.tar, bytes .*It was replaced since it was opened"):
        list(ours)
    assert ours.stats().bad == 0


def test_a_server_that_states_nothing_of_contents_is_read_with_the_tars_own_checks(
    store: StoreServer, tmp_path: Path
) -> None:
    """Without ETag and with the same time, only the headers in the tar tell."""
    store.states_etags = False
    remote = open_there(store, tmp_path / "indices")
    store.objects["shards/2.tar"] = bytes(len(CONTENT["shards/2.tar"]))
    with pytest.raises(ChangedError, match=r"s3://bucket/shards/2\.tar at byte \d+: expected what was indexed"):
        list(loader(remote))


# --- names of keys ---

ODD_KEYS = (
    "a b/+plus.tar",
    "é/文字.tar",
    "100%/50%25 %2F.tar",
    "q?x=1&y#z.tar",
    "tilde~/(1),'2'!*.tar",
    "back\\slash.tar",
)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("key", ODD_KEYS)
def test_any_name_of_a_key_is_read(store: StoreServer, tmp_path: Path, key: str) -> None:
    (tmp_path / "one.tar").write_bytes(CONTENT["shards/0.tar"])
    store.objects[key] = CONTENT["shards/0.tar"]
    address = f"s3://bucket/{key.replace('*', '[*]')}"
    remote = hr.open(address, store_options=store.options, cache=tmp_path / "indices")
    assert_same(loader(remote), loader(hr.open(tmp_path / "one.tar")))
    store.fault = lambda _: Answer(404, "NoSuchKey")
    with pytest.raises(NotFoundError) as caught:
        list(loader(remote))
    assert str(caught.value).startswith(f"s3://bucket/{key}, bytes ")


def test_reasons_of_failures_are_known_words_alone() -> None:
    """Whatever an answer repeats: signatures, keys, addresses with queries."""
    bodies = [
        f"Generic S3 error: Server returned non-2xx status code: 400 Bad Request: <Code>X</Code>{SECRET}",
        f"Generic S3 error: error sending request for url (http://h/k?X-Amz-Signature={SECRET})",
        f"Generic error: http://me:{SECRET}@host/x: builder error",
        f"Generic S3 error: redirect http://h/?a=1&sig={SECRET}#f <b>{SECRET}",
    ]
    for body in bodies:
        assert SECRET not in remote_errors.failure_of(RuntimeError(body)).reason


TALKATIVE = """
    import logging, sys
    logging.basicConfig(level=logging.DEBUG)
    import headrace as hr
    endpoint, indices, key, secret, token = sys.argv[1:]
    options = {"endpoint": endpoint, "region": "r", "access_key_id": key, "secret_access_key": secret, "token": token}
    data = hr.open("s3://bucket/shards/*.tar", store_options=options, cache=indices)
    print(data, hr.Loader(data, view=hr.Resize(8), batch_size=4, output="numpy"))
    for batch in hr.Loader(data, view=hr.Resize(8), batch_size=4, output="numpy"):
        pass
"""


@pytest.mark.long
def test_a_process_that_logs_all_it_can_tells_no_secret(
    store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_LOG", "trace")
    monkeypatch.setenv("RUST_BACKTRACE", "full")
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    open_there(store, tmp_path / "indices")  # what is read from now on are samples, and the beginning of one tar
    store.fault = lambda seen: Answer(403, "AccessDenied") if (seen.end or 0) - (seen.start or 0) > 2048 else None
    code, out, error = run_python(TALKATIVE, store.endpoint, tmp_path / "indices", KEY_ID, SECRET, TOKEN)
    assert code == 1
    assert "Loader: 6 batches" in out
    assert "403 Forbidden (AccessDenied)" in error
    assert_no_secret(out, error, *files_below(tmp_path))
