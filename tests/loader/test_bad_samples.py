"""Samples that are bad: how many may be, what stands in for them, and what is written down."""

from __future__ import annotations

import json
import os
import re
import tarfile
import warnings

import battery
import numpy as np
import pytest
from bad_loads import PNG, fails, folder_of, load
from loader_data import COUNT, add_member, encode, encoded, write_folder
from PIL import Image

import headrace as hr
from headrace.errors import (
    DecodeError,
    TooManyBadSamplesError,
)
from headrace.loader.batch_memory import ProcessBlocks
from headrace.loader.ray_workers.made_step import StepSource

# --- how many may be bad ---


def test_more_bad_samples_than_max_bad(tmp_path):
    root = folder_of(tmp_path, **{f"p{number}": PNG for number in range(7)}, x=b"", y=b"no", z=b"neither")
    loader = load(root, max_bad=0.2, threads=1, batch_size=10)
    texts = [
        "3 of 10 samples are bad, expected at most 2 (max_bad=0.2)",
        "sample 'x.jpg'",
        "sample 'y.jpg'",
        "sample 'z.jpg'",
        "quarantine=PATH",
    ]
    fails(TooManyBadSamplesError, loader, *texts, "or raise max_bad")
    quarantine = tmp_path / "bad.jsonl"
    fails(TooManyBadSamplesError, load(root, max_bad=0.2, quarantine=quarantine), f"Look at them in {quarantine}")
    assert len(list(load(root, max_bad=0.3))) == 2


def test_no_bad_sample_is_allowed_where_none_may_be(tmp_path):
    loader = load(folder_of(tmp_path, a=PNG, b=b""), max_bad=0)
    fails(TooManyBadSamplesError, loader, "1 of 2 samples are bad, expected at most 0")


def test_all_samples_are_bad(tmp_path):
    root = folder_of(tmp_path, **{f"p{number}": b"no" for number in range(3)})
    error = fails(TooManyBadSamplesError, load(root, max_bad=1.0), "100 replacements in a row", "Look at the dataset")
    assert isinstance(error.__cause__, DecodeError)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_an_image_that_no_view_of_open_size_fits_is_a_bad_sample(batch_size):
    """A picture of 1 x 65,500 pixels would become one of 200 x 13,100,000."""
    pictures = [encode(Image.new("RGB", size), "PNG") for size in [(90, 60)] * 30 + [(1, 65_500)] + [(90, 60)] * 9]
    data = hr.open([{"image": picture} for picture in pictures])
    loader = hr.Loader(
        data,
        {"image": hr.Image()},
        view=hr.Resize(200),
        batch_size=batch_size,
        max_bad=0.05,
        output="numpy",
    )
    assert sum(len(batch["image"]) for batch in loader) == 40
    assert loader.stats().replaced == 1


# --- one bad sample shifts nothing ---

BAD_SAMPLE = 14


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The same photographs twice; in the second, one is cut short."""
    root = tmp_path_factory.mktemp("twins")
    good, spoilt = write_folder(root / "good"), write_folder(root / "spoilt")
    path = next(spoilt.glob(f"*/{BAD_SAMPLE:04}.*"))
    path.write_bytes(path.read_bytes()[:-400])
    return hr.open(good), hr.open(spoilt)


def twin(dataset, **options):
    given = {"view": hr.RandomResizedCrop(20, flip=0.5), "shuffle": True, "seed": 3, "batch_size": 12}
    return load(dataset, **(given | options))


def test_a_bad_sample_shifts_nothing(twins):
    good, spoilt = (battery.kept(twin(dataset)) for dataset in twins)
    loader = twin(twins[1])
    images = [np.concatenate([batch["image"] for batch in batches]) for batches in (good, spoilt)]
    odd = [at for at in range(COUNT) if not np.array_equal(images[0][at], images[1][at])]
    assert len(odd) == 1
    list(loader)
    assert (loader.stats().bad, loader.stats().replaced) == (1, 1)
    labels = [np.concatenate([batch["label"] for batch in batches]) for batches in (good, spoilt)]
    assert np.flatnonzero(labels[0] != labels[1]).tolist() in ([], odd)


def test_a_replacement_is_the_same_for_every_run(twins):
    def make(**overrides):
        return twin(twins[1], max_bad=0.5, **overrides)

    battery.check_threads(make)
    battery.check_world_sizes(make, 12)
    battery.check_resume_at_every_step(make)


def test_a_replacement_has_its_own_label_and_text(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(6):
            _, data = encoded(0) if number != 4 else ("", b"bad")
            add_member(tar, f"{number}.jpg", data)
            add_member(tar, f"{number}.cls", str(number).encode())
            add_member(tar, f"{number}.txt", f"text {number}".encode())
    fields = {"image": hr.Image(), "label": hr.Label(), "text": hr.Raw()}
    (batch,) = load(path, fields, shuffle=False)
    stand_in = int(batch["label"][4])
    assert stand_in != 4
    assert batch["text"] == [f"text {label}".encode() for label in batch["label"]]
    np.testing.assert_array_equal(batch["image"][4], batch["image"][stand_in])


def test_the_quarantine_file_has_one_line_a_sample(twins, tmp_path):
    quarantine = tmp_path / "bad.jsonl"
    loader = twin(twins[1], quarantine=quarantine)
    for _ in range(3):
        list(loader)
    (line,) = quarantine.read_text().splitlines()
    record = json.loads(line)
    assert record["key"] == twins[1].key(BAD_SAMPLE)
    assert record["shard"] == str(os.path.join(twins[1].files("image").root, record["key"]))
    assert (record["offset"], record["field"], record["epoch"]) == (None, "image", 0)
    assert 0 <= record["position"] < COUNT
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", record["time"])
    assert record["why"]
    list(twin(twins[1], quarantine=quarantine))
    assert len(quarantine.read_text().splitlines()) == 2, "another run adds its own, and reads nothing back"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_costs_the_record_and_not_the_run(twins):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = list(twin(twins[1], quarantine="/dev/full"))
    assert len(batches) == 4
    assert [str(warning.message) for warning in caught if "No space left" in str(warning.message)]


# --- no sample at all ---


@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_without_samples_passes_all_stages_wherever_it_is_made(rank):
    """An actor makes its steps by `StepSource`."""
    data = hr.open({"image": [encode(Image.new("RGB", (20, 20)), "JPEG")] * 5})
    options = {"batch_size": 2, "rank": rank, "world_size": 2, "output": "numpy"}
    loader = hr.Loader(data, view=hr.Resize(8), batch_map=lambda batch, rng: {"count": len(batch["image"])}, **options)
    source = StepSource(loader._feed.recipe, ProcessBlocks(most_idle=1))
    made = [source.make(0, step).batch for step in range(len(loader))]
    source.close()
    assert made == list(loader) == [{"count": 2}, {"count": rank}]
