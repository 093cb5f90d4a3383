"""Lengths in tokens: against a call for each text, kept by the tokenizer's identity, and as what buckets measure."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from text_data import CAPTIONS, MISSING, NOT_UTF8, caption, is_trial, tokenizer, whitespace, write_manifest, write_tar

import headrace as hr
from headrace.fields import resolve_texts

COUNT = 1030
"""As many as are worth keeping."""


@pytest.fixture(scope="module")
def lists():
    return [[caption(3 * number + which) for which in range(number % 4)] for number in range(COUNT)]


@pytest.fixture(scope="module")
def dataset(lists, tmp_path_factory):
    return hr.open(write_manifest(tmp_path_factory.mktemp("lengths") / "captions.jsonl", lists))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def token_lengths(dataset, column, encode, **options):
    (text,) = resolve_texts(dataset, {"field": hr.Text(encode, source=column, pad_id=0, **options)})
    return text.lengths()


def kept(folder):
    return sorted(path.name for path in folder.glob("tokens.*.headrace")) if folder.exists() else []


@cache
def cutting(max_length):
    own = tokenizer()
    own.enable_truncation(max_length)
    own.no_padding()
    return own


def one_by_one(texts, max_length):
    return [len(cutting(max_length).encode(text).ids) for text in texts]


def counted(calls):
    def encode(texts):
        if not is_trial(texts):
            calls.append(len(texts))
        return whitespace(texts)

    return encode


def test_lengths_are_those_of_single_calls(dataset, lists, own_cache):
    for column, texts in (("text", [[each[0]] if each else [""] for each in lists]), ("captions", lists)):
        found = token_lengths(dataset, column, tokenizer(), max_length=20)
        expected = [max(one_by_one(each, 20), default=-1) for each in texts]
        assert found.dtype == np.int32
        assert found.tolist() == expected
        assert not found.flags.writeable
    first = token_lengths(dataset, "captions", tokenizer(), max_length=20, captions="first")
    assert first.tolist() == [one_by_one(each[:1], 20)[0] if each else -1 for each in lists]


def test_members_in_utf8(tmp_path, own_cache):
    dataset = hr.open(write_tar(tmp_path / "pairs.tar", damaged=True))
    expected = one_by_one(CAPTIONS, 50)
    expected[MISSING] = expected[NOT_UTF8] = -1
    assert token_lengths(dataset, "txt", tokenizer(), max_length=50).tolist() == expected
    limited = token_lengths(dataset, "txt", whitespace, max_length=50, max_bytes=12)
    assert all(
        length == (-1 if len(text.encode()) > 12 or number in (MISSING, NOT_UTF8) else len(text.split()))
        for number, (length, text) in enumerate(zip(limited.tolist(), CAPTIONS, strict=True))
    )


def test_a_selection_is_told_by_base_ids(dataset, lists):
    part = dataset.select([7, 3, 1000])
    found = token_lengths(part, "text", whitespace, max_length=50)
    assert len(found) == COUNT
    assert np.flatnonzero(found >= 0).tolist() == [3, 7, 1000]
    assert found[7] == len(lists[7][0].split())


def test_lengths_are_kept_for_one_tokenizer_and_length(dataset, own_cache):
    calls = []
    first = token_lengths(dataset, "captions", counted(calls), max_length=9, version="1")
    made = len(calls)
    assert made > 0
    assert len(kept(own_cache)) == 1
    np.testing.assert_array_equal(token_lengths(dataset, "captions", counted(calls), max_length=9, version="1"), first)
    assert len(calls) == made, "kept, and not encoded again"
    token_lengths(dataset, "captions", counted(calls), max_length=9, version="2")
    token_lengths(dataset, "captions", counted(calls), max_length=8, version="1")
    token_lengths(dataset, "captions", counted(calls), max_length=9, version="1", captions="first")
    token_lengths(dataset, "text", counted(calls), max_length=9, version="1")
    token_lengths(dataset[1:], "captions", counted(calls), max_length=9, version="1")
    assert len(kept(own_cache)) == 6


def test_a_changed_tokenizer_is_noticed(dataset, lists, own_cache):
    before = token_lengths(dataset, "text", tokenizer(), max_length=60)
    other = tokenizer()
    other.add_tokens(["red under", "a street"])
    after = token_lengths(dataset, "text", other, max_length=60)
    assert (after < before).any()
    other.enable_truncation(60)
    other.no_padding()
    assert after.tolist() == [len(other.encode(each[0] if each else "").ids) for each in lists]


def test_a_function_without_a_version_is_not_kept(dataset, own_cache):
    calls = []
    for _ in range(2):
        token_lengths(dataset, "text", counted(calls), max_length=9)
    assert kept(own_cache) == []
    assert sum(calls) == 2 * COUNT


def test_a_damaged_file_is_made_anew(dataset, own_cache):
    first = token_lengths(dataset, "text", tokenizer(), max_length=20).copy()
    (place,) = own_cache.glob("tokens.*.headrace")
    whole = place.read_bytes()
    for damaged in (whole[:100], whole[:-4], b""):
        place.write_bytes(damaged)
        with pytest.warns(UserWarning, match=r"expected the lengths of .* texts, got a damaged file"):
            np.testing.assert_array_equal(token_lengths(dataset, "text", tokenizer(), max_length=20), first)
        assert place.read_bytes() == whole


def test_memory_is_a_block_of_texts(dataset):
    calls = []
    token_lengths(dataset, "captions", counted(calls), max_length=9)
    assert max(calls) <= 1024


@pytest.mark.parametrize("source", ["field", "captions"])
def test_buckets_measure_tokens(dataset, lists, source, own_cache):
    """A batch's lengths lie within one bucket, and its budget bears them as they are padded."""
    some = dataset.select([number for number, each in enumerate(lists) if each])
    loader = hr.Loader(
        some,
        {"field": hr.Text(tokenizer(), max_length=20, source="captions", pad=4)},
        batch_size=hr.Budget(tokens=200),
        buckets=hr.Buckets("length", source=source, edges=(6, 10, 15)),
        shuffle=True,
        output="numpy",
    )
    longest = {number: max(one_by_one(each, 20)) for number, each in enumerate(lists) if each}
    sizes = []
    for batch in loader:
        ids, mask = batch["field"]["ids"], batch["field"]["mask"]
        assert ids.size <= 200
        assert ids.shape[1] % 4 == 0
        sizes.append(len(ids))
        assert mask.sum(axis=1).max() <= max(longest.values())
    assert sum(sizes) == len(some)
    assert max(sizes) == 200 // 8, "short texts share a batch"
    assert np.median(sizes) >= 200 // 20, "long ones are counted in tokens, of which none has more than 20"


def test_a_column_that_no_text_field_reads_is_measured_in_bytes(dataset, own_cache):
    field = {"field": hr.Text(tokenizer(), max_length=20, source="captions")}
    loader = hr.Loader(dataset, field, batch_size=4, buckets=hr.Buckets("length", source="text"), output="numpy")
    assert kept(own_cache) == []
    assert len(loader) > 0


def test_padding_to_the_maximum_costs_the_maximum(dataset, lists, own_cache):
    some = dataset.select([number for number, each in enumerate(lists) if each])
    loader = hr.Loader(
        some,
        {"text": hr.Text(tokenizer(), max_length=20, pad="max")},
        batch_size=hr.Budget(tokens=200),
        buckets=hr.Buckets("length", source="text"),
        output="numpy",
    )
    assert {batch["text"]["ids"].shape for batch in loader} <= {(10, 20), (len(some) % 10, 20)}
