"""Images in arrays, in memory and in files, beside the same images as PNGs; and arrays that are no images."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import battery
import h5py
import numpy as np
import pytest
import torch
from dense_data import npy
from loader_data import encode
from PIL import Image

import headrace as hr
from headrace.data.sources import stored_arrays
from headrace.errors import ChangedError, DatasetError, DecodeError, UsageError

COUNT, SIZE = 36, (20, 28)
RNG = np.random.default_rng(7)
PIXELS = RNG.integers(0, 256, (COUNT, *SIZE, 3), np.uint8)
PLANES = np.ascontiguousarray(PIXELS.transpose(0, 3, 1, 2))
LABELS = RNG.integers(0, 10, COUNT)
IDS = RNG.integers(0, 300, (COUNT, *SIZE), np.uint16)
METRES = RNG.random((COUNT, *SIZE), np.float32)


def columns(image: Any) -> hr.Dataset:
    return hr.open({"image": image, "label": LABELS})


def saved(root: Path, array: np.ndarray) -> str:
    np.save(root / "a.npy", array)
    return str(root / "a.npy")


def npz(root: Path, save: Callable[..., None], array: np.ndarray = PIXELS) -> hr.Dataset:
    save(root / "a.npz", image=array, label=LABELS)
    return hr.open(root / "a.npz", cache=root)


def hdf5(root: Path, **how: Any) -> hr.Dataset:
    with h5py.File(root / "a.h5", "w", userblock_size=how.pop("userblock_size", 0)) as file:
        file.create_dataset("image", data=PIXELS, **how)
        file["label"] = LABELS
    return hr.open(root / "a.h5", cache=root)


SOURCES: dict[str, Callable[[Path], hr.Dataset]] = {
    "NHWC": lambda _: columns(PIXELS),
    "NCHW": lambda _: columns(PLANES),
    "not contiguous": lambda _: columns(np.repeat(PIXELS, 2, axis=2)[:, :, ::2]),
    "torch": lambda _: columns(torch.from_numpy(PLANES)),
    "list": lambda _: columns(list(PLANES)),
    "list of several sizes": lambda _: columns([*PIXELS[:-1], PLANES[-1]]),
    "dicts": lambda _: hr.open([{"image": image, "label": 1} for image in PIXELS]).with_column("label", LABELS),
    "memory map": lambda root: columns(np.load(saved(root, np.concatenate([PIXELS[:3], PIXELS])), mmap_mode="r")[3:]),
    ".npy": lambda root: columns(saved(root, PIXELS)),
    ".npy, NCHW": lambda root: hr.open(saved(root, PLANES)).with_column("label", LABELS),
    ".npy, Fortran": lambda root: columns(saved(root, np.asfortranarray(PIXELS))),
    ".npz": lambda root: npz(root, np.savez),
    ".npz, NCHW, deflated": lambda root: npz(root, np.savez_compressed, PLANES),
    "HDF5": hdf5,
    "HDF5, chunks": lambda root: hdf5(root, chunks=(5, 7, 28, 3)),
    "HDF5, gzip": lambda root: hdf5(root, chunks=(5, *SIZE, 3), compression="gzip"),
    "HDF5, user block": lambda root: hdf5(root, userblock_size=512),
}  # fmt: skip


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_arrays, "_CACHED_FROM_BYTES", 1 << 10)  # as those of real datasets
        return {name: make(tmp_path_factory.mktemp("source")) for name, make in SOURCES.items()}


def factory(dataset: hr.Dataset, **image: Any):
    view = hr.RandomCrop((16, 24), padding=4, flip=0.5)
    fields = {"image": hr.Image(**{"augment": hr.ColorJitter(0.4)} | image), "label": hr.Label()}

    def make(**overrides):
        settings = {"batch_size": battery.GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2} | overrides
        return hr.Loader(dataset, fields, view=view, output="numpy", **settings)

    return make


@battery.over(SOURCES, one_in=20)
def test_battery(opened, case, check):
    check(factory(opened[case]))


@pytest.fixture(scope="module")
def pngs():
    return columns([encode(Image.fromarray(image), "PNG") for image in PIXELS])


@pytest.mark.parametrize("name", SOURCES)
def test_batches_are_those_of_pngs(opened, pngs, name):
    """Of all the views and augmentations, by resampling too; and as floats."""
    for settings in ({}, {"dtype": "float32", "normalize": hr.Normalize((0.5,) * 3, (0.2,) * 3), "mode": "RGB"}):
        got, expected = (battery.kept(factory(each, **settings)()) for each in (opened[name], pngs))
        battery.assert_equal(got, expected, name)
    resized, again = (
        battery.kept(hr.Loader(each, {"image": hr.Image(mode="L")}, view=hr.RandomResizedCrop(9), output="numpy",
                               batch_size=8)) for each in (opened[name], pngs)
    )  # fmt: skip
    battery.assert_equal(resized, again, name)


def test_a_crop_with_padding_is_numpys(opened):
    """As of torchvision's RandomCrop(padding=4) and RandomHorizontalFlip: windows of the padded image, some turned."""
    loader = hr.Loader(
        opened["NHWC"], {"image": hr.Image()}, view=hr.RandomCrop(SIZE, padding=4, flip=0.5), batch_size=COUNT,
        shuffle=False, output="numpy", seed=2,
    )  # fmt: skip
    (batch,) = loader
    padded = np.pad(PIXELS, ((0, 0), (4, 4), (4, 4), (0, 0)))
    found = []
    for image, crop in zip(padded, batch["image"].transpose(0, 2, 3, 1), strict=True):
        windows = {
            (top, left, flip): image[top : top + SIZE[0], left : left + SIZE[1]][:, :: -1 if flip else 1]
            for top in range(9) for left in range(9) for flip in (False, True)
        }  # fmt: skip
        found += [place for place, window in windows.items() if np.array_equal(window, crop)]
    assert len(found) == COUNT
    assert [len(set(each)) > 1 for each in zip(*found, strict=True)] == [True] * 3


def test_a_sample_is_its_array(opened):
    for name in ("NHWC", ".npz", "HDF5, gzip"):
        np.testing.assert_array_equal(opened[name][5]["image"], PIXELS[5])
        assert opened[name].read("image", 5) == npy(PIXELS[5])
    np.testing.assert_array_equal(np.stack(opened[".npy, NCHW"].column("image")), PLANES)


def test_masks_and_depth_are_numbers_of_the_array(tmp_path):
    np.savez(tmp_path / "a.npz", image=PIXELS, mask=IDS, depth=METRES)
    for data in (hr.open(tmp_path / "a.npz"), hr.open({"image": PIXELS, "mask": IDS, "depth": METRES})):
        fields = {"image": hr.Image(), "mask": hr.Mask(dtype="int32"), "depth": hr.Depth(valid=False)}
        (batch,) = hr.Loader(data, fields, view=hr.CenterCrop((8, 12)), batch_size=COUNT, shuffle=False, output="numpy")
        cut = np.s_[:, 6:14, 8:20]
        np.testing.assert_array_equal(batch["image"].transpose(0, 2, 3, 1), PIXELS[cut])
        np.testing.assert_array_equal(batch["mask"], IDS[cut])
        np.testing.assert_array_equal(batch["depth"][:, 0], METRES[cut])


def test_wide_images_and_grey_ones():
    bands = RNG.integers(0, 60_000, (4, *SIZE, 5), np.uint16)
    wide = hr.Image(channels=5, dtype="uint16")
    for array in (bands, bands.transpose(0, 3, 1, 2)):
        (batch,) = hr.Loader({"image": array}, {"image": wide}, batch_size=4, shuffle=False, output="numpy")
        np.testing.assert_array_equal(batch["image"], bands.transpose(0, 3, 1, 2))
    for array in (PIXELS[..., 0], PIXELS[..., :1], PLANES[:, :1]):
        grey = {"image": hr.Image(mode="L"), "same": hr.Image(source="image")}
        (batch,) = hr.Loader({"image": array}, grey, batch_size=COUNT, shuffle=False, output="numpy")
        np.testing.assert_array_equal(batch["image"][:, 0], PIXELS[..., 0])
        np.testing.assert_array_equal(batch["same"], np.repeat(PLANES[:, :1], 3, axis=1))


def test_npy_files_are_images(tmp_path):
    """Uint8 in either layout; and a bad sample for any other."""
    good = [npy(PIXELS[0]), npy(PLANES[0]), npy(np.asfortranarray(PIXELS[0]))]
    (batch,) = hr.Loader({"image": good}, {"image": hr.Image()}, batch_size=3, shuffle=False, output="numpy")
    np.testing.assert_array_equal(batch["image"], np.stack([PLANES[0]] * 3))
    for bad in (npy(PIXELS[0].astype(np.float32)), npy(PIXELS[0][..., :2]), npy(PIXELS[0])[:-1], npy(PIXELS[0][:0])):
        loader = hr.Loader(
            {"image": [bad]}, {"image": hr.Image()}, batch_size=1, view=hr.Resize((4, 4)), on_error="raise"
        )
        with pytest.raises(DecodeError):
            next(iter(loader))


EITHER = np.arange(2 * 3 * 5 * 3, dtype=np.uint8).reshape(2, 3, 5, 3)


@pytest.mark.parametrize(("layout", "expected"), [("NHWC", EITHER.transpose(0, 3, 1, 2)), ("NCHW", EITHER)])
def test_a_layout_that_the_shape_does_not_tell(layout, expected, tmp_path):
    for where in ({"image": EITHER}, saved(tmp_path, EITHER), [{"image": each} for each in EITHER]):
        with pytest.raises(UsageError, match=r"layout NHWC or NCHW, got \[.*3, 5, 3\]"):
            hr.open(where)
        data = hr.open(where, layout=layout)
        (batch,) = hr.Loader(data, {"image": hr.Image()}, batch_size=2, shuffle=False, output="numpy")
        np.testing.assert_array_equal(batch["image"], expected)
    with pytest.raises(UsageError, match="layout NCHW, got"):
        hr.open({"image": PLANES}, layout="NHWC")


@pytest.mark.parametrize(
    "array", [PIXELS.astype(np.float32), PIXELS[..., :2], PIXELS[:, None]], ids=lambda a: str(a.shape)
)
def test_arrays_that_are_no_images_are_refused_at_once(array):
    with pytest.raises(UsageError, match="field 'image': expected an image of uint8"):
        hr.Loader(columns(array), {"image": hr.Image()}, batch_size=4)


def test_what_is_another_array_is_another_dataset(opened, tmp_path):
    changed = PIXELS.copy()
    changed[-1, -1, -1, -1] ^= 1
    turned = PIXELS.reshape(COUNT, SIZE[1], SIZE[0], 3)
    for make in (columns, lambda array: columns(saved(tmp_path, array))):
        assert len({make(array).fingerprint for array in (PIXELS, changed, turned)}) == 3
    for name in ("NHWC", ".npy", "HDF5, chunks"):
        again = pickle.loads(pickle.dumps(opened[name]))
        assert again.fingerprint == opened[name].fingerprint
        battery.assert_equal(battery.kept(factory(again)()), battery.kept(factory(opened[name])()), name)


def test_arrays_unpacked_once(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_arrays, "_CACHED_FROM_BYTES", 1 << 10)
    npz(tmp_path, np.savez_compressed)
    (unpacked,) = tmp_path.glob("*.values.headrace")
    before = unpacked.stat()
    hr.open(tmp_path / "a.npz", cache=tmp_path)
    assert unpacked.stat() == before or unpacked.stat().st_mtime_ns == before.st_mtime_ns
    os.truncate(unpacked, before.st_size - 1)
    np.testing.assert_array_equal(hr.open(tmp_path / "a.npz", cache=tmp_path)[-1]["image"], PIXELS[-1])
    assert unpacked.stat().st_size == before.st_size


def damaged(path: Path, cut: Callable[[bytes], bytes]) -> Path:
    path.write_bytes(cut(path.read_bytes()))
    return path


def middle(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes(100) + data[at + 100 :]


@pytest.mark.parametrize("cut", [lambda data: data[:300], lambda data: data[: len(data) // 2], middle],
                         ids=["header", "half", "middle"])  # fmt: skip
def test_damaged_files(tmp_path, cut):
    npz(tmp_path, np.savez_compressed)
    hdf5(tmp_path, chunks=(5, *SIZE, 3), compression="gzip")
    for name in ("a.npz", "a.h5"):
        with pytest.raises(DatasetError, match=f"{name}: expected arrays, got a damaged file"):
            hr.open(damaged(tmp_path / name, cut), cache=tmp_path / "anew")
    if cut is not middle:
        saved(tmp_path, PIXELS)
        with pytest.raises(DatasetError, match=r"a\.npy: expected 60,480 bytes of values from byte 128"):
            hr.open(damaged(tmp_path / "a.npy", cut))


def test_arrays_of_python_objects_and_of_other_lengths(tmp_path):
    np.savez(tmp_path / "a.npz", image=PIXELS, label=np.array([{}] * COUNT))
    with pytest.raises(DatasetError, match="Object arrays cannot be loaded"):
        hr.open(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x_train=PIXELS, y_train=LABELS, x_test=PIXELS[:5])
    with pytest.raises(UsageError, match=r"x_test \[5, .*columns="):
        hr.open(tmp_path / "b.npz")
    assert list(hr.open(tmp_path / "b.npz", columns=["x_train", "y_train"]).columns) == ["x_train", "y_train"]
    with pytest.raises(UsageError, match="'x'"):
        hr.open(tmp_path / "b.npz", columns=["x"])


def test_hdf5_of_groups_texts_and_encoded_images(tmp_path):
    encoded = [np.frombuffer(encode(Image.fromarray(image), "PNG"), np.uint8) for image in PIXELS[:4]]
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("train/image", (4,), h5py.vlen_dtype(np.uint8))[:] = encoded
        file["train/caption"] = ["a", "b", "c", "é"]
        file["version"] = 3
    data = hr.open(tmp_path / "a.hdf5")
    assert data.fields == {"train/caption": "text", "train/image": "bytes"}
    assert data[3]["train/caption"] == "é"
    assert data.read("train/image", 2) == encoded[2].tobytes()


def test_a_file_cut_while_it_is_in_use(tmp_path):
    make = factory(hr.open(saved(tmp_path, PIXELS)).with_column("label", LABELS))
    os.truncate(tmp_path / "a.npy", 1000)
    loader = make(on_error="raise")
    with pytest.raises(ChangedError, match=r"a\.npy ends at byte"):
        next(iter(loader))


def test_stored_members_of_a_zip_are_read_in_place(tmp_path):
    npz(tmp_path, np.savez)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.getinfo("image.npy").compress_type == zipfile.ZIP_STORED
