"""Everything that can be wrong with what the caller gives: views, sizes, functions, arguments."""

from __future__ import annotations

import inspect
import re
import traceback

import numpy as np
import pytest
from bad_loads import JPEG, PNG, fails, folder_of, load, says
from loader_data import COUNT, encode, photograph, write_folder
from torch.utils.data import DataLoader

import headrace as hr
from headrace import _core
from headrace.errors import (
    UsageError,
    ViewError,
)

# --- views and sizes ---


def job_of(views, count=1):
    job = _core.Job(np.arange(count), np.zeros(count, np.uint32), key=1, program=np.zeros((0, 10)), views=views)
    pixels, out = [np.zeros((30, 40, 3), np.uint8)] * count, np.zeros(count * 3 * 16 * 16, np.uint8)
    job.add_image(_core.Ranges(), _core.ImageOptions(), memory=pixels, out=out, height=16, width=16)
    return job


GOOD_VIEW = (0.0, 0.0, 40.0, 30.0, 0, 0, 40, 30, 16, 16, 0, 0, 16, 16, 0, 0, 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300, -7.0, 0.5, 4e9])
def test_views_of_nonsense_are_refused_by_the_core(value):
    """Whatever number of a view is nonsense, the sample beside it is untouched."""
    engine = _core.Engine(2)
    for column in range(14):
        views = np.array([GOOD_VIEW, GOOD_VIEW], np.float64)
        views[0, column] = value
        job = job_of(views, 2)
        engine.submit(job)
        job.wait()
        assert all(failure[0] == 0 for failure in job.failures()), "the other sample failed"
        if not np.isfinite(value):
            ((_, _, code, _, why),) = job.failures()
            assert code == 8
            assert "expected" in why
            assert "got" in why
    engine.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.RandomResizedCrop(16, scale=(float("nan"), 1.0)),
        lambda: hr.RandomResizedCrop(16, ratio=(0.5, float("inf"))),
        lambda: hr.RandomResizedCrop(16, flip=float("nan")),
        lambda: hr.Resize(float("nan")),
        lambda: hr.RandomHorizontalFlip(float("nan")),
    ],
)
def test_views_of_nonsense_are_refused_by_their_classes(make):
    with pytest.raises(UsageError, match=r"expected .* got .*(nan|inf)"):
        make()


def test_unequal_sizes_without_a_view(tmp_path):
    root = folder_of(tmp_path, a=PNG, b=encode(photograph(1, 60, 50), "PNG"))
    texts = ["one size", "48x64 (sample 'a.png')", "50x60 (sample 'b.png')", "Resize((height, width))", "batch_size=1"]
    fails(UsageError, load(root, view=None), *texts)
    sizes = [batch["image"].shape[2:] for batch in load(root, view=None, batch_size=1)]
    assert sizes == [(48, 64), (50, 60)]


def test_a_lone_bad_image_without_a_view_takes_its_replacements_size(tmp_path):
    other = encode(photograph(1, 60, 50), "PNG")
    for bad in (b"", JPEG[: len(JPEG) // 2]):
        root = folder_of(tmp_path / str(len(bad)), a=bad, b=other, c=other, d=other)
        loader = load(root, view=None, batch_size=1)
        shapes = [batch["image"].shape for batch in loader]
        assert shapes == [(1, 3, 50, 60)] * 4
        assert loader.stats().bad == 1


def test_a_batch_none_of_which_can_be_measured(tmp_path):
    loader = load(folder_of(tmp_path, a=b"", b=b"no", c=PNG), view=None, batch_size=2)
    fails(UsageError, loader, "expected images of readable size", "2 of a batch", "Resize((height, width))")


def test_a_crop_larger_than_the_image_is_a_bad_sample(tmp_path):
    root = folder_of(tmp_path, a=PNG, b=PNG, c=encode(photograph(1, 30, 20), "PNG"))
    texts = ["sample 'c.png'", "RandomCrop of 40 x 40", "30 x 20", "resize first", "pad_if_needed=True"]
    fails(ViewError, load(root, view=hr.RandomCrop(40), on_error="raise"), *texts)
    loader = load(root, view=hr.RandomCrop(40))
    assert [batch["image"].shape for batch in loader] == [(3, 3, 40, 40)]
    assert loader.stats().bad == 1


@pytest.mark.parametrize(("remainder", "samples"), [("short", 5), ("wrap", 12)])
def test_a_batch_larger_than_the_dataset(tmp_path, remainder, samples):
    root = folder_of(tmp_path, **{f"p{number}": PNG for number in range(5)})
    (batch,) = load(root, batch_size=12, remainder=remainder)
    assert len(batch["image"]) == samples


def test_a_batch_larger_than_the_dataset_with_nothing_left(tmp_path):
    with pytest.raises(UsageError) as caught:
        load(folder_of(tmp_path, a=PNG, b=PNG), batch_size=12, remainder="drop")
    says(caught, "leaves nothing", "2 samples", "12 x 1 ranks", "lower batch_size", "remainder='short'")


def test_more_ranks_than_samples_without_a_view(tmp_path):
    """A rank whose part is empty still takes every step."""
    root = folder_of(tmp_path, a=PNG)
    lengths = [
        [len(batch["image"]) for batch in load(root, view=None, batch_size=1, rank=rank, world_size=3)]
        for rank in range(3)
    ]
    assert sorted(lengths) == [[0], [0], [1]]


def test_labels_alone_need_no_view(tmp_path):
    dataset = hr.open(write_folder(tmp_path, 8))
    (batch,) = load(dataset, {"label": hr.Label()}, view=None)
    assert list(batch["label"]) == [0, 0, 1, 1, 2, 2, 3, 3]


# --- the user's own functions ---


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("user") / "photos"))


@pytest.mark.parametrize(
    ("map", "texts"),
    [
        (lambda sample, rng: None, ["map: expected a dict of fields for every sample", "got 'NoneType'"]),
        (lambda sample, rng: 3, ["map: expected a dict of fields", "got 'int'"]),
        (
            lambda sample, rng: sample if rng.random() < 0.5 else {},
            ["map: expected a dict"],
        ),
        (
            lambda sample, rng: sample | {"image": np.zeros((3, int(rng.integers(4, 9)), 4), np.uint8)},
            ["map: expected one shape for field 'image'", "(3, 4, 4)", "return the same shape"],
        ),
    ],
    ids=["None", "a number", "other fields", "other shapes"],
)
def test_a_map_that_returns_nonsense(photos, map, texts):
    fails(UsageError, load(photos, map=map, batch_size=COUNT), *texts)


def broken_map(sample, rng):
    if sample["label"] == 2:
        raise KeyError("the user's own mistake")
    return sample


@pytest.mark.parametrize("on_error", ["raise", "replace"])
def test_a_map_that_raises_keeps_its_traceback(photos, on_error):
    """The user's mistake is not a bad sample: it stops the run under either policy."""
    error = fails(KeyError, load(photos, map=broken_map, on_error=on_error), "the user's own mistake")
    assert any("broken_map" in line for line in traceback.format_exception(error))
    (note,) = error.__notes__
    assert "map=" in note
    assert "sample 'cat/0020." in note
    assert "epoch 0, position 20" in note


def test_a_batch_map_that_raises(photos):
    def batch_map(batch, rng):
        raise ValueError("too early")

    error = fails(ValueError, load(photos, batch_map=batch_map), "too early")
    assert error.__notes__ == ["in batch_map=, epoch 0, step 0"]
    assert any(frame.name == "batch_map" for frame in traceback.extract_tb(error.__traceback__))


@pytest.mark.parametrize("argument", ["map", "batch_map"])
def test_stop_iteration_does_not_end_the_epoch_in_silence(photos, argument):
    def stop(value, rng):
        next(iter(()))

    fails(RuntimeError, load(photos, **{argument: stop}), "StopIteration raised in")


def test_batches_before_the_failure_are_delivered(photos):
    iterator = iter(load(photos, map=broken_map, batch_size=10))
    assert [len(next(iterator)["label"]) for _ in range(2)] == [10, 10]
    with pytest.raises(KeyError):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


# --- arguments ---


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"threads": 0}, ["threads: expected an int of at least 1, got 0"]),
        ({"prefetch": 1.5}, ["prefetch: expected an int of at least 1, got 1.5"]),
        ({"on_error": "ignore"}, ["on_error: expected 'replace' or 'raise', got 'ignore'"]),
        ({"max_bad": 2}, ["max_bad: expected a share from 0 to 1, got 2"]),
        ({"max_bad": "none"}, ["max_bad: expected a share from 0 to 1, got 'none'"]),
        ({"output": "jax"}, ["output: expected 'torch' or 'numpy', got 'jax'"]),
        ({"rank": 1}, ["rank and world_size together"]),
        ({"rank": 2, "world_size": 2}, ["rank: expected an int from 0 to 1, got 2"]),
        ({"batch_size": 0}, ["batch_size: expected an int from 1"]),
        ({"seed": -1}, ["seed: expected an int from 0"]),
        ({"view": "big"}, ["view: expected a view such as hr.Resize(256)"]),
        ({"view_from": "depth"}, ["view_from: expected the name of an image field", "'depth'"]),
        ({"fields": {"image": hr.Image(source="png")}}, ["expected a column of the dataset, got 'png'", "source="]),
        (
            {"fields": {"image": "rgb"}},
            [
                "field 'image': expected Image, Images, Mask, Depth, Normals, Boxes, Keypoints, InstanceMasks, ",
                "Text, Array, Label, Raw or Key, got str",
            ],
        ),
        ({"fields": ["image"]}, ["fields: expected a dict of names to fields", "got ['image']"]),
        ({"fields": {"label": hr.Label()}}, ["view: expected a field of pixels to cut"]),
        ({"fields": {"label": hr.Image()}}, ["field 'label': expected a column of bytes or of paths"]),
        ({"fields": {"image": hr.Image(dtype="bfloat16")}}, ["numpy has no bfloat16", "output='torch'"]),
        ({"fields": {"image": hr.Depth(dtype="bfloat16")}}, ["numpy has no bfloat16", "output='torch'"]),
        ({"fields": {"image": hr.Normals(dtype="bfloat16")}}, ["numpy has no bfloat16", "output='torch'"]),
        ({"quarantine": "/nowhere/bad.jsonl"}, ["quarantine: expected a file that can be written", "/nowhere"]),
        ({"instruction_set": "mmx"}, ["instruction_set", "mmx", "scalar"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_named_before_anything_is_read(photos, options, texts):
    with pytest.raises(UsageError) as caught:
        load(photos, **options)
    says(caught, *texts)


def test_a_map_needs_a_sample_on_every_rank(tmp_path):
    photos = folder_of(tmp_path, **{f"p{i}": JPEG for i in range(10)})
    ranks = {"batch_size": 2, "rank": 1, "world_size": 4}
    with pytest.raises(UsageError) as caught:
        load(photos, map=lambda sample, rng: sample, **ranks)
    says(caught, "each of the 4 ranks", "got 2", "remainder='drop'")


def test_batches_before_sizes_that_differ_are_delivered(tmp_path):
    small = encode(photograph(2, 20, 20))
    photos = folder_of(tmp_path, **{f"a{i}": JPEG for i in range(8)}, z1=small, z2=JPEG)
    iterator = iter(load(photos, view=None, batch_size=2, prefetch=8))
    assert [len(next(iterator)["image"]) for _ in range(4)] == [2] * 4
    with pytest.raises(UsageError, match="images of one size"):
        next(iterator)


def test_a_fill_of_four_channels_is_refused():
    with pytest.raises(UsageError, match="three of them"):
        hr.CenterCrop(64, fill=(1, 2, 3, 4))


def test_a_pass_that_is_still_held_does_not_move_a_restored_position(photos):
    loader = load(photos, batch_size=2)
    held = iter(loader)
    next(held)
    state = loader.state_dict()
    loader.load_state_dict(state)
    next(held)
    assert loader.state_dict() == state
    held.close()


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "2"), ("RANK", "1")])
def test_half_of_a_launchers_variables(photos, monkeypatch, name, value):
    """Each process would take the part of one rank, in silence."""
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    assert load(photos).world_size == 1
    monkeypatch.setenv(name, value)
    with pytest.raises(
        UsageError, match=f"expected RANK and WORLD_SIZE together .*{name}={value}.*; set both, or pass"
    ):
        load(photos)


@pytest.mark.parametrize("name", sorted(set(inspect.signature(DataLoader).parameters) - {"batch_size", "shuffle"}))
def test_an_argument_of_dataloader_names_its_counterpart(photos, name):
    """All of them, as this torch has them, but for those that mean the same here."""
    if name == "multiprocessing_context":  # of map_workers here
        return
    with pytest.raises(TypeError) as raised:
        hr.Loader(photos, batch_size=4, **{name: 2})
    assert isinstance(raised.value, UsageError)
    said = str(raised.value)
    assert said.startswith(f"Loader: expected arguments of Loader, got {name}=; instead of {name}=: ")
    named = [word.removesuffix("=") for word in re.findall(r"\b\w+=", said.split(": ", 2)[2])]
    own = set(inspect.signature(hr.Loader).parameters)
    assert "nothing" in said or "first argument" in said or any(word in own for word in named), said


def test_counterparts_are_those_that_do_it(photos):
    with pytest.raises(
        TypeError, match=r'num_workers=, drop_last=; .* threads= says .*; .* drop_last=: remainder="drop"'
    ):
        hr.Loader(photos, batch_size=4, num_workers=4, drop_last=True)
    with pytest.raises(TypeError, match=r"instead of sampler=: shuffle= and seed= .* data\.select\(indices\)"):
        hr.Loader(photos, batch_size=4, sampler=[0, 1])
    with pytest.raises(TypeError, match=r"instead of shufle=: did you mean shuffle=\?"):
        hr.Loader(photos, batch_size=4, shufle=True)
    with pytest.raises(TypeError, match=r"instead of zebra=: Loader has no such argument"):
        hr.Loader(photos, batch_size=4, zebra=True)
