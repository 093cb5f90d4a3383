"""How a pass over a mixture ends, whatever ends it; forks; the way to a device, which here is the host's memory."""

from __future__ import annotations

from dataclasses import replace

import battery
import pytest
import torch
from mixture_data import GLOBAL_BATCH, factory, write_places
from processes import eventually, own_threads

import headrace as hr
from headrace.device import place

BATCHES = ("one-source", "mixed")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return write_places(tmp_path_factory.mktemp("leaving"))


@pytest.fixture
def host_as_device(monkeypatch):
    """Fields are placed as for another device, which is then the CPU."""

    def placed(device, output, fields, *, host_floats, decodes):
        placement = place("meta", fields, host_floats=host_floats)
        return replace(placement, device=torch.device("cpu"))

    monkeypatch.setattr("headrace.loader.loader_spec.place_fields", placed)


@pytest.fixture(params=BATCHES)
def make(request, places):
    return factory(places, request.param)


@pytest.mark.parametrize("batches", BATCHES)
def test_an_error_of_a_source_names_it_and_ends_all(places, batches):
    def fail(sample, rng):
        raise LookupError("in map")

    mixed = factory(places, batches, only={"scans": {"map": fail}}, remainder="wrap")()
    with pytest.raises(LookupError) as caught:
        list(mixed)
    assert "in source 'scans' of the mixture" in caught.value.__notes__
    assert any("in map=, sample" in note for note in caught.value.__notes__)
    assert eventually(lambda: own_threads() == [])


@pytest.mark.parametrize("batches", BATCHES)
def test_too_many_bad_samples_of_one_source(tmp_path, batches):
    places = write_places(tmp_path)
    for path in (tmp_path / "photos").rglob("*.*"):
        path.write_bytes(b"no image")
    with pytest.raises(hr.HeadraceError, match="samples are bad, expected at most") as caught:
        list(factory(places, batches)())
    assert "in source 'photos' of the mixture" in caught.value.__notes__


@pytest.mark.parametrize("batches", BATCHES)
def test_a_source_that_cannot_begin_leaves_nothing(places, batches, monkeypatch):
    mixed = factory(places, batches)()
    sources = list(mixed._sources.values())

    def fail(epoch, step, *, recipe, tuner):
        raise OSError("no more threads")

    monkeypatch.setattr(sources[1]._feed, "start", fail)
    with pytest.raises(OSError, match="no more threads"):
        iter(mixed)
    assert eventually(lambda: own_threads() == [])


# --- devices ---

ON_DEVICE = {"photos": {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET), "label": hr.Label()}}
ON_DEVICE["scans"] = ON_DEVICE["photos"]


def on_device(places, batches, **options):
    only = {name: {"fields": fields} for name, fields in ON_DEVICE.items()}
    return factory(places, batches, output="torch", only=only, **options)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batches", BATCHES)
def test_same_bits_on_a_device(places, batches, host_as_device, monkeypatch):
    make = on_device(places, batches, device="cuda")
    batch = next(iter(make()))
    assert batch["image"].dtype == torch.float32
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    there = battery.epochs(make())
    battery.check_resume_at_every_step(make)
    mixed = make()
    iterator = iter(mixed)
    next(iterator)
    assert mixed.stats().batches == 1
    assert mixed.stats().convert_s > 0
    iterator.close()
    monkeypatch.undo()
    battery.assert_equal(there, battery.epochs(on_device(places, batches)()), "device")


def test_a_device_that_fails_leaves_nothing_behind(places, host_as_device, monkeypatch):
    def fail(device, images):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    mixed = on_device(places, "mixed", device="cuda")()
    monkeypatch.setattr("headrace.device.h2d_copy.lane_to", fail)
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA"):
        iter(mixed)
    assert own_threads() == []


def test_one_way_to_the_device_has_one_conversion(places, host_as_device):
    with pytest.raises(hr.HeadraceError, match="expected the same conversion on the device of all sources"):
        factory(places, "one-source", output="torch", device="cuda")()


# --- frameworks ---


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.long
def test_as_dataloader(places, batches):
    make = factory(places, batches, output="torch")
    dataloader = make().as_dataloader()
    assert len(dataloader) == len(make())
    assert dataloader.batch_size == GLOBAL_BATCH
    battery.assert_equal(battery.epochs(dataloader), battery.epochs(make()), "as_dataloader")
    battery.check_resume_at_every_step(lambda: make().as_dataloader())
