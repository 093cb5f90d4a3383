"""Several images a sample from a store: numbered members of tars, and objects that a manifest lists."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np
import pytest
from loader_data import add_member, encode, photograph

import headrace as hr

COUNTS = [3, 1, 4, 2, 0, 5]


def image(sample, place):
    return encode(photograph(10 * sample + place, 40, 32), quality=90)


def members():
    for sample, count in enumerate(COUNTS):
        yield f"{sample}.txt", b"text"
        yield from ((f"{sample}.{place}.jpg", image(sample, place)) for place in range(count))


def tar_of(folder):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in members():
            add_member(tar, name, data)
    (folder / "samples.tar").write_bytes(file.getvalue())
    return {"samples.tar": file.getvalue()}


def manifest_of(folder):
    objects = {name: data for name, data in members() if name.endswith("jpg")}
    for name, data in objects.items():
        (folder / name).write_bytes(data)
    rows = [{"images": [f"{sample}.{place}.jpg" for place in range(count)]} for sample, count in enumerate(COUNTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "samples.jsonl").write_bytes(lines)
    return objects | {"samples.jsonl": lines}


@pytest.mark.parametrize(("write", "source"), [(tar_of, "*.jpg"), (manifest_of, "images")], ids=["tar", "manifest"])
@pytest.mark.parametrize("cache", [None, "ram:20MB"])
def test_a_store_gives_the_batches_of_the_local_files(store, tmp_path, write, source, cache):
    objects = write(tmp_path)
    store.objects.update(objects)
    name = next(name for name in objects if not name.endswith("jpg"))
    fields = {"images": hr.Images(source=source), "key": hr.Key()}
    options = {"view": hr.RandomCrop(16), "batch_size": 2, "shuffle": True, "output": "numpy", "threads": 2}
    here = hr.Loader(hr.open(tmp_path / name), fields, **options)
    there = hr.Loader(
        hr.open(f"s3://bucket/{name}", store_options=store.options, cache=tmp_path / "cache"),
        fields,
        cache=cache,
        **options,
    )
    for _ in range(2):
        for mine, theirs in zip(there, here, strict=True):
            assert mine["key"] == theirs["key"]
            np.testing.assert_array_equal(mine["images_counts"], theirs["images_counts"])
            np.testing.assert_array_equal(mine["images"], theirs["images"])
    state = there.state_dict()
    there.load_state_dict(state)


def test_a_bad_image_in_a_store_is_replaced_as_on_this_machine(store, tmp_path):
    objects = manifest_of(tmp_path)
    objects["2.1.jpg"] = objects["2.1.jpg"][:80]
    (tmp_path / "2.1.jpg").write_bytes(objects["2.1.jpg"])
    store.objects.update(objects)
    fields = {"images": hr.Images(), "key": hr.Key()}
    options = {"view": hr.RandomCrop(16), "batch_size": 2, "shuffle": True, "output": "numpy", "max_bad": 1.0}
    here = hr.Loader(hr.open(tmp_path / "samples.jsonl"), fields, **options)
    there = hr.Loader(hr.open("s3://bucket/samples.jsonl", store_options=store.options), fields, **options)
    for mine, theirs in zip(there, here, strict=True):
        assert mine["key"] == theirs["key"]
        np.testing.assert_array_equal(mine["images"], theirs["images"])
    assert there.stats().replaced == here.stats().replaced == 1
