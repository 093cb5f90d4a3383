"""`decode_batch`: against a Loader over all samples, in any cut and order, and every form of items."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from bad_loads import JPEG, PNG, says
from loader_data import encode, encoded, photograph
from PIL import Image

import headrace as hr
from headrace.errors import DecodeError, EmptyDatasetError, LimitError, UsageError, ViewError

COUNT = 23
FILES = [*(encoded(number)[1] for number in range(COUNT - 1)), encode(photograph(1, 50, 40), "WEBP")]
LABELS = [number % 5 for number in range(COUNT)]
VIEW = [hr.RandomResizedCrop((24, 30)), hr.RandomHorizontalFlip()]
COLOURS = hr.ColorJitter(0.4, 0.4, 0.4, 0.1)
OPTIONS = {"view": VIEW, "augment": COLOURS, "seed": 7, "output": "numpy"}


def of_loader(epoch: int):
    """Images and labels of every sample, in the order of the dataset."""
    loader = hr.Loader(hr.open({"image": FILES, "label": LABELS}), batch_size=8, **OPTIONS)
    loader.set_epoch(epoch)
    batches = list(loader)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in ("image", "label")}


def rows(keys):
    return [{"image": FILES[key], "label": LABELS[key]} for key in keys]


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_keys_draw_as_the_samples_of_a_loader_however_batches_are_cut(epoch, threads):
    expected = of_loader(epoch)
    order = np.random.default_rng(epoch).permutation(COUNT)
    for keys in np.split(order, [1, 3, 10]):
        batch = hr.decode_batch(rows(keys), keys=keys, epoch=epoch, threads=threads, **OPTIONS)
        np.testing.assert_array_equal(batch["image"], expected["image"][keys])
        np.testing.assert_array_equal(batch["label"], expected["label"][keys])


def test_without_keys_an_item_draws_by_its_position():
    np.testing.assert_array_equal(hr.decode_batch(rows(range(COUNT)), **OPTIONS)["image"], of_loader(0)["image"])
    first, second = hr.decode_batch([JPEG, JPEG], **OPTIONS)["image"]
    assert not np.array_equal(first, second)


def test_equal_keys_draw_alike_and_texts_are_keys():
    def drawn(keys):
        return hr.decode_batch([JPEG] * len(keys), keys=keys, **OPTIONS)["image"]

    a, b, again = drawn(["a", "b", "a"])
    assert np.array_equal(a, again)
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(drawn(pa.array(["b"]))[0], b)
    np.testing.assert_array_equal(drawn(np.array(["c", "b"]))[1], b)
    np.testing.assert_array_equal(drawn([5, np.str_("b")])[1], b)
    np.testing.assert_array_equal(drawn([5, "b"])[0], drawn(torch.tensor([5]))[0])
    digest = hashlib.blake2b(b"b", digest_size=8).digest()
    np.testing.assert_array_equal(drawn([int.from_bytes(digest, "little") >> 1])[0], b)


def test_a_column_of_polars_has_keys():
    frame = pytest.importorskip("polars").DataFrame({"image": FILES, "id": range(COUNT)})
    images = hr.decode_batch(frame, keys=frame["id"], **OPTIONS)["image"]
    np.testing.assert_array_equal(images, of_loader(0)["image"])


def chunked(files):
    return pa.chunked_array([pa.array(files[:4], pa.binary()), pa.array(files[4:], pa.binary())])


FORMS = {
    "bytearrays": lambda files: list(map(bytearray, files)),
    "memoryviews": lambda files: [memoryview(b"__" + file)[2:] for file in files],
    "tuple": tuple,
    "object array": lambda files: np.array([*files, None], object)[:-1],
    "dicts": lambda files: [{"image": file} for file in files],
    "columns": lambda files: {"image": files},
    "column of an object array": lambda files: {"image": np.array([*files, None], object)[:-1]},
    "binary array": pa.array,
    "slice of an array": lambda files: pa.array([b"x", *files, b"y"])[1:-1],
    "large binary": lambda files: pa.array(files, pa.large_binary()),
    "binary view": lambda files: pa.array(files, pa.binary_view()),
    "chunked array": chunked,
    "table": lambda files: pa.table({"image": chunked(files)}),
    "record batch": lambda files: pa.record_batch({"image": pa.array(files)}),
    "structs": lambda files: pa.table({"image": [{"bytes": file, "path": "a.jpg"} for file in files]}),
    "pandas": lambda files: pd.DataFrame({"image": files}),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_items(form):
    batch = hr.decode_batch(form(FILES), view=hr.Resize((16, 20)), output="numpy")
    expected = hr.read_images(FILES, view=hr.Resize((16, 20)), output="numpy", channels_last=False)
    np.testing.assert_array_equal(batch["image"], expected)


def test_pixels_are_pillows_without_a_view():
    (image,) = hr.decode_batch([PNG], output="numpy")["image"]
    np.testing.assert_array_equal(image, np.asarray(Image.open(io.BytesIO(PNG)).convert("RGB")).transpose(2, 0, 1))


def test_fields_and_torch():
    fields = {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET), "name": hr.Raw(text=True), "key": hr.Key()}
    columns = {"image": [JPEG, PNG], "name": ["b.jpg", "b.jpg"]}
    batch = hr.decode_batch(columns, fields, view=hr.CenterCrop(32))
    assert batch["image"].dtype == torch.float32
    assert batch["image"].shape == (2, 3, 32, 32)
    assert batch["name"] == ["b.jpg", "b.jpg"]
    assert batch["key"] == ["0", "1"]


def test_an_item_that_is_bad():
    for items in ([JPEG, b"no image", PNG], pa.array([JPEG, b"no image", PNG])):
        with pytest.raises(DecodeError) as caught:
            hr.decode_batch(items, view=hr.Resize(8))
        assert (caught.value.key, caught.value.field) == ("1", "image")
    for items in ([JPEG, None], pa.array([JPEG, None])):
        with pytest.raises(DecodeError) as caught:
            hr.decode_batch(items, keys=["a.jpg", "b.jpg"])
        assert caught.value.key == "b.jpg"
    with pytest.raises(DecodeError, match=r"^sample 'b\.jpg', field 'image'"):
        hr.decode_batch([{"image": None}], keys=["b.jpg"])
    with pytest.raises(LimitError):
        hr.decode_batch([JPEG], limits=hr.Limits(max_pixels=100))
    with pytest.raises(ViewError):
        hr.decode_batch([JPEG], view=hr.RandomCrop(1000))


def test_skipped_items_leave_the_draws_of_others():
    fields = {"image": hr.Image(), "key": hr.Key()}
    whole = hr.decode_batch([JPEG, PNG, JPEG], fields, **OPTIONS)
    rest = hr.decode_batch([JPEG, b"no image", JPEG], fields, keys=range(3), on_error="skip", **OPTIONS)
    assert rest["key"] == ["0", "2"]
    np.testing.assert_array_equal(rest["image"], whole["image"][[0, 2]])
    dense = {"image": hr.Image(copies=2), "mask": hr.Mask(), "key": hr.Key()}
    masks = [encode(Image.fromarray(np.full((20, 30), number, np.uint8)), "PNG") for number in range(3)]
    rows = [{"image": image, "mask": mask} for image, mask in zip((JPEG, b"no image", JPEG), masks, strict=True)]
    whole = hr.decode_batch([rows[0], rows[0], rows[2]], dense, **OPTIONS)
    rest = hr.decode_batch(rows, dense, keys=range(3), on_error="skip", **OPTIONS)
    for name in ("image", "mask"):
        np.testing.assert_array_equal(rest[name], whole[name][[0, 2]])
    nothing = hr.decode_batch([b"no image"], fields, on_error="skip", **OPTIONS)
    assert nothing["image"].shape == (0, 3, 24, 30)
    assert nothing["key"] == []


def test_texts_as_labels_need_the_names_of_all_classes():
    items = [{"image": JPEG, "label": "dog"}, {"image": PNG, "label": "ant"}]
    with pytest.raises(UsageError) as caught:
        hr.decode_batch(items)
    says(caught, "field 'label'", "classes=")
    assert hr.decode_batch(items, classes=["ant", "cat", "dog"])["label"].tolist() == [2, 0]
    with pytest.raises(UsageError):
        hr.decode_batch(items, classes=["dog", "eel"])
    with pytest.raises(UsageError):
        hr.decode_batch(items, classes=["dog"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"keys": [1]}, "keys: expected one for each of 2 items, got 1"),
        ({"keys": [1, -1]}, "got -1 for item 1"),
        ({"keys": [1, 2.5]}, "got 2.5 for item 1"),
        ({"keys": [True, 1]}, "got True for item 0"),
        ({"keys": np.array([1, 2**63], np.uint64)}, "for item 1"),
        ({"keys": "id"}, "got 'id'"),
        ({"keys": 2}, "got 2"),
        ({"on_error": "replace"}, "on_error"),
        ({"epoch": -1}, "epoch"),
        ({"threads": 0}, "threads"),
        ({"view": hr.RandomScale((8, 16))}, "RandomScale"),
    ],
)
def test_arguments_that_are_refused(options, text):
    with pytest.raises(UsageError) as caught:
        hr.decode_batch([JPEG, PNG], **options)
    says(caught, text)


def test_items_that_are_refused():
    for items in (JPEG, "a.jpg", 3, [JPEG, 3], {"image": "photos/"}):
        with pytest.raises(UsageError):
            hr.decode_batch(items)
    for items in ([], {"image": []}, pa.table({"image": pa.array([], pa.binary())})):
        with pytest.raises(EmptyDatasetError):
            hr.decode_batch(items)


def decoded(_=None):
    return hr.decode_batch(FILES, **OPTIONS)["image"]


def test_from_several_threads_at_once_and_after_a_fork():
    expected = decoded()
    with ThreadPoolExecutor(4) as pool:
        for image in pool.map(decoded, range(12)):
            np.testing.assert_array_equal(image, expected)
        with multiprocessing.get_context("fork").Pool(2) as forks:
            for image in forks.map(decoded, range(4)):
                np.testing.assert_array_equal(image, expected)
