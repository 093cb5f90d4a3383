"""Hugging Face datasets on disk, against the `datasets` library that wrote them."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pytest
from damage import damaged

import headrace as hr
import headrace.data as data
from headrace.errors import ChangedError, DatasetError, EmptyDatasetError, ReadError, UsageError

datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()

ROWS = 250


def row(number: int) -> dict[str, object]:
    """Images are null now and then, lists have any length, and texts are not all ASCII."""
    return {
        "image": {"bytes": b"image %d" % number * (number % 5), "path": f"{number}.png"} if number % 7 else None,
        "label": number % 3,
        "text": f"caption {number} ö" * (number % 4),
        "scores": [number / 2, 1.5][: number % 3],
        "words": ["a", "", f"w{number}"][: number % 4],
        "weight": number / 3,
        "count": number,
        "meta": {"a": number},
        "raw": b"\x00\xff" * number,
    }


FEATURES = {
    "image": datasets.Image(),
    "label": datasets.ClassLabel(names=["cat", "dog", "emu"]),
    "text": datasets.Value("string"),
    "scores": datasets.Sequence(datasets.Value("float32")),
    "words": datasets.Sequence(datasets.Value("string")),
    "weight": datasets.Value("float64"),
    "count": datasets.Value("int32"),
    "meta": {"a": datasets.Value("int64")},
    "raw": datasets.Value("large_binary"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("saved") / "set"
    made = datasets.Dataset.from_list([row(number) for number in range(ROWS)], features=datasets.Features(FEATURES))
    made.save_to_disk(folder, num_shards=3)
    return folder


@pytest.fixture
def copy(saved, tmp_path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(saved, tmp_path / "set"))


def test_every_sample_is_what_was_saved(saved):
    ds = data.open(saved)
    assert (len(ds), ds.classes) == (ROWS, ("cat", "dog", "emu"))
    assert ds.fields == {
        "image": "bytes", "label": "value", "text": "text", "scores": "list", "words": "list", "weight": "value",
        "count": "value", "meta": "text", "raw": "bytes",
    }  # fmt: skip
    for number in range(ROWS):
        expected = row(number)
        image = expected.pop("image")
        got = ds[number]
        assert got.pop("__key__") == str(number)
        assert got.pop("image", None) == (image["bytes"] if image else None)
        assert got.pop("scores").tolist() == expected.pop("scores")
        assert json.loads(got.pop("meta")) == expected.pop("meta")
        assert got == expected


def test_selections_of_the_library_come_in_its_order(saved, tmp_path):
    chosen = datasets.load_from_disk(saved).shuffle(seed=1).select(range(40))
    chosen.save_to_disk(tmp_path / "chosen")
    assert [data.open(tmp_path / "chosen")[i]["count"] for i in range(40)] == chosen["count"][:]


def test_a_loader_reads_images_in_place(tmp_path):
    from loader_data import encoded

    files = [encoded(number)[1] for number in range(8)]
    rows = [{"image": {"bytes": content, "path": None}, "label": i % 2} for i, content in enumerate(files)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])})
    datasets.Dataset.from_list(rows, features=features).save_to_disk(tmp_path / "set")
    view = hr.Resize((20, 24))
    (batch,) = hr.Loader(tmp_path / "set", view=view, batch_size=8, output="numpy")
    expected = hr.read_images(files, view=view, output="numpy")
    assert (batch["image"].transpose(0, 2, 3, 1) == expected).all()
    assert batch["label"].tolist() == [0, 1] * 4


def test_a_fingerprint_is_of_the_content(saved, copy, tmp_path):
    assert data.open(saved).fingerprint == data.open(copy).fingerprint
    other = datasets.load_from_disk(saved).select(range(ROWS - 1))
    other.save_to_disk(tmp_path / "other")
    assert data.open(saved).fingerprint != data.open(tmp_path / "other").fingerprint


def test_several_splits_are_named(saved, tmp_path):
    whole = datasets.load_from_disk(saved)
    datasets.DatasetDict({"train": whole.select(range(9)), "val": whole.select([1])}).save_to_disk(tmp_path / "all")
    with pytest.raises(DatasetError, match=r"expected one dataset, got the splits train, val\. Open one .*all/train"):
        data.open(tmp_path / "all")
    assert len(data.open(tmp_path / "all" / "train")) == 9


def test_lists_of_class_labels_have_their_names(tmp_path):
    kind = datasets.ClassLabel(names=["cat", "dog"])
    for number, feature in enumerate([datasets.Sequence(kind), [kind]]):
        made = datasets.Dataset.from_dict({"label": [[1, 0], []]}, features=datasets.Features({"label": feature}))
        made.save_to_disk(tmp_path / str(number))
        ds = data.open(tmp_path / str(number))
        assert (ds.classes, ds[0]["label"].tolist(), ds.fields) == (("cat", "dog"), [1, 0], {"label": "list"})
    rewrite(tmp_path / "0", "dataset_info.json", features={"label": [{"_type": "ClassLabel", "names": ["a", "b"]}]})
    assert data.open(tmp_path / "0").classes == ("a", "b")


def test_lists_of_images(tmp_path):
    features = datasets.Features({"views": datasets.Sequence(datasets.Image()), "n": datasets.Value("int64")})
    rows = [{"views": [{"bytes": b"1", "path": None}], "n": 4}, {"views": [], "n": 5}]
    rows += [{"views": [{"bytes": b"%d" % i, "path": None} for i in range(3)], "n": 6}]
    written = datasets.Dataset.from_list(rows, features=features)
    written.save_to_disk(tmp_path / "set")
    for ds in (data.open(tmp_path / "set"), data.open(written)):
        assert (ds.fields, ds.skipped) == ({"views": "list of bytes", "n": "value"}, {})
        assert ds.column("views") == [[b"1"], [], [b"0", b"1", b"2"]]


def test_a_dataset_of_bytes_alone(tmp_path):
    features = datasets.Features({"image": datasets.Image()})
    rows = [{"image": {"bytes": b"%d" % i, "path": None}} for i in range(3)]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(tmp_path / "set")
    assert [data.open(tmp_path / "set")[i]["image"] for i in range(3)] == [b"0", b"1", b"2"]


def rewrite(folder: pathlib.Path, name: str, **changes: object) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "name", ["../set/data-00000-of-00003.arrow", "/etc/passwd", "..", "", "a/b.arrow"], ids=range(5)
)
def test_a_state_leads_to_no_other_folder(copy, name):
    rewrite(copy, "state.json", _data_files=[{"filename": name}])
    with pytest.raises(DatasetError, match=r"expected names of Arrow files in state\.json"):
        data.open(copy)


def test_an_index_beside_the_files_is_refused(copy):
    rewrite(copy, "state.json", _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(DatasetError, match="got an index into them beside the files"):
        data.open(copy)


def test_no_rows_are_an_empty_dataset(saved, tmp_path):
    datasets.load_from_disk(saved).select([]).save_to_disk(tmp_path / "none")
    with pytest.raises(EmptyDatasetError, match="expected rows, got a dataset of none"):
        data.open(tmp_path / "none")


def test_compressed_files_are_refused(copy):
    for path in copy.glob("*.arrow"):
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_stream(source).read_all()
        path.unlink()
        with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as sink:
            sink.write_table(table)
    with pytest.raises(DatasetError, match="got compressed ones, which cannot be read in place"):
        data.open(copy)


@pytest.mark.parametrize("keep", [0, 10, 1000])
def test_a_file_cut_short_is_named(copy, keep):
    path = copy / "data-00001-of-00003.arrow"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DatasetError, match=r"data-00001-of-00003\.arrow: expected a file in Arrow's stream format"):
        data.open(copy)


def test_a_body_cut_short_is_no_fault_of_the_disk(copy):
    path = copy / "data-00001-of-00003.arrow"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=r"got otherwise: .*message body.* Save the dataset again"):
        data.open(copy)


@pytest.mark.parametrize("column", ["text", "words", "raw"])
def test_an_offset_that_leads_out_of_its_buffer_is_not_followed(copy, column):
    """pyarrow would, and end the process."""
    path = copy / "data-00000-of-00003.arrow"
    with pa.memory_map(str(path)) as source:
        batch = next(iter(pa.ipc.open_stream(source)))
    _, offsets, *_ = batch.column(column).buffers()
    content, before = bytearray(path.read_bytes()), offsets.to_pybytes()
    assert content.count(before) == 1
    content[content.index(before) + len(before) // 2 + 3] = 0x7F
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=rf"{path.name}: expected a file in Arrow's stream format, got otherwise: "):
        data.open(copy)


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.long)])
def test_damage_of_any_kind_is_an_error_or_read(copy, count):
    """A process that pyarrow ends fails the test, too."""
    path = copy / "data-00000-of-00003.arrow"
    whole, other = path.read_bytes(), (copy / "data-00001-of-00003.arrow").read_bytes()
    refused = 0
    for seed in range(count):
        path.write_bytes(damaged(whole, [other], np.random.default_rng(seed)))
        try:
            ds = data.open(copy)
        except DatasetError:
            refused += 1
            continue
        for number in range(0, len(ds), 10):
            with contextlib.suppress(ChangedError, ReadError):
                assert ds[number]["__key__"] == str(number)
    assert count / 4 < refused < count


def test_names_of_columns_that_are_no_utf_8_are_named(copy):
    for path in copy.glob("*.arrow"):
        path.write_bytes(path.read_bytes().replace(b"weight", b"w\xffight"))
    with pytest.raises(DatasetError, match="got otherwise: 'utf-8' codec can't decode"):
        data.open(copy)


def test_lists_of_one_length_may_be_null(tmp_path):
    features = datasets.Features({"box": datasets.Sequence(datasets.Value("float32"), 2)})
    datasets.Dataset.from_list([{"box": [1, 2]}, {"box": None}], features=features).save_to_disk(tmp_path / "set")
    ds = data.open(tmp_path / "set")
    assert [ds[number]["box"].tolist() for number in range(2)] == [[1, 2], []]


def test_a_file_that_is_gone_and_json_that_is_none_are_named(copy):
    (copy / "data-00002-of-00003.arrow").unlink()
    with pytest.raises(ReadError, match=r"data-00002-of-00003\.arrow: could not be read"):
        data.open(copy)
    (copy / "state.json").write_text("[1")
    with pytest.raises(DatasetError, match=r"state\.json: expected JSON, got otherwise"):
        data.open(copy)
    (copy / "state.json").write_text("[1]")
    with pytest.raises(DatasetError, match=r"state\.json: expected a JSON object, got a list"):
        data.open(copy)


def write_stream(path: pathlib.Path, table: pa.Table) -> None:
    with pa.ipc.new_stream(path, table.schema) as sink:
        sink.write_table(table)


def test_other_columns_in_one_file_are_refused(copy):
    write_stream(copy / "data-00002-of-00003.arrow", pa.table({"n": np.arange(3)}))
    says = r"data-00002-of-00003\.arrow: expected the columns of .*data-00000-of-00003\.arrow, got others"
    with pytest.raises(DatasetError, match=says):
        data.open(copy)
    for number, name in enumerate(["image", "image", "other"]):  # and where all of them are bytes
        write_stream(copy / f"data-0000{number}-of-00003.arrow", pa.table({name: [b"x"]}))
    with pytest.raises(DatasetError, match=says):
        data.open(copy)


def test_images_that_were_saved_as_paths_are_refused(copy):
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    for path in copy.glob("*.arrow"):
        write_stream(path, pa.table({"image": pa.array([{"bytes": None, "path": "a.jpg"}, None], kind)}))
    with pytest.raises(DatasetError, match=r"expected images as bytes in 'image', got the paths .* Save it again: "):
        data.open(copy)


@pytest.mark.parametrize("splits", [7, "train", []], ids=["number", "text", "none"])
def test_splits_that_are_none_are_named(tmp_path, splits):
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": splits}))
    with pytest.raises(DatasetError, match=r"expected a list of splits in dataset_dict\.json, got none"):
        data.open(tmp_path)


def test_two_columns_of_one_name_are_refused(copy):
    for path in copy.glob("*.arrow"):
        write_stream(path, pa.Table.from_arrays([pa.array([b"x"]), pa.array([1])], names=["x", "x"]))
    with pytest.raises(DatasetError, match="expected column names that differ, got 'x' 2 times"):
        data.open(copy)


def test_arguments_that_mean_nothing_here_are_refused(saved):
    with pytest.raises(UsageError, match=r"classes: expected a list of .*, got True: set is a saved dataset"):
        data.open(saved, classes=True)
    with pytest.raises(UsageError, match="root: expected none"):
        data.open(saved, root="/")
