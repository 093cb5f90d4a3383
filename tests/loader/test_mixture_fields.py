"""What a mixture's batches hold: every kind of field joined, each source's own; its statistics, its bad samples."""

from __future__ import annotations

import battery
import numpy as np
import pytest
from loader_data import CLASSES
from mixture_data import COUNTS, GLOBAL_BATCH, factory, loader_of, write_places

import headrace as hr


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return write_places(tmp_path_factory.mktemp("mixture"))


def test_every_kind_of_field_is_joined(places):
    """Lists, numbers of any type, what has its own memory layout, and what map adds."""

    def add(sample, rng):
        return sample | {"few": np.arange(3, dtype=np.float64), "text": "t", "nested": {"ids": np.arange(5)}}

    fields = {"image": hr.Image(dtype="float16"), "raw": hr.Raw(source="image"), "label": hr.Label()}
    mixed = factory(places, "mixed", fields=fields, map=add, remainder="wrap")()
    for batch in mixed:
        assert list(batch) == ["image", "raw", "label", "few", "text", "nested", "source"]
        assert (batch["image"].dtype, batch["image"].shape) == (np.float16, (GLOBAL_BATCH, 3, 24, 24))
        assert all(isinstance(value, bytes) for value in batch["raw"])
        assert (batch["few"] == np.arange(3)).all()
        assert batch["text"] == ["t"] * GLOBAL_BATCH
        assert batch["label"].dtype == np.int64
        assert set(batch["label"].tolist()) <= set(range(len(CLASSES)))


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_tensors_keep_their_type_and_memory(places, dtype, channels_last):
    import torch

    fields = {"image": hr.Image(dtype=dtype, channels_last=channels_last), "key": hr.Raw(source="__key__")}
    mixed = factory(places, "mixed", fields=fields, output="torch")()
    alone = {}
    for name in mixed.sources:
        (whole,) = loader_of(places, name, fields=fields, output="torch", batch_size=COUNTS[name])
        alone[name] = dict(zip(whole["key"], whole["image"], strict=True))
    batch = next(iter(mixed))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert batch["image"].is_contiguous(memory_format=layout)
    assert batch["source"].dtype == torch.int64
    for row, (number, key) in enumerate(zip(batch["source"].tolist(), batch["key"], strict=True)):
        assert torch.equal(batch["image"][row], alone[mixed.sources[number]][key])


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_texts_of_all_sources_are_as_long_as_the_longest(places, output):
    def codes(texts):
        return [list(text.encode()) for text in texts]

    fields = {"text": hr.Text(codes, max_length=64, pad_id=0, source="__key__"), "key": hr.Raw(source="__key__")}
    mixed = factory(places, "mixed", fields=fields, view=None, output=output)()
    for batch in mixed:
        longest = max(map(len, batch["key"]))
        assert batch["text"]["ids"].shape == batch["text"]["mask"].shape == (GLOBAL_BATCH, longest)
        for ids, mask, key in zip(*batch["text"].values(), batch["key"], strict=True):
            assert bytes(ids[mask].tolist()).decode() == key
            assert not ids[~mask].any()
            assert mask[: len(key)].all()


def test_texts_that_are_padded_otherwise_are_refused(places):
    def codes(texts):
        return [list(text.encode()) for text in texts]

    fields = {"text": hr.Text(codes, max_length=64, pad_id=0, source="__key__")}
    other = {"text": hr.Text(codes, max_length=64, pad_id=1, source="__key__")}
    make = factory(places, "mixed", fields=fields, view=None, only={"scans": {"fields": other}})
    with pytest.raises(hr.HeadraceError, match=r"same padding of texts of all sources, got .* with 0 .* with 1"):
        make()


def test_batches_that_are_kept_are_not_written_again(places):
    batches = list(factory(places, "mixed")())
    copies = [batch["image"].copy() for batch in batches]
    assert len({copy.tobytes() for copy in copies}) == len(copies)
    list(factory(places, "mixed")())
    assert all(np.array_equal(batch["image"], copy) for batch, copy in zip(batches, copies, strict=True))


@pytest.mark.parametrize("batches", ["one-source", "mixed"])
def test_a_consumer_that_keeps_every_batch_is_told_where(places, batches):
    mixed = factory(places, batches, batch_size=1, view=hr.Resize((128, 128)), prefetch=1)()
    with pytest.warns(UserWarning, match="alive: the loader allocates a new one") as caught:
        held = [batch for _ in range(2) for batch in mixed]
    assert len(held) == 2 * len(mixed)
    assert {warning.filename for warning in caught} == {__file__}


def test_one_source_alone_is_a_loader_that_goes_on(places):
    only = {"photos": places["photos"]}
    for batches in ("one-source", "mixed"):
        mixed = factory(only, batches, weights={"photos": 5}, remainder="short")()
        rows = sum((len(batch["source"]) for batch in mixed), 0)
        assert (mixed.window, rows) == (1, 40 if batches == "one-source" else 48)


def test_statistics_are_of_all_sources_and_of_each(places):
    mixed = factory(places, "mixed")()
    assert mixed.stats() is None
    assert mixed.source_stats() is None
    list(mixed)
    stats, each = mixed.stats(), mixed.source_stats()
    assert (stats.batches, stats.samples) == (len(mixed), mixed.samples)
    assert list(each) == ["photos", "scans"]
    assert sum(one.samples for one in each.values()) == stats.samples
    assert stats.stages["decode"].items == sum(one.stages["decode"].items for one in each.values())
    assert "samples/s" in str(stats)


@pytest.mark.long
def test_a_bad_sample_is_replaced_by_one_of_its_source(tmp_path):
    places = write_places(tmp_path)
    bad = sorted((tmp_path / "photos").rglob("*.jpg"))[0]
    bad.write_bytes(bad.read_bytes()[:60])
    for batches in ("one-source", "mixed"):
        mixed = factory(places, batches, max_bad=0.1, remainder="short", seed=1)()
        mine = battery.epochs(mixed, 2)
        keys = {key for batch in mine for key, n in zip(batch["key"], batch["source"], strict=True) if n == 0}
        assert len(keys) == COUNTS["photos"] - 1
        assert not any(key.endswith(f"{bad.stem}.jpg") for key in keys)
        assert mixed.source_stats()["scans"].bad == 0
        battery.check_resume_twice(factory(places, batches, max_bad=0.1, seed=1))


@pytest.mark.parametrize("batches", ["one-source", "mixed"])
def test_bad_samples_are_judged_by_what_a_pass_takes_of_a_source(documents, batches):
    """A source that comes again and again shows each rank more of its bad samples (a tenth) than its part of an epoch
    holds; one of which little is taken shows few."""
    fields = {"text": hr.Text(words, max_length=16, max_bytes=15, pad_id=0)}

    def loader(**options):
        each = {"batch_size": 2, "shuffle": True, "threads": 1, "output": "numpy"}
        return hr.Loader(documents, fields, **(each | options))

    ranks = {"world_size": 4, "rank": 1, "max_bad": 0.15}
    again = hr.mix({"a": loader(**ranks), "b": loader(**ranks)}, batches=batches, epoch=80)
    list(again)
    assert all(stats.bad > 3 for stats in again.source_stats().values())
    little = hr.mix({"a": loader(max_bad=0.1, shuffle=False)}, batches=batches, epoch=14)
    with pytest.raises(hr.HeadraceError, match="3 of 28 samples are bad, expected at most 2"):
        list(little)


def test_repr_says_what_is_mixed(places):
    mixed = factory(places, "mixed")()
    assert repr(mixed) == f"MixedLoader: {len(mixed)} batches of 12, of samples of all: photos 0.667, scans 0.333"
    assert "of one source each" in repr(factory(places, "one-source")())


def test_each_source_has_its_own_normalisation(places):
    mixed = factory(places, "mixed", view=hr.Resize((24, 24)))()
    batch = next(iter(mixed))
    for number, name in enumerate(mixed.sources):
        (alone,) = loader_of(places, name, view=hr.Resize((24, 24)), batch_size=COUNTS[name])
        pixels = dict(zip(alone["key"], alone["image"], strict=True))
        for row in np.flatnonzero(batch["source"] == number):
            assert np.array_equal(batch["image"][row], pixels[batch["key"][row]])


# --- packed texts ---


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    path = tmp_path_factory.mktemp("documents") / "documents.jsonl"
    path.write_text("".join(f'{{"text": "{"1 " * (number % 9)}", "number": {number}}}\n' for number in range(50)))
    return hr.open(path)


def words(texts):
    return [[int(word) for word in text.split()] for text in texts]


DOCUMENT_FIELDS = {"text": hr.Text(words, max_length=16, pad_id=0), "number": hr.Label(source="number")}


def packed(documents, fields, pack=hr.SequencePacking(16)):  # noqa: B008  # it is frozen
    return hr.Loader(documents, fields, pack=pack, batch_size=2, shuffle=True, threads=1, output="numpy")


@pytest.mark.parametrize("names", [["text"], ["text", "number"], ["number", "text"]])
def test_rows_of_tokens_tell_the_source_of_each_text(documents, names):
    """As many as other fields have, also where there are none, and where a text is empty."""
    fields = {name: DOCUMENT_FIELDS[name] for name in names}
    found = [len(batch["source"]) for batch in hr.mix({name: packed(documents, fields) for name in "ab"})]
    whole = hr.mix({name: packed(documents, DOCUMENT_FIELDS) for name in "ab"})
    assert found == [len(batch["number"]) for batch in whole]


def test_packed_texts_beside_others_are_refused(documents):
    sources = {"a": packed(documents, DOCUMENT_FIELDS), "b": packed(documents, DOCUMENT_FIELDS, pack=None)}
    with pytest.raises(hr.HeadraceError, match=r"number, text\.blocks.* of 'a'.*text\.ids.*pack= all texts or none"):
        hr.mix(sources)
    with pytest.raises(hr.HeadraceError, match="without buckets, Budget, RandomScale and pack with 'mixed'"):
        hr.mix({"a": sources["a"]}, batches="mixed")
