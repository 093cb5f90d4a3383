"""The battery over every source: one set of photographs, in each form that a dataset is opened from."""

from __future__ import annotations

import battery
import pytest
from source_data import SOURCES, labels

import headrace as hr


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    return {name: open_source(tmp_path_factory.mktemp("source")) for name, open_source in SOURCES.items()}


def factory(dataset: hr.Dataset):
    fields = {"image": hr.Image(), "label": hr.Label(source="image_id" if "image_id" in dataset.columns else None)}

    def make(**overrides):
        given = {"batch_size": battery.GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2} | overrides
        return hr.Loader(dataset, fields, view=hr.RandomResizedCrop(24, flip=0.5), output="numpy", **given)

    return make


OTHERS = [name for name in SOURCES if name not in ("folder", "tar")]
"""`test_battery` has the folder and the tar."""


@pytest.fixture(params=OTHERS)
def name(request):
    return request.param


@battery.over(OTHERS, but=("instruction sets",))
@pytest.mark.one_in(4)
def test_battery(opened, case, check):
    check(factory(opened[case]))


def test_batches_are_those_of_the_folder(opened, name):
    """The same pixels in the same order, and the labels that belong to them."""
    got, expected = (battery.kept(factory(opened[source])()) for source in (name, "folder"))
    if name == "coco":  # there the label is the sample's number
        for batch in got:
            batch["label"] = batch["label"] * 0 + [labels()[number] for number in batch["label"]]
    battery.assert_equal(got, expected, f"{name} beside the folder")


def test_python_reads_the_bytes_of_the_files(opened, name):
    dataset, folder = opened[name], opened["folder"]
    for index in range(len(folder)):
        assert dataset.read("image", index) == folder.read("image", index)
