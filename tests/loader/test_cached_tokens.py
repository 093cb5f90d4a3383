"""Texts in a loader's cache: the ids of no cache, bit for bit, and nothing encoded twice."""

from __future__ import annotations

import json
import os
from functools import partial

import battery
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loader_data import COUNT, write_folder
from text_data import EMPTY, MISSING, PAD, caption, is_trial, tokenizer, whitespace, write_tar
from tokenizers import Tokenizer, models, pre_tokenizers

import headrace as hr
from headrace.fields import ABSENT, Sequences, from_entries, to_entries

LONG = 10
SEVERAL = [1 + number % 4 for number in range(COUNT)]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("cached_tokens")
    write_folder(root / "photos")
    paths = sorted(path.relative_to(root / "photos") for path in (root / "photos").rglob("*.*"))
    rows = [
        {
            "image": str(path),
            "captions": [caption(5 * number + which) for which in range(SEVERAL[number])],
            "text": "" if number == EMPTY else caption(number),
        }
        for number, path in enumerate(paths)
    ]
    (root / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "held": hr.open(root / "captions.jsonl", root=root / "photos"),
        "tar": hr.open(write_tar(root / "pairs.tar")),
        "damaged": hr.open(write_tar(root / "damaged.tar", damaged=True)),
    }


@pytest.fixture
def cache(tmp_path):
    """On a disk: RAM is shared with whatever runs the same test at the same time."""
    return f"disk:{tmp_path / 'cache'}:40MB"


def text(source, encoding=None, **options):
    given = {"max_length": LONG, "pad_id": 0, "source": source} | options
    return {"words": hr.Text(tokenizer() if encoding is None else encoding, **given)}


def load(place, fields, **options):
    given = {"batch_size": 8, "shuffle": True, "seed": 5, "threads": 2, "output": "numpy"}
    return hr.Loader(place, fields, **(given | options))


def wide_ids(texts):
    """Ids of all three types that are kept."""
    return [[len(each) << (40 if "🙂" in each else 20 if "字" in each else 0) for _ in each.split()] for each in texts]


BY_LENGTH = hr.Buckets("length", source="words")
CASES = {
    "held": ("held", text("text"), {}),
    "several": ("held", text("captions"), {}),
    "several, the first": ("held", text("captions", captions="first", pad=4), {}),
    "two fields": ("held", text("captions") | {"again": hr.Text(tokenizer(), max_length=5, source="captions")}, {}),
    "filled up on the left": ("held", text("text", tokenizer(direction="left"), pad="max"), {}),
    "members": ("tar", text("txt"), {}),
    "torch, wrap": ("held", text("captions"), {"output": "torch", "remainder": "wrap", "batch_size": 7}),
    "a function": ("held", text("text", wide_ids, version="1"), {}),
    "packed": ("held", text("text"), {"pack": hr.SequencePacking(32), "batch_size": 3}),
    "buckets": ("held", text("captions"), {"buckets": BY_LENGTH, "seed": 6}),
    "a budget": ("held", text("text"), {"buckets": BY_LENGTH, "batch_size": hr.Budget(tokens=60)}),
    "replaced": ("damaged", text("txt"), {"max_bad": 0.5}),
}  # fmt: skip


@pytest.mark.one_in(12)
@pytest.mark.parametrize(("place", "fields", "options"), CASES.values(), ids=CASES)
def test_batches_are_those_of_no_cache(places, cache, place, fields, options):
    expected = battery.epochs(load(places[place], fields, **options), 3)
    loader = load(places[place], fields, cache=cache, **options)
    battery.assert_equal(battery.epochs(loader, 3), expected, "three epochs")
    stats = loader.stats().cache
    assert stats.damaged == 0
    assert stats.hits > 0
    if fields["words"].source == "text" or place == "tar":
        read_too = 2 if place == "tar" else 1
        assert (stats.hits, stats.misses) == (read_too * COUNT, 0)


def test_two_loaders_of_one_cache_share_what_is_kept(places, cache):
    """Also where one of them takes the first caption, and the other any."""
    first = load(places["held"], text("captions", captions="first"), cache=cache)
    list(first)
    both = load(places["held"].select(range(0, COUNT, 4)), text("captions"), cache=cache)
    list(both)
    assert (both.stats().cache.hits, both.stats().cache.misses) == (COUNT // 4, 0)  # who has one caption


class Counting:
    """A function that keeps what it was asked."""

    def __init__(self, *, counted_from=1):
        self.calls = []
        self._from = counted_from

    def __call__(self, texts):
        if not is_trial(texts):
            self.calls.append(texts)
        return [[self._from + len(word) for word in each.split()] for each in texts]


def test_nothing_is_encoded_twice_and_what_is_missing_in_one_call(places, cache):
    function = Counting()
    loader = load(places["held"], text("captions", function, version="1"), cache=cache)
    steps, encoded = len(loader), []
    for epoch in range(4):
        function.calls.clear()
        list(loader)
        encoded += [each for call in function.calls for each in call]
        assert len(function.calls) <= steps
        assert all(function.calls), "no call for nothing"
        assert epoch > 0 or len(encoded) == COUNT
    assert COUNT < len(encoded) <= sum(SEVERAL)
    captions = [caption(5 * number + which) for number in range(COUNT) for which in range(SEVERAL[number])]
    assert all(encoded.count(each) <= captions.count(each) for each in encoded)


def test_a_function_without_a_version_is_not_kept(places, cache):
    function = Counting()
    loader = load(places["held"], text("text", function), cache=cache)
    list(loader)
    list(loader)
    assert sum(map(len, function.calls)) == 2 * COUNT
    stats = loader.stats().cache
    assert (stats.hits, stats.misses, stats.admitted) == (0, 0, 0)
    assert stats.cuts == {"words": "nothing, for its tokenizer has no version"}
    members = load(places["tar"], text("txt", whitespace), cache=cache)
    battery.assert_equal(
        battery.epochs(members), battery.epochs(load(places["tar"], text("txt", whitespace))), "members"
    )
    assert members.stats().cache.hits == COUNT
    assert members.stats().cache.cuts["words"] == "files' bytes, for its tokenizer has no version"


def test_tokenizers_of_transformers(places, cache):
    """A fast one by what it is, a slow one by its version."""
    from transformers import PreTrainedTokenizerFast, PythonBackend

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

    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer(), pad_token=PAD, padding_side="left")
    slow = Letters(pad_token=PAD)
    for fields, hits in (
        (text("text", fast), COUNT),
        (text("text", slow, version="letters"), COUNT),
        (text("text", slow), 0),
    ):
        loader = load(places["held"], fields, cache=cache)
        battery.assert_equal(battery.epochs(loader), battery.epochs(load(places["held"], fields)), "transformers")
        assert loader.stats().cache.hits == hits


def test_statistics_say_what_is_kept(places, cache):
    for place, source, words in (("held", "captions", "tokens"), ("tar", "txt", "files' bytes, and tokens")):
        loader = load(places[place], text(source), cache=cache)
        list(loader)
        assert str(loader.stats()).splitlines()[-1] == f"    cached: words: {words}"


def other_words():
    """Another tokenizer: each known word is one token."""
    words = sorted({word for number in range(COUNT) for word in caption(number).split()})
    made = Tokenizer(
        models.WordLevel({word: 70_000 + number for number, word in enumerate(["?", *words])}, unk_token="?")
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


CHANGED = {
    "another tokenizer": text("text", other_words()),
    "a special token": text("text", (lambda made: (made.add_special_tokens(["red"]), made)[1])(tokenizer())),
    "another length": text("text", max_length=LONG - 3),
    "another version": text("text", Counting(counted_from=9), version="2"),
}


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
def test_a_tokenizer_that_changed_between_runs_is_noticed(places, cache, changed):
    before = text("text", Counting(), version="1") if changed["words"].version else text("text")
    list(load(places["held"], before, cache=cache))
    loader = load(places["held"], changed, cache=cache)
    battery.assert_equal(battery.kept(loader), battery.kept(load(places["held"], changed)), "changed")
    assert (loader.stats().cache.hits, loader.stats().cache.misses) == (0, COUNT)
    again = load(places["held"], before, cache=cache)
    list(again)
    assert again.stats().cache.hits == COUNT


def test_texts_that_changed_have_another_cache(tmp_path, cache):
    for change in ("", " red"):
        rows = [{"text": caption(number) + change * (number == 3)} for number in range(COUNT)]
        (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        loader = load(hr.open(tmp_path / "texts.jsonl"), text("text"), cache=cache)
        expected = battery.kept(load(hr.open(tmp_path / "texts.jsonl"), text("text")))
        battery.assert_equal(battery.kept(loader), expected, change)
        assert loader.stats().cache.hits == 0


def test_a_damaged_entry_is_encoded_anew(places, tmp_path):
    function = Counting()
    fields = text("text", function, version="1")
    expected = battery.epochs(load(places["held"], fields), 3)
    loader = load(places["held"], fields, cache=f"disk:{tmp_path}:40MB")
    battery.assert_equal(battery.kept(loader), expected[:5], "first")
    (name,) = os.listdir(tmp_path)
    with open(tmp_path / name, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xaa")
    function.calls.clear()
    battery.assert_equal(battery.kept(loader), expected[5:10], "damaged")
    assert sum(map(len, function.calls)) == 1
    stats = loader.stats().cache
    assert (stats.damaged, stats.misses, stats.hits, stats.admitted) == (1, 1, COUNT - 1, 1)
    battery.assert_equal(battery.kept(loader), expected[10:], "mended")
    assert loader.stats().cache.hits == COUNT


def test_a_cache_that_is_full(places, tmp_path):
    expected = battery.epochs(load(places["held"], text("text")), 3)
    loader = load(places["held"], text("text"), cache=f"disk:{tmp_path}:8500B")  # 8,192 of them the index
    battery.assert_equal(battery.kept(loader), expected[:5], "first")
    kept = loader.stats().cache.admitted
    assert 5 < kept < COUNT - 5
    battery.assert_equal(battery.epochs(loader), expected[5:], "full")
    stats = loader.stats().cache
    assert (stats.hits, stats.misses, stats.admitted, stats.stopped) == (kept, COUNT - kept, 0, "full")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("place", ["held", "damaged"])
@pytest.mark.long
def test_battery_of_images_and_texts(places, cache, place):
    """Loaders that come later find what the first ones kept."""
    source = "captions" if place == "held" else "txt"
    fields = {"image": hr.Image()} | text(source, pad="max")
    view = hr.RandomResizedCrop(20, flip=0.5)
    make = partial(load, places[place], fields, view=view, batch_size=8, max_bad=0.5)
    battery.assert_equal(battery.epochs(make(cache=cache)), battery.epochs(make()), "cached")
    cached = partial(make, cache=cache)
    battery.check_threads(cached)
    battery.check_world_sizes(cached, 8)
    battery.check_resume_at_every_step(cached)


def test_a_replaced_sample_has_its_own_ids(places, cache):
    """The number of what came in its place, and not of what was bad, is looked up."""
    loader = load(places["damaged"], text("txt"), cache=cache, max_bad=0.5, shuffle=False)
    plain = load(places["damaged"], text("txt"), max_bad=0.5, shuffle=False)
    for _ in range(2):
        battery.assert_equal(battery.kept(loader), battery.kept(plain), "replaced")
        assert loader.stats().replaced == 2
    alone = load(places["tar"], text("txt"), shuffle=False, batch_size=1)
    ids = [batch["words"]["ids"][0].tolist() for batch in battery.kept(alone)]
    assert ids[MISSING] not in _rows(battery.kept(loader))


def _rows(batches):
    return [row[keep].tolist() for batch in batches for row, keep in zip(*batch["words"].values(), strict=True)]


EDGES = [0, 1, 255, 65_535, 65_536, 2**31, 2**32 - 1, 2**32, 2**63 - 1]
LISTS = st.lists(st.lists(st.sampled_from(EDGES), max_size=5), max_size=8)


@given(LISTS, st.data())
def test_entries_hold_sequences(lists, data):
    made, lengths = to_entries(Sequences.of(lists))
    for each, size in zip(lists, lengths.tolist(), strict=True):
        most = max(each, default=0)
        assert size == 1 + len(each) * (2 if most < 2**16 else 4 if most < 2**32 else 8)
    gone = np.array([data.draw(st.booleans()) for _ in lists], bool)
    found = from_entries(made[~np.repeat(gone, lengths)], np.where(gone, -1, lengths), most=5)
    assert found.lengths.tolist() == [ABSENT if away else len(each) for away, each in zip(gone, lists, strict=True)]
    again = found.with_missing(Sequences.of([each for away, each in zip(gone, lists, strict=True) if away]))
    assert again.lengths.tolist() == [len(each) for each in lists]
    assert again.ids.tolist() == [number for each in lists for number in each]


def test_what_is_no_entry_is_not_there():
    """Whole by its checksum, but by another hand: no type, cut within an id, too many, empty."""
    fit, _ = to_entries(Sequences.of([[7, 8]]))
    entries = [b"\x01\x02\x03", b"\x01\x00", b"\x01\x00\x02\x00\x03\x00\x04\x00\x00", b"", bytes(fit)]
    data = np.frombuffer(b"".join(entries), np.uint8)
    found = from_entries(data, np.array([len(each) for each in entries]), most=3)
    assert found.lengths.tolist() == [ABSENT] * 4 + [2]
    assert found.ids.tolist() == [7, 8]
