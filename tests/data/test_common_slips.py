"""What new users do: open videos, follow links in circles, mistype a folder, reuse the classes of training."""

from __future__ import annotations

import io
import os

import PIL.Image
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import DatasetError, EmptyDatasetError, StateError, TooManyBadSamplesError, UsageError


def write_image(path, data=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.BytesIO()
    PIL.Image.new("RGB", (12, 10), 3).save(out, "PNG")
    path.write_bytes(out.getvalue() if data is None else data)


def write_classes(root, names, each=2):
    for name in names:
        for number in range(each):
            write_image(root / name / f"{number}.png")
    return root


def load(data, **options):
    return hr.Loader(data, batch_size=2, output="numpy", **options)


MEDIA = {
    "a.mp4": b"\0\0\0\x18ftypmp42" + bytes(60),
    "a.mkv": b"\x1a\x45\xdf\xa3" + bytes(60),
    "a.wav": b"RIFF\x24\0\0\0WAVEfmt " + bytes(60),
    "a.mp3": b"ID3\x03" + bytes(60),
    "a.flac": b"fLaC" + bytes(60),
}


@pytest.mark.parametrize("name", MEDIA)
def test_video_and_audio_are_named(tmp_path, name):
    (tmp_path / name).write_bytes(MEDIA[name])
    for where in (tmp_path, tmp_path / name, [tmp_path / name]):
        with pytest.raises(DatasetError, match="Video and audio"):
            hr.open(where)


def test_an_empty_list_holds_no_sample():
    with pytest.raises(EmptyDatasetError, match="empty list"):
        hr.open([])


def test_links_that_lead_to_themselves_are_skipped(tmp_path):
    write_classes(tmp_path, ["ant"])
    os.symlink("b", tmp_path / "a")
    os.symlink("a", tmp_path / "b")
    os.symlink("self.png", tmp_path / "ant" / "self.png")
    data = hr.open(tmp_path)
    assert (len(data), data.classes) == (2, ("ant",))
    assert sum(data.skipped.values()) == 3


def test_validation_may_lack_a_class_of_training(tmp_path):
    train = hr.open(write_classes(tmp_path / "train", ["ant", "bee", "cat"]))
    val = hr.open(write_classes(tmp_path / "val", ["ant", "cat"]), classes=train.classes)
    assert val.classes == train.classes
    assert val.labels().tolist() == [0, 0, 2, 2]
    write_classes(tmp_path / "val", ["dog"])
    with pytest.raises(UsageError, match="'bee'"):
        hr.open(tmp_path / "val", classes=train.classes)


def test_selected_rows_of_views_are_opened():
    datasets = pytest.importorskip("datasets")
    table = pa.table({"t": pa.array(["a", "b", "c"], pa.string_view()), "n": [1, 2, 3]})
    data = hr.open(datasets.Dataset(table).select([2, 0]))
    assert [data.column(name)[:] for name in "t"] == [["c", "a"]]
    assert data.column("n").tolist() == [3, 1]


def test_a_cache_below_a_missing_folder_is_a_mistake(tmp_path):
    data = write_classes(tmp_path / "data", ["ant"])
    with pytest.raises(UsageError, match="cache"):
        load(data, cache=f"disk:{tmp_path}/nmve/cache:10MB")
    assert not (tmp_path / "nmve").exists()
    list(load(data, cache=f"disk:{tmp_path}/cache:10MB"))
    assert len(os.listdir(tmp_path / "cache")) == 1


def test_every_bad_file_is_named(tmp_path):
    write_classes(tmp_path, ["ant"], each=156)
    for number in (7, 90):
        write_image(tmp_path / "ant" / f"{number}.png", b"no image")
    with pytest.raises(TooManyBadSamplesError) as found:
        for _ in load(tmp_path, threads=1):
            pass
    assert all(f"ant/{number}.png" in str(found.value) for number in (7, 90))


def test_states_of_another_number_of_samples_say_how_many(tmp_path):
    state = load(write_classes(tmp_path / "first", ["ant"], each=9)).state_dict()
    with pytest.raises(StateError, match=r"\b5\b.*\b9\b"):
        load(write_classes(tmp_path / "second", ["ant"], each=5)).load_state_dict(state)


@pytest.mark.parametrize("name", ["epoch", "samples", "seed", "global_batch", "length"])
def test_numbers_beyond_64_bits_are_no_state(tmp_path, name):
    loader = load(write_classes(tmp_path, ["ant"]))
    with pytest.raises(StateError, match=name):
        loader.load_state_dict(loader.state_dict() | {name: 1 << 64})


def test_dir_shows_what_users_call(tmp_path):
    shown = {name for name in dir(hr.open(write_classes(tmp_path, ["ant"]))) if not name.startswith("_")}
    assert {"select", "split", "column", "labels", "keys", "classes", "fingerprint"} <= shown
    assert not shown & {"table", "base_ids", "locate", "draw_ids", "occurrences", "expect_files"}


@pytest.mark.parametrize("header", [True, False])
def test_names_for_a_manifest_with_other_names_replace_them(tmp_path, header):
    write_classes(tmp_path, ["ant"])
    rows = ["path,class"] * header + ["ant/0.png,ant", "ant/1.png,ant"]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    data = hr.open(tmp_path / "list.csv", columns=["image", "label"])
    assert data.column("image") == ["ant/0.png", "ant/1.png"]
    assert len(list(load(data))) == 1
