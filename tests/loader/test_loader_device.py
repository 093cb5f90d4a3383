"""`Loader(device=)`: the battery through it, the same bits, and its ends. Here the "device" is the host's memory, and
everything else, thread, lane and conversion there, is what a device gets; test_device_cuda.py has a real one."""

from __future__ import annotations

import gc
from dataclasses import replace

import battery
import dense_data
import pytest
import text_data
import torch
from loader_data import COUNT, write_folder
from processes import eventually, in_fork, own_threads

import headrace as hr
from headrace.device import place
from headrace.loader.decoding.pixels import parts_of

GLOBAL_BATCH = 12
VIEW = hr.RandomResizedCrop(24, flip=0.5)
FIELDS = {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET), "label": hr.Label()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("device") / "photos"))


@pytest.fixture(autouse=True)
def host_as_device(monkeypatch):
    """Fields are placed as for another device, which is then the CPU."""

    def placed(device, output, fields, *, host_floats, decodes):
        placement = place("meta", fields, host_floats=host_floats)
        return replace(placement, device=torch.device("cpu"))

    monkeypatch.setattr("headrace.loader.loader_spec.place_fields", placed)


@pytest.fixture
def make(folder):
    def make(data=folder, **overrides):
        given = {"view": VIEW, "batch_size": GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2, "device": "cuda"}
        return hr.Loader(data, FIELDS, **(given | overrides))

    return make


def test_no_thread_count_changes_a_bit(make):
    battery.check_threads(make)


def test_same_bits_as_without(make):
    battery.assert_equal(battery.epochs(make()), battery.epochs(make(device=None)), "device")


def test_dense_fields_in_batches_of_one_shape_are_the_same_there(tmp_path):
    """Only pictures become floats there; masks, depth, its validity and normals go as they are."""
    scenes = dense_data.write_tar(tmp_path)
    fields = {
        "rgb": hr.Image(dtype="float16", normalize=hr.IMAGENET),
        "mask": hr.Mask(dtype="int64"),
        "depth": hr.Depth(1 / 1000, normalize=hr.Quantiles()),
        "normals": hr.Normals(dtype="bfloat16"),
    }

    def batches(device):
        view = hr.RandomScale((24, 30, 40), multiple_of=8, flip=0.5)
        buckets, budget = hr.Buckets("aspect", count=3), hr.Budget(pixels=6000)
        return battery.epochs(
            hr.Loader(scenes, fields, view=view, buckets=buckets, batch_size=budget, shuffle=True, device=device)
        )

    battery.assert_equal(batches("cuda"), batches(None), "device")


def test_copies_are_the_same_there(folder):
    fields = {
        "large": hr.Image(source="image", view=VIEW, copies=2, dtype="float32", normalize=hr.IMAGENET),
        "small": hr.Image(source="image", view=hr.RandomCrop(8), copies=3, dtype="bfloat16", channels_last=False),
    }
    given = {"batch_size": GLOBAL_BATCH, "shuffle": True, "threads": 2}
    host, there = (hr.Loader(folder, fields, device=device, **given) for device in (None, "cuda"))
    assert there._feed.placement.conversions.keys() == fields.keys()
    battery.assert_equal(battery.epochs(there), battery.epochs(host), "device")
    shape = next(iter(there))["small"]
    assert shape.shape == (GLOBAL_BATCH, 3, 3, 8, 8)
    assert shape.stride() == next(iter(host))["small"].stride()


def test_texts_and_arrays_are_the_same_there(tmp_path):
    pairs = hr.open(text_data.write_tar(tmp_path / "pairs.tar"))
    text = hr.Text(text_data.tokenizer(), max_length=12, source="txt")
    fields = FIELDS | {"label": hr.Array(source="npy"), "text": text}

    def batches(device):
        return battery.epochs(hr.Loader(pairs, fields, view=VIEW, batch_size=7, shuffle=True, device=device))

    battery.assert_equal(batches("cuda"), batches(None), "device")


def test_the_host_makes_bytes(make):
    assert make()._feed.recipe.fields["image"] == hr.Image()


def test_what_map_sees_is_what_it_sees_without_a_device(make):
    def brightest(batch, rng):
        return batch | {"brightest": batch["image"].amax((1, 2, 3))}

    with_device, without = (battery.kept(make(batch_map=brightest, device=device)) for device in ("cuda", None))
    battery.assert_equal(with_device, without, "batch_map")


def brightest(sample, rng):
    return sample | {"brightest": sample["image"].amax(), "drawn": rng.random(), "half": sample["image"] / 2}


def test_what_map_workers_make_comes_to_the_device(make):
    by_workers, by_threads = (battery.kept(make(map=brightest, map_workers=workers)) for workers in (2, 0))
    battery.assert_equal(by_workers, by_threads, "map_workers")


def test_world_sizes(make):
    battery.check_world_sizes(make, GLOBAL_BATCH)


def test_resume_at_every_step(make):
    battery.check_resume_at_every_step(make)
    battery.check_resume_twice(make)
    battery.check_restored_state_is_the_same(make)


def test_a_state_of_a_run_without_a_device_goes_on_with_one(make):
    battery.check_resume_at_every_step(lambda device=None, **given: make(device=device, **given), device="cuda")


def test_ends_with_its_consumer(make):
    for _ in make():
        break
    iterator = iter(make())
    next(iterator)
    del iterator
    gc.collect()


def test_goes_on_in_a_fork(make):
    loader = make()
    expected = battery.kept(make())
    iterator = iter(loader)
    got = [next(iterator)]

    def rest():
        return b"".join(batch["image"].numpy().tobytes() for batch in iterator)

    child = in_fork(rest)
    got += list(iterator)
    battery.assert_equal(battery.kept(got), expected, "in the parent")
    assert child() == b"".join(batch["image"].tobytes() for batch in expected[1:])


def test_a_device_that_fails_leaves_nothing_behind(make, monkeypatch):
    """As CUDA does in a fork. What had been started by then would be nobody's."""

    def fail(device, images):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    loader = make()
    monkeypatch.setattr("headrace.device.h2d_copy.lane_to", fail)
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA"):
        iter(loader)
    assert own_threads() == []


def test_an_error_in_map_keeps_its_note(make):
    def fail(sample, rng):
        raise LookupError("in map")

    with pytest.raises(LookupError) as caught:
        list(make(map=fail))
    assert any("in map=, sample" in note for note in caught.value.__notes__)


def test_statistics_are_the_consumers(make):
    loader = make()
    iterator = iter(loader)
    next(iterator)
    assert eventually(lambda: loader.stats().samples >= 3 * GLOBAL_BATCH), "the host works ahead of the device"
    stats = loader.stats()
    assert stats.batches == 1
    assert stats.convert_s > 0
    list(iterator)
    assert (loader.stats().batches, loader.stats().samples) == (len(loader), COUNT)
    assert "copy to the device" in str(loader.stats())


def test_numpy_output_stays_on_the_host(folder, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(hr.HeadraceError, match="device: expected output='torch' with it, got output='numpy'"):
        hr.Loader(folder, batch_size=4, view=VIEW, output="numpy", device="cuda")


def test_the_cpu_is_where_batches_are_made_anyway(folder, monkeypatch):
    monkeypatch.undo()
    loader = hr.Loader(folder, FIELDS, batch_size=4, view=VIEW, device="cpu")
    assert loader._feed.placement is None
    assert loader._feed.recipe.fields["image"].dtype == "float32"


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
@pytest.mark.parametrize("channels_last", [True, False])
def test_memory_of_torchs_allocator_is_handed_out_as_its_own_storage(make, dtype, channels_last):
    """By the storage's own handle the allocator learns of copies from it, and so keeps pinned memory while they run."""
    image = hr.Image(dtype=dtype, channels_last=channels_last)
    allocated = torch.zeros(2 * 4 * 6 * 3 * getattr(torch, dtype).itemsize, dtype=torch.uint8)
    (part,) = parts_of("image", image)
    batch = part.over(allocated.numpy(), 2, (4, 6), "torch")
    assert batch.untyped_storage()._cdata == allocated.untyped_storage()._cdata
    assert (batch.shape, batch.dtype) == ((2, 3, 4, 6), getattr(torch, dtype))
