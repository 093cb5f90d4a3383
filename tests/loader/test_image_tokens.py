"""Tokens of images in packed rows, buckets and budgets, beside the sizes of the files themselves."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from text_data import caption, tokenizer

import headrace as hr

ROW, COUNT = 64, 60
SIZES = [(28, 28), (28, 56), (56, 56), (84, 28)]
"""Heights and widths."""


def tokens_of(height, width):
    return height // 14 * (width // 14)


def image(height, width):
    file = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def data(most=3):
    draw = np.random.default_rng(3)
    lists = [[SIZES[at] for at in draw.integers(0, 4, draw.integers(0, most))] for _ in range(COUNT)]
    texts = [caption(number) for number in range(COUNT)]
    costs = [
        len(tokenizer().encode(text).ids) + sum(tokens_of(*size) for size in sizes)
        for text, sizes in zip(texts, lists, strict=True)
    ]
    return {"text": texts, "images": [[image(*size) for size in sizes] for sizes in lists]}, np.array(costs)


def loader(samples, **options):
    fields = {"text": hr.Text(tokenizer(), max_length=ROW), "images": hr.Images(), "at": hr.Key("index")}
    given = {"view": hr.Resize((8, 8)), "shuffle": True, "output": "numpy", "threads": 2} | options
    return hr.Loader(samples, fields, **given)


@pytest.mark.parametrize("tokens", [tokens_of, 7], ids=["by size", "a number"])
def test_packed_rows_hold_the_texts_and_the_images(tokens):
    samples, costs = data()
    if tokens == 7:
        counts = np.array([len(each) for each in samples["images"]])
        texts = [len(tokenizer().encode(text).ids) for text in samples["text"]]
        costs = np.array(texts) + 7 * counts
    found = []
    for batch in loader(samples, pack=hr.SequencePacking(ROW, tokens_per_image=tokens), batch_size=2):
        found += batch["at"].tolist()
        ends = np.flatnonzero(np.diff(batch["text"]["positions"].reshape(-1), append=0) < 0)
        assert len(ends) >= 1
        assert costs[batch["at"]].sum() <= 2 * ROW
        assert len(batch["images"]) == sum(len(samples["images"][at]) for at in batch["at"])
    assert sorted(found) == list(range(COUNT))
    rows = len(loader(samples, pack=hr.SequencePacking(ROW, tokens_per_image=tokens), batch_size=1))
    assert costs.sum() / ROW <= rows <= 1.3 * costs.sum() / ROW
    assert rows > len(loader(samples, pack=hr.SequencePacking(ROW), batch_size=1))


def test_ranks_have_equal_sums():
    samples, costs = data()
    pack = hr.SequencePacking(256, tokens_per_image=tokens_of)
    options = {"pack": pack, "batch_size": 1, "world_size": 4, "remainder": "drop"}
    sums = np.array(
        [[costs[batch["at"]].sum() for batch in loader(samples, rank=rank, **options)] for rank in range(4)]
    )
    assert (sums.max(axis=0) / sums.mean(axis=0)).max() <= 1.02


def test_a_budget_bounds_texts_and_images():
    samples, costs = data()
    buckets = hr.Buckets("length", source="text", count=4, tokens_per_image=tokens_of)
    seen = []
    for batch in loader(samples, buckets=buckets, batch_size=hr.Budget(tokens=160)):
        seen += batch["at"].tolist()
        assert costs[batch["at"]].max() * len(batch["at"]) <= 160
        assert batch["text"]["ids"].shape[1] == max(
            len(tokenizer().encode(samples["text"][at]).ids) for at in batch["at"]
        )
    assert sorted(seen) == list(range(COUNT))


def test_a_count_of_images_counts_the_largest():
    samples = {"text": ["a", "b"], "images": [[image(28, 28), image(56, 56)], [image(28, 28)]]}
    fields = {"text": hr.Text(tokenizer(), max_length=ROW), "images": hr.Images(count=2)}
    needed = len(tokenizer().encode("a").ids) + 2 * tokens_of(56, 56)
    for length, is_enough in ((needed, True), (needed - 1, False)):
        pack = hr.SequencePacking(length, tokens_per_image=tokens_of)
        options = {"view": hr.Resize((8, 8)), "batch_size": 1}
        fields["text"] = hr.Text(tokenizer(), max_length=8)
        if is_enough:
            assert len(hr.Loader(samples, fields, pack=pack, **options)) == 2
            continue
        with pytest.raises(hr.errors.UsageError, match="1 larger"):
            hr.Loader(samples, fields, pack=pack, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.SequencePacking(8, tokens_per_image=0),
        lambda: hr.SequencePacking(8, tokens_per_image="4"),
        lambda: hr.Buckets("aspect", tokens_per_image=4),
        lambda: loader(data()[0], pack=hr.SequencePacking(ROW, tokens_per_image=lambda h, w: 0.5), batch_size=1),
        lambda: loader(data()[0], pack=hr.SequencePacking(ROW, tokens_per_image=lambda h, w: -1), batch_size=1),
        lambda: hr.Loader(
            {"text": ["a"]},
            {"text": hr.Text(tokenizer(), max_length=8)},
            pack=hr.SequencePacking(8, tokens_per_image=4),
            batch_size=1,
        ),
    ],
)
def test_wrong_costs_are_refused(make):
    with pytest.raises(hr.errors.UsageError, match="tokens_per_image"):
        make()
