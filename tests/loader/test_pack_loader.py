"""Loaders of packed texts: battery, rows against the tokenizer itself, replacements, refused arguments and states."""

from __future__ import annotations

import json
from collections import Counter

import battery
import numpy as np
import pytest
from loader_data import encode, photograph
from text_data import is_trial

import headrace as hr
from headrace import SequencePacking
from headrace.errors import StateError, TooManyBadSamplesError, UsageError

GLOBAL_BATCH = 4
ROW = 48
COUNT = 90
FIELDS = {"n": hr.Label(source="number")}


def length_of(number):
    """Tokens of a sample's text; some have none."""
    return int(np.random.default_rng(number).lognormal(2.3, 0.8)) if number % 29 else 0


def words_of(number):
    return [f"{(number * 7 + place) % 50}" for place in range(min(length_of(number), 100))]


def tokenize(texts):
    return [[int(word) for word in text.split()] for text in texts]


TEXT = hr.Text(tokenize, max_length=ROW, pad_id=99)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hr.open(path)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("pack")
    rows = [{"text": " ".join(words_of(number)), "number": number} for number in range(COUNT)]
    for number in range(COUNT):
        data = encode(photograph(number, 24, 20), quality=80)
        (root / f"{number}.jpg").write_bytes(data[: 40 if number in (5, 31, 60) else None])
    pictured = [row | {"image": f"{row['number']}.jpg"} for row in rows]
    several = [row | {"text": [row["text"], "1 2 3", "4"]} for row in rows]
    return {
        "texts": write(root / "texts.jsonl", rows),
        "several": write(root / "several.jsonl", several),
        "pictures": write(root / "pictures.jsonl", pictured),
    }


class Compared:
    """A loader whose batches are checked, and told in a way that ranks' parts can be joined: each token with the sample
    that it is of."""

    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return len(self.loader)

    def state_dict(self):
        return self.loader.state_dict()

    def load_state_dict(self, state):
        self.loader.load_state_dict(state)

    def set_epoch(self, epoch):
        self.loader.set_epoch(epoch)

    def __iter__(self):
        iterator = iter(self.loader)
        try:
            for batch in iterator:
                yield compared(batch)
        finally:
            iterator.close()


def compared(batch):
    text = batch["text"]
    assert list(text) == ["ids", "mask", "positions", "blocks", "boundaries"]
    assert (text["mask"] == (text["blocks"] >= 0)).all()
    assert (text["ids"][~text["mask"]] == 99).all()
    assert text["boundaries"].tolist() == boundaries_of(text["blocks"])
    numbers = np.append(batch["n"], -1)
    parts = {name: text[name] for name in ("ids", "mask", "positions")}
    return {**{name: batch[name] for name in batch if name != "text"}, **parts, "of": numbers[text["blocks"]]}


def boundaries_of(blocks):
    """Where one sequence, or the padding, follows another, and where rows begin."""
    edges = {blocks.size}
    for row, tokens in enumerate(blocks.tolist()):
        for place, block in enumerate(tokens):
            if place == 0 or block != tokens[place - 1]:
                edges.add(row * blocks.shape[1] + place)
    return sorted(edges)


CASES = {
    "short": {},
    "wrap": {"remainder": "wrap"},
    "drop": {"remainder": "drop"},
    "unshuffled": {"shuffle": False},
    "several captions": {"data": "several"},
    "images, three of them bad": {"data": "pictures", "image": True},
}


def factory(datasets, *, data="texts", image=False, **options):
    fields = {"text": TEXT, **FIELDS}
    if image:
        fields["image"] = hr.Image()
        options |= {"view": hr.RandomResizedCrop(8), "max_bad": 1.0}

    def make(**overrides):
        given = {"shuffle": True, "seed": 5, "threads": 2, "output": "numpy", "batch_size": GLOBAL_BATCH}
        return Compared(hr.Loader(datasets[data], fields, pack=SequencePacking(ROW), **given | options | overrides))

    make.global_batch = GLOBAL_BATCH
    return make


@battery.over(CASES, but=("instruction sets",))
@pytest.mark.one_in(3)
def test_battery(datasets, case, check):
    check(factory(datasets, **CASES[case]))


def sequences_of(batch):
    """The ids of each sample's block, where they lie on end and are numbered from 0."""
    text = batch["text"]
    found = []
    for block in range(len(batch["n"])):
        rows, places = np.nonzero(text["blocks"] == block)
        assert len(set(rows.tolist())) <= 1
        assert (np.diff(places) == 1).all()
        assert text["positions"][rows, places].tolist() == list(range(len(places)))
        found.append(text["ids"][rows, places].tolist())
    return found


def test_rows_hold_every_text_once_as_the_tokenizer_has_it(datasets):
    loader = factory(datasets)().loader
    batches = battery.kept(loader)
    texts = {number: [int(word) for word in words_of(number)][:ROW] for number in range(COUNT)}
    seen = []
    for batch in batches:
        assert batch["text"]["ids"].shape[1] == ROW
        for number, sequence in zip(batch["n"].tolist(), sequences_of(batch), strict=True):
            assert sequence == texts[number]
            seen.append(number)
    assert sorted(seen) == list(range(COUNT))
    assert [len(batch["text"]["ids"]) for batch in batches[:-1]] == [GLOBAL_BATCH] * (len(loader) - 1)
    used = np.concatenate([batch["text"]["mask"] for batch in batches]).mean()
    assert used > 0.96


def test_a_bad_sample_is_replaced_by_one_as_long(datasets):
    loader = factory(datasets, data="pictures", image=True)().loader
    batches = battery.kept(loader)
    stats = loader.stats()
    assert stats.bad == 3
    assert stats.replaced >= 3
    numbers = [number for batch in batches for number in batch["n"].tolist()]
    assert not {5, 31, 60} & set(numbers)
    for batch in batches:
        for number, sequence in zip(batch["n"].tolist(), sequences_of(batch), strict=True):
            assert len(sequence) == min(length_of(number), ROW)
    expected = Counter(max(1, min(length_of(number), ROW)) for number in range(COUNT))
    got = Counter(max(1, min(length_of(number), ROW)) for number in numbers)
    alone = [number for number in (5, 31, 60) if expected[max(1, min(length_of(number), ROW))] == 1]
    assert (expected - got).total() <= len(alone)


def test_texts_that_cannot_be_used_count_as_long_as_the_others(tmp_path):
    rows = [{"text": " ".join("1" * (5 + number % 7)), "number": number} for number in range(60)]
    for number in (3, 17, 44):
        rows[number]["text"] = "1 " * 40_000  # more than max_bytes
    data = write(tmp_path / "texts.jsonl", rows)
    loader = hr.Loader(
        data, {"text": TEXT, **FIELDS}, pack=SequencePacking(ROW), batch_size=2, output="numpy", max_bad=0.1
    )
    numbers = [number for batch in battery.kept(loader) for number in batch["n"].tolist()]
    assert len(numbers) == 60
    assert not {3, 17, 44} & set(numbers)
    assert loader.stats().replaced >= 3


def test_no_text_that_can_be_used(tmp_path):
    data = write(tmp_path / "texts.jsonl", [{"text": "1 " * 40_000}] * 3)
    with pytest.raises(UsageError, match="field 'text': expected texts to pack, got none that can be used among 3"):
        hr.Loader(data, {"text": TEXT}, pack=SequencePacking(ROW), batch_size=2, output="numpy")


def test_a_selection_packs_its_own_samples(datasets):
    part = datasets["texts"].select([7, 80, 3, 51, 20])
    loader = hr.Loader(
        part, {"text": TEXT, **FIELDS}, pack=SequencePacking(ROW), batch_size=2, shuffle=True, output="numpy"
    )
    batches = battery.kept(loader)
    for batch in batches:
        for number, sequence in zip(batch["n"].tolist(), sequences_of(batch), strict=True):
            assert sequence == [int(word) for word in words_of(number)][:ROW]
    assert sorted(number for batch in batches for number in batch["n"].tolist()) == [3, 7, 20, 51, 80]


def test_another_text_beside_the_packed_one(datasets):
    fields = {"text": TEXT, "padded": hr.Text(tokenize, source="text", max_length=ROW, pad_id=0), **FIELDS}
    loader = hr.Loader(datasets["texts"], fields, pack=SequencePacking(ROW, field="text"), batch_size=2, output="numpy")
    for batch in battery.kept(loader):
        assert list(batch) == ["text", "padded", "n"]
        assert list(batch["padded"]) == ["ids", "mask"]
        padded = [ids[mask].tolist() for ids, mask in zip(batch["padded"]["ids"], batch["padded"]["mask"], strict=True)]
        assert padded == sequences_of(batch)


def test_batch_map_is_given_the_rows(datasets):
    seen = []

    def look(batch, rng):
        seen.append(batch["text"]["ids"].shape)
        return batch

    battery.kept(factory(datasets, batch_map=look)())
    assert set(seen[:-1]) == {(GLOBAL_BATCH, ROW)}


def test_the_loader_says_that_it_has_rows(datasets):
    loader = factory(datasets)().loader
    assert f"batches of {GLOBAL_BATCH} rows of text, n" in repr(loader)
    assert loader.samples == COUNT


def test_texts_that_are_longer_than_they_were_are_refused(datasets):
    calls = []

    def growing(texts):
        if not is_trial(texts):
            calls.append(len(texts))
        return [[1] * (8 if sum(calls) <= COUNT else 9) for _ in texts]

    fields = {"text": hr.Text(growing, max_length=ROW, pad_id=0)}
    loader = hr.Loader(datasets["texts"], fields, pack=SequencePacking(ROW), batch_size=2, output="numpy")
    with pytest.raises(UsageError, match=r"as long as they were when .* made, got 54 tokens of 6 sequences"):
        battery.kept(loader)


def test_too_many_bad_samples(datasets):
    loader = factory(datasets, data="pictures", image=True)(max_bad=0.01).loader
    with pytest.raises(TooManyBadSamplesError):
        battery.kept(loader)


def test_a_state_of_other_rows_is_refused(datasets):
    state = battery.state_after(factory(datasets)(), 2)
    fields = {"text": hr.Text(tokenize, max_length=40, pad_id=99), **FIELDS}
    given = {"shuffle": True, "seed": 5, "output": "numpy", "batch_size": GLOBAL_BATCH}
    for other in (
        hr.Loader(datasets["texts"], {"text": TEXT, **FIELDS}, pack=SequencePacking(ROW + 1), **given),
        hr.Loader(datasets["texts"], fields, pack=SequencePacking(ROW), **given),
        hr.Loader(datasets["texts"], {"text": TEXT, **FIELDS}, **given),
    ):
        with pytest.raises(StateError, match=rf"got 'packed in \d+ rows of {ROW} tokens .*; pass the .* pack="):
            other.load_state_dict(state)


TWO = {name: hr.Text(tokenize, source="text", max_length=8, pad_id=0) for name in ("a", "b")}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"pack": 2048}, "pack: expected hr.SequencePacking(…) or None, got 2048"),
        (
            {"pack": SequencePacking(ROW), "buckets": hr.Buckets("length", source="text")},
            "pack: expected no buckets alongside",
        ),
        (
            {"pack": SequencePacking(ROW), "batch_size": hr.Budget(pixels=9)},
            "batch_size: expected rows of 48 tokens",
        ),
        ({"pack": SequencePacking(ROW), "map": lambda sample, rng: sample}, "map: expected None with pack="),
        ({"pack": SequencePacking(ROW), "fields": FIELDS}, "pack: expected a field of text"),
        (
            {"pack": SequencePacking(ROW), "fields": TWO},
            "which of ['a', 'b'] is packed; pass hr.SequencePacking(48, field=…)",
        ),
        ({"pack": SequencePacking(ROW, field="c")}, "expected field to be one of the text fields ['text'], got 'c'"),
        ({"pack": SequencePacking(ROW - 1)}, "expected max_length of at most the 47 tokens of a row, got 48"),
        (
            {"pack": SequencePacking(ROW), "batch_size": 1 << 27},
            "expected at most 44739242 rows of 48 tokens a rank",
        ),
        ({"pack": SequencePacking(ROW), "batch_size": 0}, "batch_size: expected an int from 1"),
        (
            {"pack": SequencePacking(ROW), "fields": {"text": hr.Text(tokenize, max_length=8, pad_id=0, pad="max")}},
            "a packed text is padded with its row, got pad='max'",
        ),
    ],
)
def test_arguments_that_do_not_go_together(datasets, given, says):
    given = {"fields": {"text": TEXT}, "batch_size": 2, "output": "numpy"} | given
    with pytest.raises(UsageError) as error:
        hr.Loader(datasets["texts"], given.pop("fields"), **given)
    assert says in str(error.value)


def test_a_random_scale_beside_it_is_refused(datasets):
    fields = {"text": TEXT, "image": hr.Image()}
    with pytest.raises(UsageError, match="expected no RandomScale, which draws"):
        hr.Loader(
            datasets["pictures"],
            fields,
            view=hr.RandomScale((8,)),
            pack=SequencePacking(ROW),
            batch_size=2,
            output="numpy",
        )


@pytest.mark.parametrize("length", [0, -1, True, 2.0, (1 << 20) + 1, "2048"])
def test_lengths_that_are_none(length):
    with pytest.raises(UsageError, match="SequencePacking: expected length to be an int from 1 to 1,048,576 tokens"):
        SequencePacking(length)


def test_a_field_that_is_no_name():
    with pytest.raises(UsageError, match="SequencePacking: expected field to be the name of a text field, got 3"):
        SequencePacking(8, field=3)
