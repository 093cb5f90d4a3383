"""The examples of docs/text.md, run as they stand there."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
import torch
from docs_pages import examples, section
from torch.nn.functional import scaled_dot_product_attention

EXAMPLES = examples("text.md", "Packed texts")
ROW = 2048


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the examples define, run one after another where the files are of which they speak."""
    root = tmp_path_factory.mktemp("packing")
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(5.5, 0.9, 120).astype(int) + 1
    rows = [
        {"text": " ".join(rng.choice(["a", "b", "c"], length)), "label": number}
        for number, length in enumerate(lengths.tolist())
    ]
    (root / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 1, "b": 2, "c": 3, "[PAD]": 0}, "[PAD]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    tokenizer.save(str(root / "tokenizer.json"))
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for example in EXAMPLES:
            exec(example, found)
    return found | {"texts": [row["text"].split()[:ROW] for row in rows]}


def test_the_batch_is_as_the_page_says(names):
    batch = next(iter(names["loader"]))
    text = batch["text"]
    assert text["ids"].shape == (8, ROW)
    assert list(text) == re.findall(r'^\| `"(\w+)"` ', section("text.md", "Packed texts"), re.MULTILINE)
    labels = batch["label"][text["blocks"]]
    for number in batch["label"].tolist():
        ids = text["ids"][(labels == number) & text["mask"]].tolist()
        assert ids == [{"a": 1, "b": 2, "c": 3}[word] for word in names["texts"][number]]


def test_attention_by_mask_blocks_and_boundaries_is_the_same(names, monkeypatch):
    blocks = torch.tensor([[0] * 10 + [1] * 6, [2] * 16, [3] * 5 + [4] * 5 + [-1] * 6])
    boundaries = torch.tensor([0, 10, 16, 32, 37, 42, 48], dtype=torch.int32)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 3, 2, 16, 8)
    expected = names["attend_by_mask"](q, k, v, blocks)
    with pytest.warns(UserWarning, match="flex_attention called without torch.compile"):
        torch.testing.assert_close(names["attend_by_blocks"](q, k, v, blocks), expected)

    def by_parts(q, k, v, starts, _, longest, __, *, causal):
        """As flash-attn documents it: [tokens, heads, D], sequences on end."""
        assert longest == max(np.diff(starts))
        parts = [slice(first, last) for first, last in pairwise(starts.tolist())]
        each = [[whole[part].transpose(0, 1) for whole in (q, k, v)] for part in parts]
        made = [scaled_dot_product_attention(*three, is_causal=causal).transpose(0, 1) for three in each]
        return torch.cat(made)

    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=by_parts))
    turned = (part.transpose(1, 2) for part in (q, k, v))
    got = names["attend_by_boundaries"](*turned, boundaries).transpose(1, 2)
    torch.testing.assert_close(got, expected)


def test_targets_do_not_cross_a_boundary(names):
    text = {
        "ids": torch.tensor([[5, 6, 7, 8, 9, 0]]),
        "blocks": torch.tensor([[0, 0, 1, 1, 1, -1]]),
        "mask": torch.tensor([[True] * 5 + [False]]),
    }
    assert names["next_tokens"](text).tolist() == [[6, -100, 8, 9, -100]]
    text = {"ids": torch.zeros(1, 3, dtype=torch.int64), "blocks": torch.full((1, 3), -1)}
    text["mask"] = text["blocks"] >= 0
    assert names["next_tokens"](text).tolist() == [[-100, -100]]
