"""Array fields: `.npy` and `.npz`, members or files, lists and numbers; and what may be wrong with one."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from bad_loads import says
from loader_data import COUNT
from text_data import embedding, npy, write_tar

import headrace as hr
from headrace.errors import DecodeError, LimitError, NotFoundError, UsageError

EXPECTED = np.stack([embedding(number) for number in range(COUNT)])


@pytest.fixture(scope="module")
def tar(tmp_path_factory):
    return hr.open(write_tar(tmp_path_factory.mktemp("arrays") / "pairs.tar"))


def npz(**arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def files(folder, contents):
    """A manifest of files of such contents."""
    folder.mkdir(exist_ok=True)
    rows = []
    for number, data in enumerate(contents):
        (folder / f"{number}.npy").write_bytes(data)
        rows.append(json.dumps({"vector": f"{number}.npy"}) + "\n")
    (folder / "files.jsonl").write_text("".join(rows))
    return hr.open(folder / "files.jsonl", root=folder)


def load(dataset, field=None, name="vector", **options):
    options = {"batch_size": 8, "output": "numpy"} | options
    return list(hr.Loader(dataset, {name: hr.Array() if field is None else field}, **options))


def joined(batches, name="vector"):
    return np.concatenate([batch[name] for batch in batches])


def test_members_of_a_tar(tar):
    found = joined(load(tar, name="npy"), "npy")
    np.testing.assert_array_equal(found, EXPECTED)
    assert found.dtype == np.float32
    (batch,) = load(tar, hr.Array(source="npy", dtype="float16"), batch_size=COUNT, output="torch")
    assert torch.equal(batch["vector"], torch.from_numpy(EXPECTED.astype(np.float16)))


@pytest.mark.parametrize("encode", [npy, lambda values: npz(only=values)], ids=["npy", "npz"])
@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
        np.array(2.5),
        np.empty((0, 4), np.uint8),
        np.array([True, False]),
        np.arange(3) * 1j,
        np.arange(24, dtype=np.uint16).reshape(1, 2, 3, 4),
    ],
    ids=["big-endian", "fortran", "number", "empty", "bool", "complex", "four dimensions"],
)
def test_files_that_a_manifest_names(tmp_path, encode, values):
    (batch,) = load(files(tmp_path / "files", [encode(values)] * 3))
    np.testing.assert_array_equal(batch["vector"], np.stack([values] * 3))
    assert batch["vector"].dtype.isnative
    assert batch["vector"].dtype.kind == values.dtype.kind


def test_lists_and_numbers(tmp_path):
    rows = [{"list": [number, 2.5], "n": number} for number in range(10)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = hr.open(tmp_path / "rows.jsonl")
    fields = {"list": hr.Array(dtype="float32"), "n": hr.Array(dtype="float64")}
    (batch,) = hr.Loader(dataset.select([9, 3, 3]), fields, batch_size=3, output="numpy")
    assert batch["list"].tolist() == [[9, 2.5], [3, 2.5], [3, 2.5]]
    assert (batch["list"].dtype, batch["n"].dtype, batch["n"].tolist()) == (np.float32, np.float64, [9, 3, 3])


def test_map_and_workers_see_rows(tar):
    for workers in (0, 2):
        batches = load(tar, name="npy", map=lambda sample, rng: {"sum": sample["npy"].sum()}, map_workers=workers)
        np.testing.assert_allclose(joined(batches, "sum"), EXPECTED.sum(axis=(1, 2)), rtol=1e-5)


GOOD = npy(np.arange(3, dtype=np.float32))

BAD = {
    "cut": (GOOD[:-4], "the file is cut short"),
    "cut in the header": (GOOD[:20], "a header that cannot be read"),
    "no array": (b"not an array at all", "expected an .npy, or an .npz of one array, got bytes that begin with"),
    "nothing": (b"", "got bytes that begin with b''"),
    "objects": (npy(np.array([{}, None], object)), "Python objects, which are never unpickled"),
    "texts": (npy(np.array(["a", "b"])), "expected numbers, got an array of <U1"),
    "two arrays": (npz(a=np.ones(3), b=np.ones(3)), "expected an .npz of one array, got 2"),
    "cut zip": (npz(a=np.ones(3))[:-30], "a zip that cannot be read"),
}


@pytest.mark.parametrize("kind", BAD)
def test_damaged_arrays_are_bad_samples(tmp_path, kind):
    data, why = BAD[kind]
    dataset = files(tmp_path / "files", [GOOD, data, GOOD])
    loader = hr.Loader(dataset, {"vector": hr.Array()}, batch_size=3, max_bad=0.5, output="numpy")
    (batch,) = loader
    assert batch["vector"].tolist() == [[0, 1, 2]] * 3
    assert (loader.stats().bad, loader.stats().replaced >= 1) == (1, True)
    with pytest.raises(DecodeError) as caught:
        load(dataset, on_error="raise")
    says(caught, why, "field 'vector'", "line 2 of")


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_numbers_that_no_tensor_has(tmp_path, dtype):
    dataset = files(tmp_path / "files", [npy(np.ones(3, dtype))] * 2)
    for output in ("numpy", "torch"):
        with pytest.raises(DecodeError, match=r"of a type that tensors have, got .*; take them with Array\(dtype=…\)"):
            load(dataset, on_error="raise", output=output)
    kind = "complex64" if np.issubdtype(dtype, np.complexfloating) else "float64"
    (batch,) = load(dataset, hr.Array(dtype=kind), output="torch")
    assert batch["vector"].tolist() == [[1, 1, 1]] * 2


def test_other_shapes_and_kinds_are_bad_where_they_are_named(tmp_path):
    dataset = files(tmp_path / "files", [GOOD, npy(np.zeros((2, 2), np.float32)), npy(np.zeros(3))])
    with pytest.raises(DecodeError, match=r"expected an array of shape \[3\], got \[2, 2\]"):
        load(dataset, hr.Array(shape=(3,), dtype="float32"), on_error="raise")
    (batch,) = load(dataset, hr.Array(shape=[3], dtype="float32"), max_bad=0.5)
    assert (batch["vector"].shape, batch["vector"].dtype) == ((3, 3), np.float32)
    with pytest.raises(DecodeError, match="expected numbers that dtype='int64' takes, got float32"):
        load(dataset, hr.Array(dtype="int64"), on_error="raise")


def test_a_batch_of_unequal_arrays(tmp_path):
    shapes = files(tmp_path / "shapes", [GOOD, npy(np.zeros(4, np.float32))])
    with pytest.raises(UsageError) as caught:
        load(shapes)
    says(caught, "field 'vector': expected arrays of one shape", "float32 [3]", "float32 [4]", "Array(shape=…)")
    types = files(tmp_path / "types", [GOOD, npy(np.arange(3, dtype=np.float16))])
    with pytest.raises(UsageError, match=r"float32 \[3\].*float16 \[3\].*give Array\(dtype=…\)"):
        load(types)
    (batch,) = load(types, hr.Array(dtype="float32"))
    assert batch["vector"].tolist() == [[0, 1, 2]] * 2


def test_an_array_beyond_the_limits(tmp_path):
    dataset = files(tmp_path / "files", [npy(np.zeros(1000, np.uint8))])
    with pytest.raises(LimitError, match=r"more than max_pixels=100 .*limits=headrace.Limits"):
        load(dataset, on_error="raise", limits=hr.Limits(max_pixels=100))


def test_a_missing_file_is_no_bad_sample(tmp_path):
    dataset = files(tmp_path / "files", [GOOD, GOOD])
    (tmp_path / "files" / "1.npy").unlink()
    with pytest.raises(OSError, match=r"1\.npy"):
        load(dataset)


def test_a_rank_without_a_sample(tar):
    ends = [
        load(tar[:13], hr.Array(source="npy", shape=shape), batch_size=3, rank=0, world_size=4)
        for shape in (None, (2, 3))
    ]
    assert [batches[-1]["vector"].shape for batches in ends] == [(0,), (0, 2, 3)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"dtype": "float8"}, "Array: expected dtype to be None or one of"),
        ({"shape": 3}, "Array: expected shape to be None or whole numbers, such as"),
        ({"shape": (3, -1)}, "Array: expected shape to be None or whole numbers, such as"),
    ],
)
def test_wrong_arguments_are_named(arguments, text):
    with pytest.raises(UsageError, match=text):
        hr.Array(**arguments)


def test_columns_without_numbers(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "list": ["b"]}\n')
    dataset = hr.open(tmp_path / "rows.jsonl")
    with pytest.raises(NotFoundError, match="expected the files that its column 'text' names"):
        load(dataset, hr.Array(source="text"))
    for name, kind in (("list", "lists"), ("__key__", "texts")):
        with pytest.raises(UsageError) as caught:
            load(dataset, hr.Array(source=name))
        says(caught, "field 'vector': expected a column of .npy members or files", f"got the {kind} of {name!r}")
