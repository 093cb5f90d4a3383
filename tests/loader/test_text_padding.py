"""Tokenizers that pad by themselves, and those whose pad token only their vocabulary or configuration shows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from loader_data import COUNT
from text_data import CAPTIONS, PAD, described, tokenizer, whitespace, write_tar
from tokenizers import Tokenizer

import headrace as hr
from headrace.errors import UsageError
from headrace.fields.tokens.tokenizers import resolve_tokenizer

LONG = 12
IDS = [[5 + number for number in row] for row in whitespace(CAPTIONS)]
"""What `codes` makes of the captions; no id is below 5."""


@pytest.fixture(scope="module")
def tar(tmp_path_factory):
    return hr.open(write_tar(tmp_path_factory.mktemp("padding") / "pairs.tar"))


def text_of(dataset, field, **options):
    """The one batch of all samples."""
    (batch,) = hr.Loader(dataset, {"text": field}, batch_size=COUNT, output="numpy", **options)
    return batch["text"]


def own(text):
    return [ids[mask].tolist() for ids, mask in zip(text["ids"], text["mask"], strict=True)]


def codes(texts):
    return [[5 + len(word) for word in each.split()] for each in texts]


def clip_like(texts, *, length=LONG, begin=(3,), end=(4,), pad=0, left=False):
    """As open_clip's `tokenize`: one length, cut so that the end token stays, padded with `pad`."""
    rows = torch.full((len(texts), length), pad)
    for row, ids in zip(rows, codes(texts), strict=True):
        ids = [*begin, *ids[: length - len(begin) - len(end)], *end]
        row[length - len(ids) if left else 0 :][: len(ids)] = torch.tensor(ids)
    return rows


def expected_own(length=LONG):
    return [[3, *ids[: length - 2], 4] for ids in IDS]


def test_rows_of_one_length_are_masked_where_they_are_padded(tar):
    text = text_of(tar, hr.Text(clip_like, max_length=LONG, pad_id=0))
    np.testing.assert_array_equal(text["ids"], clip_like(CAPTIONS).numpy())
    assert own(text) == expected_own()
    np.testing.assert_array_equal(text["mask"], text["ids"] != 0)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_a_mask_does_not_depend_on_the_rest_of_the_batch(tar, batch_size):
    """Neither where rows are padded to one length nor where they are padded to the longest of a call."""

    def to_the_longest(texts):
        rows = [[3, *ids, 4] for ids in codes(texts)]
        return [[*row, *[0] * (max(map(len, rows)) - len(row))] for row in rows]

    for function in (clip_like, to_the_longest):
        loader = hr.Loader(
            tar, {"text": hr.Text(function, max_length=LONG, pad_id=0)}, batch_size=batch_size, output="numpy"
        )
        rows = [row for batch in loader for row in own(batch["text"])]
        assert rows == (expected_own() if function is clip_like else [[3, *ids, 4][:LONG] for ids in IDS])


def test_one_length_stays_unless_another_padding_is_asked_for(tar):
    shapes = {
        pad: text_of(tar[:2], hr.Text(clip_like, max_length=50, pad_id=0, pad=pad))["ids"].shape[1]
        for pad in ("batch", 1, 8, "max")
    }
    longest = max(len(ids) for ids in expected_own()[:2])
    assert shapes == {"batch": LONG, 1: longest, 8: -(-longest // 8) * 8, "max": 50}


def test_padding_on_the_left(tar):
    text = text_of(tar, hr.Text(lambda texts: clip_like(texts, left=True), max_length=LONG, pad_id=0))
    np.testing.assert_array_equal(text["ids"], clip_like(CAPTIONS, left=True).numpy())
    assert own(text) == expected_own()


def test_a_pad_token_that_also_ends_texts_is_kept_once(tar):
    """As `<|endoftext|>` of CLIP and GPT-2: the first of the run is the text's own."""
    text = text_of(tar, hr.Text(lambda texts: clip_like(texts, pad=4), max_length=LONG, pad_id=4))
    np.testing.assert_array_equal(text["ids"], clip_like(CAPTIONS, pad=4).numpy())
    assert own(text) == expected_own()


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_fewer_tokens_than_the_function_pads_to(left):
    """Rows of 12 ids, of which 6 are wanted: a text of 6 words would not fill one."""
    encoder = resolve_tokenizer(lambda texts: clip_like(texts, left=left), max_length=6, pad_id=0)
    found = [list(map(int, row)) for row in encoder.encode(["", "one two", "one two three four five six"])]
    assert found == [[3, 4], [3, 8, 8, 4], [3, 8, 8, 10, 9, 9]]
    assert encoder.pads_left == left


def test_an_unpadded_row_that_ends_with_the_pad_id_is_all_its_own(tar):
    """As of `[*encode(text), EOS]` with EOS for padding."""
    text = text_of(tar, hr.Text(lambda texts: [[*ids, 4] for ids in codes(texts)], max_length=50, pad_id=4))
    assert own(text) == [[*ids, 4] for ids in IDS]


def test_an_attention_mask_is_the_mask(tar):
    from transformers import PreTrainedTokenizerFast

    for side in ("right", "left"):
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer(), pad_token=PAD, padding_side=side)

        def function(texts, fast=fast):
            return fast(texts, padding="max_length", truncation=True, max_length=LONG)

        theirs = fast(CAPTIONS, padding="max_length", truncation=True, max_length=LONG, return_tensors="np")
        text = text_of(tar, hr.Text(function, max_length=LONG))  # whose pad id the mask shows
        np.testing.assert_array_equal(text["ids"], theirs["input_ids"])
        np.testing.assert_array_equal(text["mask"], theirs["attention_mask"].astype(bool))


def test_masks_of_unequal_rows(tar):
    def function(texts):
        found = codes(texts)
        return {"input_ids": found, "attention_mask": [[1] * len(ids) for ids in found]}

    assert own(text_of(tar, hr.Text(function, max_length=50, pad_id=0))) == IDS
    with pytest.raises(UsageError, match="without a pad token"):
        text_of(tar, hr.Text(function, max_length=50))


def test_a_mask_of_another_length_is_refused(tar):
    def function(texts):
        return {"input_ids": codes(texts), "attention_mask": [[1]] * len(texts)}

    with pytest.raises(UsageError, match=r"an attention mask of one number an id, \(\d+,\), got \(1,\)"):
        text_of(tar, hr.Text(function, max_length=50, pad_id=0))


def test_lengths_and_packed_rows_leave_padding_out(tar):
    field = hr.Text(clip_like, max_length=LONG, pad_id=0)
    (packed,) = hr.Loader(tar, {"text": field}, batch_size=COUNT, pack=hr.SequencePacking(24), output="numpy")
    assert packed["text"]["mask"].sum() == sum(map(len, expected_own()))
    assert len(packed["text"]["ids"]) < COUNT


def test_a_function_of_known_texts_alone_is_taken_as_unpadded(tar):
    known = {text: [*ids, 0] for text, ids in zip(CAPTIONS, IDS, strict=True)}
    text = text_of(tar, hr.Text(lambda texts: [known[text] for text in texts], max_length=50, pad_id=0))
    assert own(text) == [[*ids, 0] for ids in IDS]


@pytest.mark.parametrize(("name", "special"), [("[PAD]", False), ("<pad>", True), ("<|endoftext|>", True)])
def test_an_evident_pad_token_is_taken(tar, name, special):
    description = json.loads(described().replace(PAD, name))
    description["added_tokens"][0]["special"] = special
    given = Tokenizer.from_str(json.dumps(description))
    assert given.token_to_id(name) == 0
    text = text_of(tar, hr.Text(given, max_length=LONG))
    np.testing.assert_array_equal(text["ids"], text_of(tar, hr.Text(tokenizer(), max_length=LONG))["ids"])


def test_a_word_that_only_looks_like_an_end_is_no_padding():
    description = json.loads(described().replace(PAD, "<|endoftext|>"))
    description["added_tokens"][0]["special"] = False
    assert resolve_tokenizer(Tokenizer.from_str(json.dumps(description)), max_length=LONG).pad_id is None


@pytest.mark.parametrize("token", ["</s>", {"content": "</s>", "lstrip": False}])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_configuration_beside_the_file_names_the_pad_token(tmp_path, name, token):
    (tmp_path / "tokenizer.json").write_text(described())
    (tmp_path / name).write_text(json.dumps({"pad_token": token, "model_max_length": 77}))
    found = resolve_tokenizer(tmp_path / "tokenizer.json", max_length=LONG)
    assert found.pad_id == Tokenizer.from_str(described()).token_to_id("</s>") != 0


@pytest.mark.parametrize("text", ["", "[]", '{"pad_token": null}', '{"pad_token": "no such token"}'])
def test_a_configuration_that_names_none_leaves_the_vocabulary(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(described())
    (tmp_path / "tokenizer_config.json").write_text(text)
    assert resolve_tokenizer(tmp_path / "tokenizer.json", max_length=LONG).pad_id == 0
