"""Captions that are missing, damaged, empty or huge; tokenizers that are none: replaced, or named at once."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from bad_loads import says
from loader_data import COUNT
from text_data import (
    CAPTIONS,
    EMPTY,
    MISSING,
    NOT_UTF8,
    PAD,
    described,
    tokenizer,
    whitespace,
    write_manifest,
    write_tar,
)
from tokenizers import Tokenizer

import headrace as hr
from headrace.errors import DecodeError, LimitError, TooManyBadSamplesError, UsageError


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return hr.open(write_tar(tmp_path_factory.mktemp("damaged") / "pairs.tar", damaged=True))


def words(**options):
    return hr.Text(whitespace, max_length=50, pad_id=0, **options)


def load(dataset, field, **options):
    return hr.Loader(dataset, {"text": field, "key": hr.Raw(source="__key__")}, batch_size=8, output="numpy", **options)


def test_missing_and_damaged_captions_are_replaced(damaged, tmp_path):
    place = tmp_path / "quarantine.jsonl"
    loader = load(damaged, words(), max_bad=0.1, quarantine=place, shuffle=True)
    found = {key: row for batch in loader for key, row in zip(batch["key"], rows(batch), strict=True)}
    assert {f"{MISSING:04}", f"{NOT_UTF8:04}"} & set(found) == set()
    for key, lengths in found.items():
        assert lengths == whitespace([CAPTIONS[int(key)]])[0], "ids are those of the sample that stands in"
    assert found[f"{EMPTY:04}"] == [], "an empty text is none of these"
    stats = loader.stats()
    assert (stats.bad, stats.replaced, stats.samples) == (2, 2, COUNT)
    known = {record["key"]: record for record in map(json.loads, place.read_text().splitlines())}
    assert "no such member" in known[f"{MISSING:04}"]["why"]
    assert known[f"{NOT_UTF8:04}"]["why"] == "expected UTF-8, got the byte 0xe9 at 3"
    assert all(record["field"] == "text" and record["shard"].endswith("pairs.tar") for record in known.values())


def rows(batch):
    return [ids[mask].tolist() for ids, mask in zip(batch["text"]["ids"], batch["text"]["mask"], strict=True)]


@pytest.mark.parametrize(("number", "why"), [(MISSING, "no such member"), (NOT_UTF8, "expected UTF-8")])
def test_missing_and_damaged_captions_are_raised(damaged, number, why):
    with pytest.raises(DecodeError, match=why) as caught:
        list(load(damaged[number : number + 1], words(), on_error="raise"))
    assert (caught.value.key, caught.value.field) == (f"{number:04}", "text")


def test_too_many_bad_captions(damaged):
    with pytest.raises(TooManyBadSamplesError, match="2 of 40 samples are bad"):
        list(load(damaged, words(), max_bad=0.01))


def test_a_list_without_captions_is_named_by_its_line(tmp_path):
    dataset = hr.open(write_manifest(tmp_path / "lists.jsonl", [["one"], [], ["two", "three"]]))
    with pytest.raises(
        DecodeError, match=r"sample '', field 'text' \(line 2 of .*lists.jsonl\): the sample has no text"
    ):
        list(load(dataset, words(source="captions"), on_error="raise"))
    assert load(dataset, words(source="text"), on_error="raise"), "an empty text is a text"


@pytest.mark.long
def test_a_megabyte_is_a_bad_sample_unless_it_is_wanted(tmp_path):
    huge = "word " * 200_000
    dataset = hr.open(write_manifest(tmp_path / "huge.jsonl", [["short"], [huge]]))
    loader = load(dataset, hr.Text(tokenizer(), max_length=77), max_bad=1.0)
    (batch,) = loader
    assert [len(row) for row in rows(batch)] == [len(tokenizer().encode("short").ids)] * 2
    with pytest.raises(LimitError) as caught:
        list(load(dataset, hr.Text(tokenizer(), max_length=77), on_error="raise"))
    says(caught, "a text of 1,000,000 bytes", "more than max_bytes=65536", "Text(max_bytes=…)", "line 2 of")
    (batch,) = load(dataset, hr.Text(tokenizer(), max_length=77, max_bytes=1 << 20), on_error="raise")
    assert [len(row) for row in rows(batch)] == [len(tokenizer().encode("short").ids), 77]


def test_the_default_limit_grows_with_the_length():
    assert [hr.Text(whitespace, max_length=tokens).most_bytes for tokens in (77, 1024, 8192)] == [
        65_536, 65_536, 524_288,
    ]  # fmt: skip
    assert hr.Text(whitespace, max_length=8192, max_bytes=10).most_bytes == 10


# --- what a function returns ---


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (lambda texts: [[1]] * (len(texts) - 1), "to return 8 sequences of ids, got 7"),
        (lambda texts: {"ids": [[1]] * len(texts)}, "to return 8 sequences of ids, got 'dict'"),
        (lambda texts: "x" * len(texts), "to return 8 sequences of ids, got 'str'"),
        (lambda texts: None, "to return 8 sequences of ids, got 'NoneType'"),
        (lambda texts: [[1.5]] * len(texts), "whole numbers of at least 0 for each text, got [1.5] for text 0"),
        (lambda texts: [[True]] * len(texts), "whole numbers of at least 0 for each text, got [True] for text 0"),
        (lambda texts: [["a"]] * len(texts), "whole numbers of at least 0 for each text, got ['a'] for text 0"),
        (lambda texts: [[1], [2, -3], *texts[2:]], "got the id -3 for text 1 of a batch"),
        (lambda texts: [[[1], [2]]] * len(texts), "got [[1], [2]] for text 0"),
        (lambda texts: [[[1], [2, 3]]] * len(texts), "got [[1], [2, 3]] for text 0"),
        (lambda texts: [7] * len(texts), "got 7 for text 0"),
        (lambda texts: [[1 << 63]] * len(texts), f"got [{1 << 63}] for text 0"),
        (lambda texts: [[1 << 64]] * len(texts), f"got [{1 << 64}] for text 0"),
    ],
)
def test_what_is_no_ids_is_named(damaged, returned, got):
    with pytest.raises(UsageError) as caught:
        list(load(damaged[20:], hr.Text(returned, max_length=5, pad_id=0)))
    says(caught, "field 'text': expected the tokenizer", got)


def test_what_a_function_raises_keeps_its_type(damaged):
    def fails(texts):
        raise KeyError("vocabulary")

    def stops(texts):
        return next(iter(()))

    with pytest.raises(KeyError, match="vocabulary") as caught:
        list(load(damaged[20:], hr.Text(fails, max_length=5, pad_id=0)))
    assert caught.value.__notes__ == ["in the tokenizer of field 'text'"]
    with pytest.raises(RuntimeError, match="StopIteration raised in the tokenizer of field 'text'"):
        list(load(damaged[20:], hr.Text(stops, max_length=5, pad_id=0)))


def test_arrays_and_tensors_are_ids(damaged):
    import torch

    for kind in (np.asarray, torch.tensor, tuple):
        made = hr.Text(lambda texts, kind=kind: [kind([1, 2, 3]) for _ in texts], max_length=2, pad_id=0)
        assert rows(next(iter(load(damaged[20:], made)))) == [[1, 2]] * 8


# --- arguments ---


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ({"max_length": 0}, ["expected max_length to be an int from 1", "got 0"]),
        ({"max_length": 7.0}, ["expected max_length to be an int from 1", "got 7.0"]),
        ({"pad": "longest"}, ["expected pad to be 'batch', 'max' or an int of at least 1, got 'longest'"]),
        ({"pad": 0}, ["expected pad", "got 0"]),
        ({"pad": True}, ["expected pad", "got True"]),
        ({"captions": "all"}, ["expected captions to be one of ('random', 'first'), got 'all'"]),
        ({"pad_id": -1}, ["expected pad_id to be None or an int of at least 0, got -1"]),
        ({"max_bytes": 0}, ["expected max_bytes to be None or an int of at least 1, got 0"]),
        ({"version": 2}, ["expected version to be None or a text, got 2"]),
        ({"tokenizer": 5}, ["expected tokenizer to be a path of a tokenizer.json", "got 5"]),
    ],
)
def test_wrong_arguments_are_named(arguments, texts):
    with pytest.raises(UsageError) as caught:
        hr.Text(**({"tokenizer": whitespace, "max_length": 5} | arguments))
    says(caught, "Text: ", *texts)


def refused(dataset, field, *texts):
    with pytest.raises(UsageError) as caught:
        load(dataset, field)
    says(caught, "field 'text': ", *texts)


def test_a_tokenizer_without_a_pad_token(damaged):
    unpadded = Tokenizer.from_str(described().replace(PAD, "<unused>"))
    for made in (unpadded, whitespace):
        refused(damaged, hr.Text(made, max_length=5), "without a pad token", "pad_token = …", "Text(pad_id=…)", "mask")
    assert load(damaged, hr.Text(unpadded, max_length=5, pad_id=2))


def test_places_that_hold_no_tokenizer(damaged, tmp_path):
    refused(
        damaged,
        hr.Text(tmp_path / "none.json", max_length=5),
        "none.json, which is no file; load one that a hub names",
    )
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    refused(damaged, hr.Text(tmp_path, max_length=5), f"did you mean {tmp_path / 'tokenizer.json'}?")
    (tmp_path / "cut.json").write_text(described()[:500])
    refused(
        damaged, hr.Text(tmp_path / "cut.json", max_length=5), "expected a tokenizer.json as the library", "cut.json"
    )


def test_the_library_is_not_installed(damaged, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    refused(damaged, hr.Text(tmp_path / "tokenizer.json", max_length=5), 'pip install "headrace[text]"')
    assert load(damaged, words()), "a function needs no library"


def test_a_tokenizer_that_draws_at_random(damaged):
    made = tokenizer()
    made.model.dropout = 0.1
    refused(damaged, hr.Text(made, max_length=5), "dropout=0.1", "tokenizer.model.dropout = None")


def test_a_tokenizer_with_parts_of_python(damaged):
    from tokenizers.pre_tokenizers import PreTokenizer

    class Spaces:
        def pre_tokenize(self, pretok):
            pretok.split(lambda _, text: [text])

    made = tokenizer()
    made.pre_tokenizer = PreTokenizer.custom(Spaces())
    refused(damaged, hr.Text(made, max_length=5), "expected a tokenizer that can be saved", "pass a function")


def test_no_room_for_special_tokens(damaged):
    refused(damaged, hr.Text(tokenizer(), max_length=1), "expected max_length of at least 2, the special tokens")


def test_columns_without_texts(damaged, tmp_path):
    place = tmp_path / "numbers.jsonl"
    place.write_text('{"n": 1, "list": [1, 2]}\n' * 3)
    dataset = hr.open(place)
    refused(dataset, words(source="n"), "expected a column of texts", "got the values of 'n'")
    refused(dataset, words(source="list"), "expected a column of texts", "got the lists of numbers of 'list'")
    refused(damaged, words(source="caption"), "expected a column of the dataset, got 'caption'", "source=")


def test_bytes_of_a_field_of_tokens(damaged):
    with pytest.raises(UsageError) as caught:
        hr.Loader(
            damaged, {"text": words()}, batch_size=hr.Budget(bytes=100), buckets=hr.Buckets("length", source="text")
        )
    says(caught, "bytes needs lengths in bytes, got those of the field 'text', which are tokens", "use tokens=")


def test_two_fields_of_the_column_that_is_measured(damaged):
    fields = {"short": words(source="txt"), "long": words(source="txt")}
    with pytest.raises(UsageError) as caught:
        hr.Loader(damaged, fields, batch_size=4, buckets=hr.Buckets("length", source="txt"))
    says(caught, "got 'txt', the column of 'short', 'long'; name a field")
