"""Selections that repeat samples: each time a draw of its own, keyed by (base sample, occurrence, pass) alone."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import battery
import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loader_data import encode, photograph, write_folder
from mixture_data import WEIGHTS, factory, write_places
from torch.utils.data import Dataset as TorchDataset
from twin.rng import Stream
from twin.views import sample_view

import headrace as hr
from headrace.data.selection import DRAW_BITS, draw_ids, occurrences
from headrace.errors import UsageError
from headrace.plan.order import epoch_key
from headrace.views import compile_view

VIEW = hr.RandomResizedCrop(16, flip=0.5)
COUNT = 6
TEXTS = 400
REPEATED = [5, 0, 5, 3, 3, 5, 1, 5, 0, 5, 2, 2]
"""With samples that come once, twice and five times; 4 does not."""


def tokenize(texts):
    return [[int(word) for word in text.split()] for text in texts]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Photographs of two sizes, each with `TEXTS` captions of one token, that no other has."""
    root = tmp_path_factory.mktemp("repeats")
    rows = []
    for number in range(COUNT):
        size = (60, 44) if number % 2 else (44, 60)
        (root / f"{number}.jpg").write_bytes(encode(photograph(number, *size), quality=90))
        captions = [str(number * TEXTS + which) for which in range(TEXTS)]
        rows.append({"image": f"{number}.jpg", "text": captions, "number": number})
    path = root / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hr.open(path)


def with_draw(sample, rng):
    return sample | {"rng": int(rng.integers(1 << 62))}


def load(dataset, fields=None, **options):
    given = {"view": VIEW, "map": with_draw, "batch_size": 8, "threads": 2, "output": "numpy", "seed": 3}
    text = hr.Text(tokenize, max_length=4, pad_id=9)
    chosen = fields or {"image": hr.Image(), "number": hr.Label(), "text": text}
    return hr.Loader(dataset, chosen, **(given | options))


def drawn(loader):
    """(number, pixels, draw, caption) of each sample of an epoch, in order."""
    return [
        (int(batch["number"][row]), batch["image"][row].tobytes(), int(batch["rng"][row]), int(ids[0]))
        for batch in loader
        for row, ids in enumerate(batch["text"]["ids"])
    ]


def expected_draw(epoch, base, occurrence, number=0):
    """What `with_draw` draws for a sample, by numpy's own Philox."""
    counter = np.array([0, 0, base + (occurrence << 36), number], np.uint64)
    key = np.array([epoch_key(3, epoch), 1], np.uint64)
    return int(np.random.Generator(np.random.Philox(key=key, counter=counter)).integers(1 << 62))


def naive(ids):
    seen = defaultdict(int)
    found = []
    for each in ids:
        found.append(seen[each])
        seen[each] += 1
    return found


selections = st.lists(st.integers(0, 300), max_size=60) | st.lists(st.integers(0, 4), max_size=600)


@given(selections, st.integers(301, 5000))
def test_occurrences_count_what_came_before(ids, size):
    found = occurrences(np.array(ids, np.int64), size)
    assert (found is None) == (len(set(ids)) == len(ids))
    assert (naive(ids) if found is None else found.tolist()) == naive(ids)
    assert found is None or found.itemsize == (1 if max(naive(ids)) < 256 else 2)


@given(st.lists(st.tuples(st.integers(0, 2**36 - 1), st.integers(0, 2**27 - 1)), min_size=1))
def test_a_draw_id_tells_each_pair_apart(pairs):
    ids, numbers = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found = draw_ids(ids, numbers).tolist()
    assert found == [base + (number << 36) for base, number in pairs]
    assert len(set(found)) == len(set(pairs))
    assert min(found) >= 0


@given(st.data())
def test_a_selection_of_a_selection_counts_as_the_one_that_it_makes(data, draw):
    first = draw.draw(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=20))
    second = draw.draw(st.lists(st.integers(0, len(first) - 1), max_size=20))
    whole = [first[at] for at in second]
    found = data.select(first).select(second)
    expected = [base + (number << 36) for base, number in zip(whole, naive(whole), strict=True)]
    assert found.draw_ids(np.arange(len(whole))).tolist() == expected
    assert found.fingerprint == data.select(whole).fingerprint


def test_what_repeats_nothing_keeps_no_numbers(data):
    for chosen in (data, data.select([4, 2, 0]), data.select(slice(None, None, -1)), data[1:3], data.select([])):
        assert chosen.occurrences is None
    order = np.random.default_rng(0).permutation(COUNT)
    assert data.select(order).draw_ids(np.arange(COUNT)).tolist() == order.tolist()
    assert drawn(load(data.select(list(range(COUNT))))) == drawn(load(data))


def test_more_than_a_draw_id_holds_is_refused():
    large = 1 << DRAW_BITS
    assert occurrences(np.array([large + 1, large], np.int64), 2 * large) is None
    with pytest.raises(
        UsageError, match="expected base ids below 68,719,476,736 in a selection that repeats samples, got"
    ):
        occurrences(np.array([large, large], np.int64), 2 * large)


def test_more_repeats_than_a_draw_id_holds_are_refused(data, monkeypatch):
    monkeypatch.setattr("headrace.data.selection.MOST_OCCURRENCES", 3)
    with pytest.raises(UsageError, match="expected a sample at most 3 times in a selection, got one 5 times"):
        load(data.select(REPEATED))


def test_each_repeat_gets_a_crop_a_draw_and_a_caption_of_its_own(data):
    found = drawn(load(data.select([5] * 64), batch_size=64))
    assert len({pixels for _, pixels, _, _ in found}) == 64
    assert len({draw for _, _, draw, _ in found}) == 64
    assert len({caption for _, _, _, caption in found}) > 50  # of 400, 64 draws have about 59 different ones
    assert {number for number, _, _, _ in found} == {5}
    assert found[0] == drawn(load(data.select([5])))[0]


def test_draws_are_those_of_base_occurrence_and_pass(data):
    found = drawn(load(data.select(REPEATED)))
    numbers = naive(REPEATED)
    assert [draw for _, _, draw, _ in found] == [
        expected_draw(0, *each) for each in zip(REPEATED, numbers, strict=True)
    ]
    sources = {number: (60, 44) if number % 2 else (44, 60) for number in range(COUNT)}
    cropped = list(load(data.select(REPEATED), {"image": hr.Image(dct_scaling=False), "number": hr.Label()}, map=None))
    pixels = np.concatenate([batch["image"] for batch in cropped])
    for row, (base, number) in enumerate(zip(REPEATED, numbers, strict=True)):
        width, height = sources[base]
        view = sample_view(
            compile_view(VIEW).ops.tolist(),
            key=epoch_key(3, 0), sample=base + (number << 36), number=0, dataset=0, width=width, height=height,
        )  # fmt: skip
        whole = hr.decode_image(encode(photograph(base, width, height), quality=90), output="numpy")
        left, top, right, bottom = (int(edge) for edge in view[:4])
        window = PIL.Image.fromarray(np.ascontiguousarray(whole[top:bottom, left:right]))
        expected = np.asarray(window.resize((16, 16), PIL.Image.Resampling.BILINEAR)).astype(int)
        expected = expected[:, ::-1] if view[14] else expected
        assert np.abs(np.moveaxis(pixels[row], 0, -1) - expected).max() <= 1
    captions = [caption for _, _, _, caption in found]
    for base, number, caption in zip(REPEATED, numbers, captions, strict=True):
        high = Stream(epoch_key(3, 0), base + (number << 36), 0, 0, 254).at(0)[0] >> 32
        assert caption == base * TEXTS + (high * TEXTS >> 32)


def test_equal_pairs_draw_alike_wherever_they_stand(data):
    forward, other = (dict(_by_pair(data, chosen)) for chosen in (REPEATED, [3, 5, 5, 3, 5, 1]))
    shared = forward.keys() & other.keys()
    assert len(shared) == 6
    assert all(forward[pair] == other[pair] for pair in shared)


def _by_pair(data, chosen):
    return zip(zip(chosen, naive(chosen), strict=True), drawn(load(data.select(chosen))), strict=True)


def test_what_wrap_takes_once_more_gets_others_again(data):
    found = drawn(load(data.select(REPEATED), remainder="wrap", shuffle=True, seed=3))
    assert len(found) == 16
    assert Counter(number for number, *_ in found)[5] >= 5
    assert len({draw for _, _, draw, _ in found}) == len({pixels for _, pixels, _, _ in found}) == 16
    first = [number for number, *_ in found[:12]]
    assert sorted(first) == sorted(REPEATED)
    bases = [number for number, *_ in found[12:]]
    possible = {expected_draw(0, base, k, 1) for base in bases for k in range(5)}
    assert {draw for _, _, draw, _ in found[12:]} <= possible


def test_repeats_share_what_a_cache_keeps(data, tmp_path):
    options = {"cache": f"disk:{tmp_path}:50MB", "batch_size": 4}
    list(load(data, **options))
    loader = load(data.select(REPEATED * 4), **options)
    assert drawn(loader) == drawn(load(data.select(REPEATED * 4)))
    found = loader.stats().cache
    assert (found.hits > 0, found.misses, found.admitted) == (True, 0, 0)


CASES = {
    "plain": {},
    "wrap": {"remainder": "wrap"},
    "buckets, wrap": {"buckets": hr.Buckets("orientation"), "remainder": "wrap"},
    "map workers": {"map_workers": 1},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(2)
def test_battery(data, case):
    def make(**overrides):
        return load(data.select(REPEATED), **({"shuffle": True, "batch_size": 4} | CASES[case] | overrides))

    battery.check_world_sizes(make, 4)
    battery.check_resume_at_every_step(make)
    if case != "map workers":
        battery.check_threads(make)


def test_buckets_and_packed_rows_draw_for_each_repeat(data):
    chosen = data.select([5] * 32 + [2] * 8)
    by_shape = drawn(load(chosen, buckets=hr.Buckets("orientation"), shuffle=True, batch_size=8))
    assert len({pixels for _, pixels, *_ in by_shape}) == len({draw for *_, draw, _ in by_shape}) == 40
    text = hr.Text(tokenize, max_length=8, pad_id=9)
    packed = load(chosen, {"text": text}, view=None, map=None, pack=hr.SequencePacking(8), batch_size=2)
    ids = np.concatenate([batch["text"]["ids"][batch["text"]["mask"]] for batch in packed]).tolist()
    assert len(ids) == 40
    assert len(set(ids)) > 30


@pytest.mark.parametrize("batches", ["one-source", "mixed"])
def test_sources_of_a_mixture_draw_for_each_repeat(tmp_path, batches):
    places = {name: each.select([4] * 24) for name, each in write_places(tmp_path).items()}
    mixture = factory(places, batches, weights=WEIGHTS)()
    images = np.concatenate([batch["image"] for batch in mixture])
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)


def test_replacements_are_the_same_on_every_rank(tmp_path):
    root = write_folder(tmp_path / "damaged", 8)
    broken = next(root.glob("*/0003.*"))
    broken.write_bytes(broken.read_bytes()[:30])
    chosen = hr.open(root).select([3, *[1, 2, 0, 4, 5] * 4, 3, 1, 2])
    fields = {"image": hr.Image(), "number": hr.Label(source="label")}

    def make(**overrides):
        return load(chosen, fields, **({"max_bad": 1.0, "batch_size": 4} | overrides))

    battery.check_world_sizes(make, 4)
    images = np.concatenate([batch["image"] for batch in make()])
    assert len(np.unique(images.reshape(24, -1), axis=0)) == 24


class Drawing(TorchDataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return index, int(hr.sample_random().numpy.integers(1 << 62))


def test_a_samplers_repeats_draw_for_each_in_thread_data_loader():
    sampler = torch.utils.data.WeightedRandomSampler([0, 0, 1.0, 0, 0, 0], 24, generator=torch.Generator())
    loader = hr.ThreadDataLoader(Drawing(), batch_size=8, sampler=sampler, num_workers=2)
    indices, draws = (torch.cat(column).tolist() for column in zip(*loader, strict=True))
    assert set(indices) == {2}
    assert len(set(draws)) == 24


def test_images_decoded_together_draw_for_each():
    picture = encode(photograph(1, 60, 44))
    found = hr.ImageReader(view=VIEW, output="numpy").read_batch([picture] * 16, rng=4)
    assert len(np.unique(np.asarray(found).reshape(16, -1), axis=0)) == 16


def old(state):
    """As the version of plans before this one saved it."""
    if "sources" in state:
        return state | {"sources": {name: each | {"plan": 1} for name, each in state["sources"].items()}}
    return state | {"plan": 1}


def test_an_old_state_goes_on_and_says_that_draws_changed(data):
    expected = drawn(load(data.select(REPEATED)))
    loader = load(data.select(REPEATED))
    with pytest.warns(
        UserWarning, match="repeats of a sample shared one random draw; under version 2 each has its own"
    ):
        loader.load_state_dict(old(battery.state_after(load(data.select(REPEATED)), 1)))
    assert drawn(loader) == expected[8:]
    quiet = load(data)
    quiet.load_state_dict(old(battery.state_after(load(data, batch_size=4), 0)) | {"global_batch": 8})


def test_an_old_state_of_a_mixture_names_the_source_that_repeats(tmp_path):
    places = write_places(tmp_path)
    places["scans"] = places["scans"].select([0, 0, 1])
    make = factory(places, "mixed")
    mixture = make()
    with pytest.warns(UserWarning, match=r"^source 'scans' of the mixture: this dataset's selection repeats") as told:
        mixture.load_state_dict(old(battery.state_after(make(), 1)))
    assert len(told) == 1
