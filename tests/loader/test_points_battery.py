"""The battery over boxes and keypoints: on threads and processes, beside bad samples, and on their way to a device."""

from __future__ import annotations

from dataclasses import replace

import battery
import pytest
import torch
from points_data import fields, write_coco

import headrace as hr
from headrace.device import place

VIEW = hr.RandomResizedCrop(44, flip=0.5)
MOVES = [hr.RandomRotation(30), hr.RandomApply([hr.ElasticTransform(sigma=2.0)]), hr.RandomPerspective(p=0.7)]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("battery")
    return {"good": hr.open(write_coco(root / "good")), "bad": hr.open(write_coco(root / "bad", damaged=(3, 8, 16)))}


def as_they_are(sample, rng):
    return sample


CASES = {
    "numpy": {"place": "good", "output": "numpy"},
    "torch, bad samples": {"place": "bad", "output": "torch", "max_bad": 0.5},
    "torch, bad samples, map": {
        "place": "bad",
        "output": "torch",
        "max_bad": 0.5,
        "map": as_they_are,
        "remainder": "wrap",
        "augment": MOVES,
    },
}


def factory(places, *, place, **options):
    def make(**overrides):
        given = {"view": VIEW, "batch_size": battery.GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2} | options
        return hr.Loader(places[place], fields(min_size=2, min_visible=0.2), **(given | overrides))

    return make


@battery.over(CASES)
@pytest.mark.one_in(2)
def test_battery(places, case, check):
    check(factory(places, **CASES[case]))


def test_processes_give_what_threads_give(places):
    make = factory(places, place="bad", output="torch", max_bad=0.5, map=as_they_are)
    battery.assert_equal(battery.epochs(make(map_workers=2)), battery.epochs(make()), "map_workers=2")


def test_on_the_way_to_a_device(places, monkeypatch):
    """Here the "device" is the host's memory, and thread and lane are those that a device gets."""
    make = factory(places, place="good", output="torch")
    expected = battery.epochs(make())

    def placed(device, output, fields, *, host_floats, decodes):
        placement = place("meta", fields, host_floats=host_floats)
        return replace(placement, device=torch.device("cpu"))

    monkeypatch.setattr("headrace.loader.loader_spec.place_fields", placed)
    battery.assert_equal(battery.epochs(make(device="cuda")), expected, "device")
    assert all(isinstance(each, torch.Tensor) for each in next(iter(make(device="cuda")))["boxes"])
