"""Dataset: indexing, selection, splits, identity, reading, and being handed to other processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil

import numpy as np
import pytest

import headrace.data as data
from headrace.errors import ChangedError, ReadError, UsageError


@pytest.fixture
def tar(make_tar):
    return make_tar("a.tar", {f"{i:03d}.{ext}": f"{ext}{i}".encode() for i in range(100) for ext in ("jpg", "cls")})


@pytest.fixture
def ds(tar):
    return data.open(tar)


def keys(ds: data.Dataset) -> list[int]:
    return [int(key) for key in ds.keys]


def splitmix64(state: int) -> int:
    """The reference generator's next output, in Python's integers."""
    mask = 2**64 - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def test_samples(ds):
    assert len(ds) == 100
    expected = {"__key__": "007", "image": b"jpg7", "jpg": b"jpg7", "label": b"cls7", "cls": b"cls7"}
    assert ds[7] == ds[np.int64(7)] == ds[-93] == expected
    assert [sample["__key__"] for sample in ds[:3]] == ["000", "001", "002"]  # ends by IndexError
    for index in (100, -101):
        with pytest.raises(IndexError, match=f"sample {index} of 100"):
            ds[index]
    with pytest.raises(TypeError):
        ds["image"]


def test_values_are_python_numbers(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"x")
    assert type(data.open(tmp_path)[1]["label"]) is int


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (slice(10, 20, 3), [10, 13, 16, 19]),
        (slice(None, None, -50), [99, 49]),
        ([5, 5, -1], [5, 5, 99]),
        (np.array([3, 1], np.uint8), [3, 1]),
        (np.arange(100) % 40 == 0, [0, 40, 80]),
        ([], []),
        (np.array([2**63], np.uint64)[:0], []),
    ],
)
def test_select(ds, which, expected):
    chosen = ds.select(which)
    assert keys(chosen) == expected
    assert chosen.base_ids.tolist() == expected
    assert chosen.table is ds.table


def test_selections_of_selections_keep_base_ids(ds):
    chosen = ds.select(slice(50, 100))[::10].select([True, False, True, False, True])
    assert chosen.base_ids.tolist() == [50, 70, 90]
    assert (chosen.key(1), chosen[1]["jpg"], chosen.read("cls", -1)) == ("070", b"jpg70", b"cls90")
    assert repr(chosen).startswith("Dataset: 3 of 100 samples, columns image (bytes), label (bytes), cls (bytes), jpg")


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ([100], "expected indices from -100 to 99, got 100"),
        ([-101], "got -101"),
        (np.array([2**63], np.uint64), "got 9223372036854775808"),
        ([True] * 99, "expected a mask of 100 entries, one a sample, got 99"),
        ([0.5], "expected indices as integers or a mask of booleans, got float64"),
        ([[1]], "got an array of shape"),
    ],
)
def test_select_says_what_is_wrong(ds, which, message):
    with pytest.raises(UsageError, match=message):
        ds.select(which)


def test_split_is_the_reference_draw(ds):
    train, test = ds.split(0.9, 0.1, seed=5)
    order = sorted(range(100), key=lambda i: splitmix64(i ^ splitmix64(5)))
    assert keys(train) == sorted(order[:90])
    assert keys(test) == sorted(order[90:])
    assert keys(ds.split(0.9, 0.1)[1]) != keys(test)


def test_split_in_other_forms(ds):
    train, test = ds.split(0.9, 0.1, seed=5)
    for parts in (ds.split(0.9, seed=5), ds.split((0.9, 0.1), seed=5), ds.split([0.9, 0.1], seed=5)):
        assert [part.fingerprint for part in parts] == [train.fingerprint, test.fingerprint]
    named = ds.split({"train": 0.9, "val": 0.1}, seed=5)
    assert {name: part.fingerprint for name, part in named.items()} == {
        "train": train.fingerprint,
        "val": test.fingerprint,
    }
    (part,) = ds.split((0.9,), seed=5)
    assert part.fingerprint == train.fingerprint
    assert [len(part) for part in ds.split(0.29)] == [29, 71]
    assert [len(part) for part in ds.split(0.0)] == [0, 100]


def test_split_of_a_selection_is_keyed_by_base_id(ds):
    part = ds.select([40, 10, 30, 20])
    first, second = part.split(0.5, 0.5)
    order = sorted([40, 10, 30, 20], key=lambda i: splitmix64(i ^ splitmix64(0)))
    assert set(keys(first)) == set(order[:2])
    assert set(keys(second)) == set(order[2:])


@pytest.mark.parametrize(
    ("size", "fractions", "expected"),
    [
        (100, (0.29, 0.71), [29, 71]),  # 0.29 * 100 is 28.999999999999996
        (10, (1 / 3, 1 / 3, 1 / 3), [4, 3, 3]),
        (3000, (1 / 3, 1 / 3, 1 / 3), [1000, 1000, 1000]),
        (7, (0.5, 0.25), [3, 2]),  # 5.25 samples: 3.5 and 1.75, and the larger remainder is rounded up
        (3, (0.7, 0.1, 0.1, 0.1), [2, 1, 0, 0]),
        (0, (0.5, 0.5), [0, 0]),
        (5, (1,), [5]),
    ],
)
def test_split_counts(make_tar, size, fractions, expected):
    ds = data.open(make_tar("a.tar", {f"{i}.jpg": b"" for i in range(max(size, 1))})).select(slice(size))
    parts = ds.split(*fractions)
    assert [len(part) for part in parts] == expected
    drawn = np.concatenate([part.base_ids for part in parts])
    assert len(set(drawn.tolist())) == len(drawn)


@pytest.mark.parametrize(
    "fractions",
    [(), (0.9, 0.2), (-0.1, 0.5), (float("nan"),), (float("inf"),), ({},), ("0.9",), ((), 0.5), (-0.5,)],
)
def test_split_says_what_is_wrong(ds, fractions):
    with pytest.raises(UsageError, match="expected fractions"):
        ds.split(*fractions)


def test_locate_agrees_with_where_and_the_file(ds, tar):
    raw = tar.read_bytes()
    chosen = ds.select(slice(None, None, 7))
    index = np.array([3, 0, 14, 3])
    at = chosen.locate("image", index)
    for i, path_id, offset, length in zip(index, at.path_id, at.offset, at.length, strict=True):
        assert chosen.where("image", i) == (os.fsdecode(chosen.files("image").path(int(path_id))), offset)
        assert raw[offset : offset + length] == chosen[i]["image"]
    assert [part.dtype for part in at[:4]] == [np.int64, np.int64, np.int64, np.uint32]


@pytest.mark.parametrize("index", [[0, 100], [-1, 0]])
def test_locate_checks_positions(ds, index):
    with pytest.raises(IndexError, match="expected positions from 0 to 99"):
        ds.locate("image", np.array(index))


def test_columns_must_exist_and_hold_bytes(ds, tmp_path):
    with pytest.raises(
        UsageError, match=r"column of bytes \(image, label, cls, jpg\), got 'depth': no such column in tar a\.tar"
    ):
        ds.read("depth", 0)
    (tmp_path / "set/c").mkdir(parents=True)
    (tmp_path / "set/c/1.jpg").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"column of bytes \(image\), got 'label': a column of values in folder set/"):
        data.open(tmp_path / "set").locate("label", np.array([0]))


def test_a_missing_member_is_absent(make_tar):
    ds = data.open(make_tar("a.tar", {"1.jpg": b"J", "2.cls": b"3", "3.jpg": b""}))
    assert ds[1] == {"__key__": "2", "label": b"3", "cls": b"3"}
    assert ds[2]["jpg"] == b""
    assert ds.locate("jpg", np.arange(3)).length.tolist() == [1, data.ABSENT, 0]
    with pytest.raises(KeyError, match="sample '2' has no 'jpg'"):
        ds.read("jpg", 1)


def test_changed_tars_are_noticed(ds, tar, make_tar):
    offset = ds.where("jpg", 50)[1]
    make_tar("a.tar", {f"{i:03d}x.{ext}": f"{ext}{i}".encode() for i in range(100) for ext in ("jpg", "cls")})
    with pytest.raises(ChangedError, match=rf"a\.tar at byte {offset}: the tar header there is not the one"):
        ds.read("jpg", 50)
    os.truncate(tar, offset + 2)
    with pytest.raises(
        ChangedError, match=rf"a\.tar at byte {offset}: expected 5 bytes, got 2: the file has become short"
    ):
        ds.read("jpg", 50)
    os.truncate(tar, offset - 100)
    with pytest.raises(ChangedError, match="expected 5 bytes, got 0"):
        ds.read("jpg", 50)
    tar.unlink()
    with pytest.raises(
        ReadError, match=r"a\.tar at byte \d+: could not be read: No such file or directory; it is not there, or no"
    ):
        ds.read("jpg", 50)


def test_gone_file_of_a_folder(tmp_path):
    (tmp_path / "1.jpg").write_bytes(b"x")
    ds = data.open(tmp_path)
    (tmp_path / "1.jpg").unlink()
    with pytest.raises(ReadError, match=r"1\.jpg at byte 0: could not be read: No such file or directory; it is not"):
        ds[0]


def test_fingerprint_is_the_same_anywhere(ds, tar, tmp_path, make_tar):
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.copy(tar, tmp_path / "elsewhere/b.tar")
    assert data.open(moved).fingerprint == ds.fingerprint
    assert ds[:].fingerprint == ds.fingerprint


def test_fingerprint_is_of_what_is_there(make_tar, tmp_path):
    content = {"a/1.jpg": b"x", "b/2.jpg": b"y"}
    variants = [
        data.open(make_tar("0.tar", content)),
        data.open(make_tar("0.tar", content), classes=True),
        data.open(make_tar("1.tar", content | {"b/2.jpg": b"longer"})),
        data.open(make_tar("2.tar", {"a/1.jpg": b"x", "b/3.jpg": b"y"})),
        data.open(make_tar("3.tar", {"a/1.png": b"x", "b/2.png": b"y"})),
        data.open(make_tar("4.tar", dict(reversed(content.items())))),
        data.open(make_tar("0.tar", content))[::-1],
        data.open(make_tar("0.tar", content))[:1],
    ]
    assert len({variant.fingerprint for variant in variants}) == len(variants)


def test_fingerprint_is_pinned(make_tar, tmp_path):
    """A saved state carries it: a change of meaning must raise the number in the digest, and this test."""
    (tmp_path / "set/a").mkdir(parents=True)
    (tmp_path / "set/a/1.jpg").write_bytes(b"x")
    assert data.open(tmp_path / "set").fingerprint == "7685a99c2b708098a3ab30f596c9e857"
    assert (
        data.open(make_tar("a.tar", {"1.jpg": b"x", "1.cls": b"0"})).fingerprint == "5d0c8bf2b88d164f623d7348fc61dc3e"
    )


def test_pickled_datasets_are_the_same(ds, tar):
    for protocol in (2, 5):
        for original in (ds, ds.select([5, 3])):
            again = pickle.loads(pickle.dumps(original, protocol))
            assert again.fingerprint == original.fingerprint
            assert again[1] == original[1]
            assert repr(again) == repr(original)
    assert len(pickle.dumps(ds)) < 150 * len(ds)


def _read_all(ds: data.Dataset) -> list[bytes]:
    return [ds[i]["jpg"] for i in range(len(ds))]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_the_same(ds, method):
    expected = _read_all(ds)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_read_all, [ds, ds]) == [expected, expected]


def test_nothing_can_be_changed(ds):
    with pytest.raises(AttributeError):
        ds.base_ids = None
    with pytest.raises(ValueError, match="read-only"):
        ds.columns["jpg"].places.joined["offset"].parts[0][0] = 0
