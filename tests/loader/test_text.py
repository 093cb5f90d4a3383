"""Text fields against the tokenizers' own way: a text a call, with their own truncation and padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loader_data import COUNT
from processes import in_fork
from scipy.stats import chisquare
from text_data import CAPTIONS, PAD, expected, tokenizer, whitespace, write_manifest, write_tar
from twin.rng import philox

import headrace as hr
from headrace.fields.tokens.tokenizers import resolve_tokenizer

LONG = 12


@pytest.fixture(scope="module")
def tar(tmp_path_factory):
    return hr.open(write_tar(tmp_path_factory.mktemp("text") / "pairs.tar"))


def batches(dataset, field, *, fields=None, batch_size=7, **options):
    loader = hr.Loader(dataset, {"text": field} | (fields or {}), batch_size=batch_size, output="numpy", **options)
    return list(loader)


def chunks(texts, size=7):
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def assert_as_expected(found, texts, **how):
    for batch, part in zip(found, chunks(texts), strict=True):
        ids, mask = expected(part, **how)
        np.testing.assert_array_equal(batch["text"]["ids"], ids)
        np.testing.assert_array_equal(batch["text"]["mask"], mask)
        assert (batch["text"]["ids"].dtype, batch["text"]["mask"].dtype) == (np.int64, np.bool_)


@pytest.mark.parametrize("source", ["txt", "text"], ids=["member", "alias"])
def test_ids_are_those_of_the_library(tar, source):
    assert_as_expected(batches(tar, hr.Text(tokenizer(), max_length=LONG, source=source)), CAPTIONS, max_length=LONG)


def test_padding_to_the_maximum(tar):
    found = batches(tar, hr.Text(tokenizer(), max_length=LONG, pad="max"))
    assert_as_expected(found, CAPTIONS, max_length=LONG, length=LONG)


def test_padding_to_a_multiple(tar):
    for batch, part in zip(batches(tar, hr.Text(tokenizer(), max_length=50, pad=8)), chunks(CAPTIONS), strict=True):
        ids, mask = expected(part, max_length=50)
        length = -(-ids.shape[1] // 8) * 8
        assert batch["text"]["ids"].shape == (len(part), length)
        np.testing.assert_array_equal(batch["text"]["ids"], np.pad(ids, ((0, 0), (0, length - ids.shape[1]))))
        np.testing.assert_array_equal(batch["text"]["mask"], np.pad(mask, ((0, 0), (0, length - ids.shape[1]))))


def test_a_tokenizer_that_pads_and_cuts_on_the_left(tar):
    left = tokenizer(direction="left")
    assert_as_expected(batches(tar, hr.Text(left, max_length=LONG)), CAPTIONS, max_length=LONG, left=True)
    left.enable_truncation(5, direction="left")
    own = tokenizer()
    own.no_padding()
    own.enable_truncation(LONG, direction="left")
    (batch,) = batches(tar, hr.Text(left, max_length=LONG), batch_size=COUNT)
    got = [ids[mask].tolist() for ids, mask in zip(batch["text"]["ids"], batch["text"]["mask"], strict=True)]
    assert got == [own.encode(text).ids for text in CAPTIONS]
    assert left.truncation["max_length"] == 5, "the user's own is not changed"


def test_a_file_and_an_object_are_alike(tar, tmp_path):
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    for place in (tmp_path / "tokenizer.json", str(tmp_path / "tokenizer.json")):
        assert_as_expected(batches(tar, hr.Text(place, max_length=LONG)), CAPTIONS, max_length=LONG)


def test_an_object_is_not_changed_and_later_changes_do_not_matter(tar):
    own = tokenizer()
    own.enable_truncation(3)
    before = own.to_str()
    loader = hr.Loader(tar, {"text": hr.Text(own, max_length=LONG)}, batch_size=7, output="numpy")
    assert own.to_str() == before
    own.enable_truncation(1)
    assert_as_expected(list(loader), CAPTIONS, max_length=LONG)


def test_tokenizers_of_transformers_are_called_as_they_call_themselves(tar):
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer(), pad_token=PAD, padding_side="left")
    fast(CAPTIONS[:3], padding=True, truncation=True, max_length=4)  # which leaves its settings in the backend
    for batch, part in zip(batches(tar, hr.Text(fast, max_length=LONG)), chunks(CAPTIONS), strict=True):
        theirs = fast(part, padding=True, truncation=True, max_length=LONG, return_tensors="np")
        np.testing.assert_array_equal(batch["text"]["ids"], theirs["input_ids"])
        np.testing.assert_array_equal(batch["text"]["mask"], theirs["attention_mask"].astype(bool))


def test_a_slow_tokenizer_of_transformers(tar):
    from transformers import PythonBackend

    class Letters(PythonBackend):
        vocab_size = 300

        def get_vocab(self):
            return {PAD: 0} | {chr(code): code for code in range(32, 300)}

        def _tokenize(self, text):
            return list(text)

        def _convert_token_to_id(self, token):
            return self.get_vocab().get(token, 1)

        def _convert_id_to_token(self, index):
            return chr(index)

    slow = Letters(pad_token=PAD)
    for batch, part in zip(batches(tar, hr.Text(slow, max_length=LONG)), chunks(CAPTIONS), strict=True):
        theirs = slow(part, padding=True, truncation=True, max_length=LONG, return_tensors="np")
        np.testing.assert_array_equal(batch["text"]["ids"], theirs["input_ids"])


def test_one_of_the_librarys_own_implementations(tar):
    from tokenizers.implementations import BaseTokenizer

    assert_as_expected(batches(tar, hr.Text(BaseTokenizer(tokenizer()), max_length=LONG)), CAPTIONS, max_length=LONG)


def test_a_class_of_the_users_own_is_called_whatever_it_has(tar):
    class Marked:
        def __init__(self):
            self.backend_tokenizer = self._tokenizer = tokenizer()

        def __call__(self, texts):
            return [[7, *each.ids] for each in self._tokenizer.encode_batch(texts)]

    for batch in batches(tar, hr.Text(Marked(), max_length=LONG, pad_id=0)):
        assert (batch["text"]["ids"][:, 0] == 7).all()


def test_a_function_is_called_once_a_batch(tar):
    calls = []

    def counted(texts):
        calls.append(list(texts))
        return whitespace(texts)

    loader = hr.Loader(tar, {"text": hr.Text(counted, max_length=5, pad_id=99)}, batch_size=7, output="numpy")
    del calls[:]  # with two texts that are not the dataset's, to see whether it pads its rows
    found = list(loader)
    assert calls == chunks(CAPTIONS)
    for batch, part in zip(found, chunks(CAPTIONS), strict=True):
        for ids, mask, text in zip(batch["text"]["ids"], batch["text"]["mask"], part, strict=True):
            assert ids[mask].tolist() == [len(word) for word in text.split()][:5]
            assert (ids[~mask] == 99).all()


def test_no_text_but_empty_ones(tmp_path):
    dataset = hr.open(write_manifest(tmp_path / "empty.jsonl", [[""]] * 3))
    (batch,) = batches(dataset, hr.Text(whitespace, max_length=5, pad_id=7))
    assert batch["text"]["ids"].tolist() == [[7], [7], [7]]
    assert not batch["text"]["mask"].any()


def test_a_rank_without_a_sample(tar):
    for pad, length in (("batch", 1), (8, 8), ("max", LONG)):
        *_, last = batches(tar[:13], hr.Text(tokenizer(), max_length=LONG, pad=pad), batch_size=3, rank=0, world_size=4)
        assert last["text"]["ids"].shape == last["text"]["mask"].shape == (0, length)


def test_texts_that_a_manifest_holds(tmp_path):
    dataset = hr.open(write_manifest(tmp_path / "texts.jsonl", [[text] for text in CAPTIONS]))
    for field in (
        hr.Text(tokenizer(), max_length=LONG),
        hr.Text(tokenizer(), max_length=LONG, source="captions"),
        hr.Text(tokenizer(), max_length=LONG, source="captions", captions="first"),
    ):
        assert_as_expected(batches(dataset, field), CAPTIONS, max_length=LONG)


def test_keys_as_texts(tar):
    found = batches(
        tar, hr.Text(lambda texts: [[int(text)] for text in texts], max_length=2, pad_id=0, source="__key__")
    )
    assert np.concatenate([batch["text"]["ids"][:, 0] for batch in found]).tolist() == list(range(COUNT))


# --- several captions ---


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Sample k has 1 + k % 5 captions: the texts of 10 k, 10 k + 1, …"""
    lists = [[str(10 * number + which) for which in range(1 + number % 5)] for number in range(2000)]
    return hr.open(write_manifest(tmp_path_factory.mktemp("several") / "captions.jsonl", lists))


def numbers(texts):
    return [[int(text)] for text in texts]


def drawn(dataset, **options):
    field = hr.Text(numbers, max_length=1, pad_id=0, source="captions", captions=options.pop("captions", "random"))
    loader = hr.Loader(dataset, {"text": field}, batch_size=100, output="numpy", **options)
    return [np.concatenate([batch["text"]["ids"][:, 0] for batch in loader]) for _ in range(options.pop("epochs", 3))]


def test_drawn_captions_are_those_of_the_twin(several):
    from twin.rng import hash64

    for epoch, found in enumerate(drawn(several, seed=4)):
        ids = np.arange(2000)
        counter = np.stack([ids, ids * 0, ids * 0, np.full_like(ids, 254 << 8)], 1).astype(np.uint32)
        words = philox(hash64(4, epoch), counter)[:, 1].astype(np.uint64)
        which = (words * (1 + ids % 5).astype(np.uint64)) >> np.uint64(32)
        np.testing.assert_array_equal(found, 10 * ids + which.astype(np.int64))


def test_each_caption_is_as_likely_as_any(several):
    found = np.concatenate(drawn(several, seed=9))
    for count in range(2, 6):
        of_count = found[found // 10 % 5 == count - 1] % 10
        seen = np.bincount(of_count, minlength=count)
        assert len(seen) == count
        assert chisquare(seen).pvalue > 1e-4


def test_the_first_caption(several):
    assert all((found % 10 == 0).all() for found in drawn(several, captions="first"))


def test_a_sample_that_comes_twice_in_an_epoch_is_drawn_anew(several):
    part = several[4::5][:150]  # of five captions each
    field = hr.Text(numbers, max_length=1, pad_id=0, source="captions")
    loader = hr.Loader(part, {"text": field}, batch_size=100, remainder="wrap", shuffle=True, output="numpy")
    found = np.concatenate([batch["text"]["ids"][:, 0] for batch in loader])
    first = {number // 10: number % 10 for number in found[:150]}
    again = [first[number // 10] == number % 10 for number in found[150:]]
    assert len(again) == 50
    assert 0 < sum(again) < 30


def test_two_fields_take_the_same_caption(several):
    fields = {
        "short": hr.Text(numbers, max_length=1, pad_id=0, source="captions"),
        "long": hr.Text(numbers, max_length=3, pad_id=0, pad="max", source="captions"),
    }
    for batch in hr.Loader(several, fields, batch_size=500, output="numpy"):
        np.testing.assert_array_equal(batch["short"]["ids"][:, 0], batch["long"]["ids"][:, 0])


def test_a_selection_draws_as_the_whole_does(several):
    whole, part = drawn(several, seed=2)[0], drawn(several[500:900], seed=2)[0]
    np.testing.assert_array_equal(part, whole[500:900])


# --- what comes after ---


def halve(sample, rng):
    length = len(sample["text"]["ids"]) // 2
    sample["text"] = {name: part[:length] for name, part in sample["text"].items()}
    return sample | {"count": int(sample["text"]["mask"].sum())}


def in_place(sample, rng):
    sample["text"]["ids"] = sample["text"]["ids"] + 1
    return sample


def reworked(sample, rng):
    return {"words": sample["text"]["ids"], "meta": {"n": 1}}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.one_in(2)
def test_map_sees_a_row_of_ids_and_mask(tar, workers, output):
    field = hr.Text(tokenizer(), max_length=LONG, pad="max")
    plain = np.concatenate([batch["text"]["ids"] for batch in batches(tar, field)])
    options = {"batch_size": 16, "output": output, "map_workers": workers}
    for function, expect in ((halve, plain[:, : LONG // 2]), (in_place, plain + 1)):
        found = list(hr.Loader(tar, {"text": field}, map=function, **options))
        assert type(found[0]["text"]["ids"]) is (np.ndarray if output == "numpy" else torch.Tensor)
        np.testing.assert_array_equal(np.concatenate([np.asarray(batch["text"]["ids"]) for batch in found]), expect)
        assert list(found[0]["text"]) == ["ids", "mask"]
    (first, *_) = hr.Loader(tar, {"text": field}, map=reworked, **options)
    assert list(first) == ["words", "meta"]
    assert first["meta"] == [{"n": 1}] * 16, "other dicts are values like any other"


def test_map_that_returns_other_parts_for_some_rows(tar):
    def some(sample, rng):
        if sample["text"]["ids"][1] % 2:
            del sample["text"]["mask"]
        return sample

    with pytest.raises(hr.HeadraceError, match=r"a dict with the fields \['text.ids'.*at row"):
        batches(tar, hr.Text(tokenizer(), max_length=LONG), batch_size=COUNT, map=some)


def test_batch_map_and_tensors(tar):
    seen = []

    def look(batch, rng):
        seen.append(batch["text"]["ids"].shape)
        return batch

    loader = hr.Loader(tar, {"text": hr.Text(tokenizer(), max_length=LONG)}, batch_size=7, batch_map=look)
    got = [batch["text"] for batch in loader.as_dataloader()]
    assert seen == [tuple(text["ids"].shape) for text in got]
    assert all((text["ids"].dtype, text["mask"].dtype) == (torch.int64, torch.bool) for text in got)
    moved = [batch["text"]["ids"] for batch in hr.DevicePrefetcher(loader, "cpu")]
    assert all(torch.equal(ids, text["ids"]) for ids, text in zip(moved, got, strict=True))


def test_stats_count_texts(tar):
    loader = hr.Loader(tar, {"text": hr.Text(tokenizer(), max_length=LONG)}, batch_size=7, output="numpy")
    for _ in loader:
        pass
    stage = loader.stats().stages["text"]
    assert (stage.items, stage.bytes) == (COUNT, sum(len(text.encode()) for text in CAPTIONS))
    assert stage.busy_s > 0
    assert "  text " in str(loader.stats())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("environment", [None, "true", "false"])
def test_a_fork_encodes_on(tar, monkeypatch, environment):
    """The library's threads are not there: told to use them it would wait for good."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if environment is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", environment)
    loader = hr.Loader(tar, {"text": hr.Text(tokenizer(), max_length=LONG)}, batch_size=7, output="numpy", prefetch=1)
    iterator = iter(loader)
    first = next(iterator)["text"]["ids"].copy()

    def rest():
        return b"".join(batch["text"]["ids"].tobytes() for batch in iterator)

    there = in_fork(rest)()
    iterator.close()
    whole = [batch["text"]["ids"] for batch in loader]
    np.testing.assert_array_equal(first, whole[0])
    assert there == b"".join(ids.tobytes() for ids in whole[1:])


def test_encoders_know_what_they_are():
    plain = resolve_tokenizer(tokenizer(), max_length=5)
    assert plain.identity == resolve_tokenizer(tokenizer(), max_length=5).identity
    other = tokenizer()
    other.add_tokens(["umbrella"])
    for different in (resolve_tokenizer(tokenizer(), max_length=6), resolve_tokenizer(other, max_length=5)):
        assert different.identity not in (None, plain.identity)
    assert resolve_tokenizer(whitespace, max_length=5).identity is None
    versions = {resolve_tokenizer(whitespace, max_length=5, version=version).identity for version in ("1", "2")}
    assert len(versions) == 2
