"""Listings of stores: their pages fail one by one, and what is added is seen."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loader_data import encode, photograph
from servers import Answer, Seen, StoreServer

import headrace as hr
from headrace.data.remote import key_ranges, listing
from headrace.data.remote.key_ranges import list_objects
from headrace.data.remote.listing import Stores
from headrace.errors import ChangedError, ReadError
from headrace.stores import object_store
from headrace.stores.object_content import ListedObject, ObjectPin
from headrace.stores.object_store import ObjectStore
from headrace.stores.request_errors import FailedRequestError, FailureKind

COUNT, PAGE, FAILS = 200, 7, 5
PAGES = -(-COUNT // PAGE)
PHOTO = encode(photograph(0, 30, 36), "JPEG")
FAULTS = (Answer(500, "InternalError"), Answer(503, "SlowDown"), Answer(act="truncate"), Answer(act="reset"))
SCHEMES: dict[str, dict[str, Any]] = {
    "s3": {},
    "gs": {"anonymous": True},
    "az": {"account_name": "account", "anonymous": True},
}


def names(count: int) -> list[str]:
    return [f"{'cat' if number % 2 else 'dog'}/{number:05}.jpg" for number in range(count)]


@pytest.fixture
def remote(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    store.objects.update((f"train/{name}", PHOTO) for name in names(COUNT))
    store.page = PAGE
    return store


def is_listing(seen: Seen) -> bool:
    return not seen.key and "prefix=" in seen.query


def listings(store: StoreServer) -> int:
    return sum(map(is_listing, store.requests))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("where", ["train/", "train/**/*.jpg"])
def test_a_listing_goes_on_from_the_last_page_that_came(remote: StoreServer, scheme: str, where: str) -> None:
    failed: list[Seen] = []

    def fault(seen: Seen) -> Answer | None:
        asked = listings(remote)
        if not is_listing(seen) or asked % FAILS or asked > 5 * PAGES:  # then it began anew, again and again
            return None
        failed.append(seen)
        return FAULTS[len(failed) % len(FAULTS)]

    remote.fault = fault
    options = {"endpoint": remote.endpoint} if SCHEMES[scheme] else remote.options
    opened = hr.open(f"{scheme}://bucket/{where}", store_options=options | SCHEMES[scheme])
    assert sorted(opened.keys) == sorted(names(COUNT))
    assert len(failed) >= PAGES // FAILS
    again = FAILS - 1  # pages of the chunk that the first failure ends
    again += len(failed) // PAGE + 1 if scheme == "az" else 0  # pages for keys that Azure lists again
    assert PAGES + len(failed) <= listings(remote) <= PAGES + len(failed) + again


def test_a_listing_without_order_begins_anew(monkeypatch: pytest.MonkeyPatch, remote: StoreServer) -> None:
    begun: list[str | None] = []

    def listed(_: ObjectStore, prefix: str, resume: str | None, chunk: int) -> Iterator[ListedObject]:
        begun.append(resume)
        for key in ("p/b", "p/c", "p/a", "p/d"):
            yield ListedObject(key, ObjectPin(1, None))
            if key == "p/a" and len(begun) == 1:
                raise FailedRequestError(FailureKind.PASSING, "the store answers 503")

    monkeypatch.setattr(ObjectStore, "_listed", listed)
    store = Stores(remote.options).path("s3://bucket/p").store
    assert [each.key for each in list_objects(store, "p")] == ["p/a", "p/b", "p/c", "p/d"]
    assert begun == [None, None]


@pytest.mark.parametrize("where", ["train/", "train"])
def test_what_was_added_is_seen_at_the_next_open(remote: StoreServer, where: str) -> None:
    remote.page = 1000
    for more in range(3):
        remote.requests.clear()
        opened = hr.open(f"s3://bucket/{where}", store_options=remote.options)
        assert len(opened) == COUNT + more
        assert listings(remote) == 1
        remote.objects[f"train/cat/new {more}.jpg"] = PHOTO
    del remote.objects["train/cat/new 1.jpg"]
    assert len(hr.open(f"s3://bucket/{where}", store_options=remote.options)) == COUNT + 2


@pytest.mark.long
def test_a_long_listing_is_cached_and_its_age_logged(
    remote: StoreServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listing, "_FEW_OBJECTS", COUNT - 1)
    remote.page = 1000

    def opened() -> tuple[hr.Dataset, int]:
        remote.requests.clear()
        found = hr.open("s3://bucket/train/", store_options=remote.options)
        return found, listings(remote)

    def pages() -> int:
        return opened()[1]

    assert pages() == 2  # few objects, or many; then all of them
    assert not caplog.records
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * 3600)
    remote.objects["train/cat/new.jpg"] = PHOTO
    found, count = opened()
    assert (len(found), count) == (COUNT, 0)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("headrace", logging.WARNING)
    (place,) = [each for each in record.getMessage().split() if each.endswith(".headrace")]
    assert "2.0 h" in record.getMessage()
    Path(place).unlink()  # as the line advises
    assert [len(opened()[0]), pages()] == [COUNT + 1, 0]
    remote.objects["train/dog/00000.jpg"] = encode(photograph(1, 30, 36), "JPEG")
    with pytest.raises(ChangedError, match=r"s3://bucket/train/dog/00000\.jpg"):
        found.read("image", list(found.keys).index("dog/00000.jpg"))
    assert [pages(), pages()] == [2, 0]
    monkeypatch.setattr(time, "time", lambda: now + 26 * 3600 + 1)
    assert pages() == 2
    remote.objects = {name: data + b" " for name, data in remote.objects.items()}  # another upload
    assert pages() == 2


@pytest.mark.parametrize("where", ["train/", "train/**/*.jpg"])
@pytest.mark.parametrize("status", [503, 0])
def test_a_page_that_keeps_failing_ends_the_listing(remote: StoreServer, where: str, status: int) -> None:
    """Pages that came before it are no progress of a later attempt."""
    answer = Answer(status) if status else Answer(act="reset")
    remote.fault = lambda seen: answer if is_listing(seen) and "dog" in seen.query else None
    with pytest.raises(ReadError, match=r"s3://bucket/train/: could not be listed: .* at each of \d+ attempts"):
        hr.open(f"s3://bucket/{where}", store_options=remote.options, retry_for=0.5)


ODD_KEYS = ("train/cat//x.jpg", "train//x.jpg", "train/./x.jpg", "train/cat/../x.jpg", "train/a\x01b.jpg")


@pytest.mark.parametrize("where", ["train/", "train/**/*.jpg"])
@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_that_no_request_can_name_is_named(remote: StoreServer, where: str, key: str) -> None:
    remote.objects[key] = PHOTO
    with pytest.raises(ReadError) as caught:
        hr.open(f"s3://bucket/{where}", store_options=remote.options, retry_for=5)
    assert repr(key) in str(caught.value)
    assert listings(remote) <= PAGES + 4 * 2


@pytest.fixture
def large(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    """Three folders of 300 keys, and pages of 20, which are listed side by side."""
    monkeypatch.setattr(object_store, "_PAGE_KEYS", 20)
    monkeypatch.setattr(key_ranges, "_ALONE_OBJECTS", 80)
    monkeypatch.setattr(ObjectStore.list, "__kwdefaults__", {"chunk": 20})
    store.page = 20
    store.objects.update((f"train/{'abz'[number % 3]}/é {number:04}.jpg", b"x") for number in range(900))
    store.objects |= {f"other/{number}": b"" for number in range(50)}
    return store


def test_a_long_listing_is_cut_into_ranges_and_complete(large: StoreServer) -> None:
    fails = iter(FAULTS * 2)
    large.fault = lambda seen: next(fails, None) if "start-after" in seen.query else None
    store = Stores(large.options).path("s3://bucket/x").store
    found = list_objects(store, "train")
    assert [each.key for each in found] == sorted(key for key in large.objects if key.startswith("train/"))
    assert all(each.pin.size == 1 for each in found)
    pages, afters = 900 // 20, {seen.query for seen in large.requests if "start-after" in seen.query}
    assert len(afters) > key_ranges._THREADS / 2, "several ranges"
    assert listings(large) <= 1.6 * pages + len(FAULTS) * 2


@pytest.mark.parametrize(
    ("pattern", "most_pages"),
    [("train/a/*", 24), ("train/[ab]/*0.jpg", 48), ("train/a/é 00*", 4), ("train/z/é 00[01]*.jpg", 4), ("**/1*", 75)],
)
def test_only_keys_that_begin_as_the_pattern_are_listed(large: StoreServer, pattern: str, most_pages: int) -> None:
    expected = [key for key in sorted(large.objects) if listing._key_pattern(pattern).fullmatch(key)]
    assert expected
    found = Stores(large.options).resolve(f"s3://bucket/{pattern}")
    assert [path.key for path in found] == expected
    assert listings(large) <= most_pages + 1


def test_a_store_without_order_is_listed_anew_in_one_go(large: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sorted(key for key in large.objects if key.startswith("train/"))
    shuffled = expected[:90] + expected[90:][::-1]

    def listed(_: ObjectStore, prefix: str, resume: str | None, chunk: int) -> Iterator[ListedObject]:
        yield from (ListedObject(key, ObjectPin(1, None)) for key in shuffled if resume is None or key > resume)

    monkeypatch.setattr(ObjectStore, "_listed", listed)
    store = Stores(large.options).path("s3://bucket/x").store
    assert [each.key for each in list_objects(store, "train")] == expected


def test_a_range_that_keeps_failing_ends_a_listing_of_several_threads(large: StoreServer) -> None:
    large.fault = lambda seen: Answer(503) if "z%2F" in seen.query else None
    store = Stores(large.options, retry_for_s=0.5).path("s3://bucket/x").store
    with pytest.raises(ReadError, match="could not be listed"):
        list_objects(store, "train")


def test_pages_that_come_again_are_no_progress(monkeypatch: pytest.MonkeyPatch, large: StoreServer) -> None:
    """A listing without order begins anew, and fails at the same place each time."""

    def listed(_: ObjectStore, prefix: str, resume: str | None, chunk: int) -> Iterator[ListedObject]:
        yield from (ListedObject(f"p/{key}", ObjectPin(1, None)) for key in range(45, 0, -1))
        raise FailedRequestError(FailureKind.PASSING, "the store answers 503")

    monkeypatch.setattr(ObjectStore, "_listed", listed)
    store = Stores(large.options, retry_for_s=0.5).path("s3://bucket/p").store
    with pytest.raises(ReadError, match="could not be listed"):
        list_objects(store, "p")


def test_a_cut_is_between_its_ends() -> None:
    draw = random.Random(0)
    for _ in range(2000):
        low, high = sorted("".join(draw.choices("09/az", k=draw.randint(1, 6))) for _ in range(2))
        cut = key_ranges.key_between(low, high + "~", sorted(set(low + high) - {"/"}))
        assert cut is None or low < cut < high + "~"
    assert key_ranges.key_between("n01/a", "n\U0010ffff", "0123456789") == "n5"
    assert key_ranges.key_between("n01/a", "n1", "019") == "n09"
