"""What packs once lost, renamed or refused, by the user's own calls; tarfile, webdataset and Pillow are the judges."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import headrace as hr
from headrace.errors import DatasetError, HeadraceError, UsageError
from headrace.pack import Form, PackOptions, pack, verify
from headrace.tools.command_line import app


def picture(color: int, format: str = "JPEG", side: int = 32, **options: object) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (side, side), (color, 0, 0)).save(data, format, **options)
    return data.getvalue()


def noise(seed: int, width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def members_of(folder: Path) -> dict[str, bytes]:
    with tarfile.open(folder / "shard-000000.tar") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_says_which_column_goes_where_and_a_folder_opens(tmp_path: Path) -> None:
    columns = {"image": [picture(200)], "mask": [picture(7, "PNG")], "Mask": [picture(9, "PNG")], "label": [1]}
    import pandas as pd

    pd.DataFrame(columns).to_parquet(tmp_path / "d.parquet")
    shown = " ".join(run("pack", tmp_path / "d.parquet", tmp_path / "pack").split())
    assert "image (KEY.FORMAT), mask (KEY.mask.FORMAT), Mask (KEY.%4dask.FORMAT), label (KEY.cls)" in shown
    assert sorted(members_of(tmp_path / "pack")) == ["0.%4dask.png", "0.cls", "0.jpg", "0.mask.png"]
    data = hr.open(tmp_path / "pack")
    assert {name: data.read(name, 0) for name in ("image", "mask", "Mask")} == {
        name: columns[name][0] for name in ("image", "mask", "Mask")
    }


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_keys_that_meet_stay_apart_within_and_across_shards(tmp_path: Path, size: int) -> None:
    webdataset = pytest.importorskip("webdataset")
    names = ["a.b.jpg", "a_b.jpg", "a_b-2.jpg", "a.jpg", "a.png", "a~2.jpg", "__a__.jpg", "x\ny.jpg"]
    (tmp_path / "in/c").mkdir(parents=True)
    for at, name in enumerate(names):
        (tmp_path / "in/c" / name).write_bytes(picture(20 * at, "PNG" if name.endswith("png") else "JPEG"))
    source = hr.open(tmp_path / "in", classes=False)
    for number in (1, 0):
        pack(source, tmp_path / "pack", PackOptions(max_shard_bytes=size), part=(number, 2))
    tars = sorted(map(str, (tmp_path / "pack").glob("*.tar")))
    keys = [sample["__key__"] for sample in webdataset.WebDataset(tars, shardshuffle=False)]
    assert len(set(keys)) == len(keys) == len(names)
    assert {"c/a%2eb", "c/a_b", "c/a_b-2", "c/a", "c/a~2", "c/a%7e2"} < set(keys)
    assert list(hr.open(tmp_path / "pack").keys) == list(source.keys)


def test_samples_without_a_key_or_a_member_are_kept(tmp_path: Path) -> None:
    columns = {"__key__": ["", "", "a", "__x__"], "image": [picture(1), None, picture(2), None]}
    assert pack(hr.open(columns), tmp_path / "pack", PackOptions()).samples == 4
    data = hr.open(tmp_path / "pack")
    assert list(data.keys) == columns["__key__"]
    assert [list(sample) for sample in data] == [
        ["__key__", "image"] if at % 2 == 0 else ["__key__"] for at in range(4)
    ]
    only = hr.open({"image": [picture(1), None, picture(2)]})
    pack(only, tmp_path / "only", PackOptions())
    assert members_of(tmp_path / "only")["1.json"] == b"{}"
    assert list(hr.open(tmp_path / "only").column("image")) == [picture(1), None, picture(2)]


def test_a_missing_number_is_null(tmp_path: Path) -> None:
    scores = [0.5, None, 2.5]
    pack(hr.open({"image": [picture(1)] * 3, "score": scores}), tmp_path / "pack", PackOptions())
    members = members_of(tmp_path / "pack")
    assert [json.loads(members[f"{at}.json"], parse_constant=pytest.fail)["score"] for at in range(3)] == scores
    expected = np.array([0.5, np.nan, 2.5])
    np.testing.assert_array_equal(hr.open(tmp_path / "pack").column("score"), expected)
    by_member = hr.open(tmp_path / "pack", columns=["image", "json.score"])
    np.testing.assert_array_equal(by_member.column("json.score"), expected)


def test_classes_survive_for_mixup_and_selection(photos: Path, tmp_path: Path) -> None:
    source = hr.open(photos)
    pack(source, tmp_path / "pack", PackOptions())
    data = hr.open(tmp_path / "pack")
    assert data.classes == source.classes
    mixing = hr.MixUp(alpha=0.2)
    options = {"view": hr.RandomResizedCrop(32), "batch_size": 20, "seed": 3, "output": "numpy", "batch": mixing}
    ours, theirs = (next(iter(hr.Loader(each, **options))) for each in (data, source))
    np.testing.assert_array_equal(ours["label"], theirs["label"])
    some = list(source.classes[1:2])
    chosen = hr.open(tmp_path / "pack", classes=some)
    assert list(chosen.keys) == list(hr.open(photos, classes=some).keys)


def test_dropped_samples_leave_the_values_of_the_others_in_place(tmp_path: Path) -> None:
    images = [picture(at) if at not in (0, 3, 4) else picture(at)[:-90] for at in range(7)]
    source = hr.open({"image": images, "label": list(range(7)), "boxes": [np.ones((at, 4)) for at in range(7)]})
    report = pack(source, tmp_path / "pack", PackOptions(form=Form.raw, drop_bad=True, max_shard_bytes=20_000))
    assert report.shards > 2
    assert [key for key, _ in report.dropped] == ["0", "3", "4"]
    data = hr.open(tmp_path / "pack")
    assert data.labels().tolist() == [1, 2, 5, 6]
    assert [each.shape for each in data.column("boxes")] == [(1, 4), (2, 4), (5, 4), (6, 4)]
    assert data[1]["__key__"] == "2"


def test_some_shards_a_copy_and_a_stage(photos: Path, tmp_path: Path) -> None:
    source, to = hr.open(photos), tmp_path / "pack"
    pack(source, to, PackOptions(max_shard_bytes=200_000, shuffle=5))
    whole = hr.open(to)
    some = hr.open(f"{to}/shard-{{000002,000001}}.tar")
    index = {key: at for at, key in enumerate(whole.keys)}
    assert some.labels().tolist() == whole.select([index[key] for key in some.keys]).labels().tolist()
    staged = hr.open(f"{to}/shard-*.tar", stage=tmp_path / "stage")
    assert staged.fingerprint == whole.fingerprint == hr.open(to, stage=tmp_path / "other").fingerprint
    (tmp_path / "away").mkdir()
    shutil.copy(to / "shard-000001.tar", tmp_path / "away")
    assert list(hr.open(f"{tmp_path}/away/*.tar").columns) == ["image", "label", "cls", "jpg"]  # WebDataset's layout
    shutil.copy(to / "shard-000001.tar", to / "shard-000002.tar")
    with pytest.raises(DatasetError, match=r"shard-000002\.tar: expected the samples"):
        hr.open(to)
    (to / "shard-000002.tar").unlink()
    with pytest.raises(DatasetError, match=r"none called shard-000002\.tar"):
        hr.open(to)
    (to / "columns.headrace").unlink()
    with pytest.raises(DatasetError, match="the values of the pack"):
        hr.open(f"{to}/shard-000000.tar")


def test_what_has_no_planes_stays_a_jpeg(tmp_path: Path) -> None:
    (tmp_path / "in/c").mkdir(parents=True)
    turned = Image.Exif()
    turned[0x0112] = 6
    noise(0, 300, 200).save(tmp_path / "in/c/plain.jpg", quality=90)
    noise(1, 300, 200).save(tmp_path / "in/c/turned.jpg", quality=90, exif=turned)
    noise(2, 64, 48).convert("CMYK").save(tmp_path / "in/c/cmyk.jpg")
    noise(3, 64, 48).save(tmp_path / "in/c/rgb.jpg", keep_rgb=True)
    run("pack", tmp_path / "in", tmp_path / "pack", "--yuv420")
    assert sorted(name for name in members_of(tmp_path / "pack") if not name.endswith("cls")) == [
        "c/cmyk.jpg", "c/plain.y4m", "c/rgb.jpg", "c/turned.jpg",
    ]  # fmt: skip
    run("pack", tmp_path / "in", tmp_path / "small", "--yuv420", "--short-side", "40")
    source = hr.Loader(hr.open(tmp_path / "in"), view=hr.Resize((40, 40)), batch_size=4, output="numpy")
    found = hr.Loader(hr.open(tmp_path / "pack"), view=hr.Resize((40, 40)), batch_size=4, output="numpy")
    np.testing.assert_array_equal(next(iter(source))["image"], next(iter(found))["image"])


@pytest.mark.parametrize("side", [16, 256])
def test_a_jpeg_that_nothing_decodes_is_a_bad_sample(tmp_path: Path, side: int) -> None:
    data = io.BytesIO()
    noise(0, side, side).save(data, "JPEG", quality=90, subsampling=0)
    damaged = bytearray(data.getvalue())
    frame = damaged.find(b"\xff\xc0")
    for component in range(3):
        damaged[frame + 11 + 3 * component] = 0x22  # 12 blocks in an MCU, of 10 that are allowed
    source = hr.open({"image": [picture(1), bytes(damaged)]})
    with pytest.raises(HeadraceError, match="column 'image'"):
        pack(source, tmp_path / "pack", PackOptions())
    report = pack(source, tmp_path / "pack", PackOptions(drop_bad=True))
    assert [key for key, _ in report.dropped] == ["1"]
    assert verify(tmp_path / "pack") == []


def test_texts_that_are_names_of_folders_are_texts(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1.jpg").write_bytes(picture(1))
    (tmp_path / "list.csv").write_text("image,label\ncat/1.jpg,cat\n")
    pack(hr.open(tmp_path / "list.csv"), tmp_path / "pack", PackOptions())
    assert hr.open(tmp_path / "pack").column("label") == ["cat"]


def test_what_no_pack_can_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    many = {f"c{at}": [picture(1)] for at in range(200)}
    for columns in (many, {"label": [1]}):
        with pytest.raises(UsageError, match="columns of files"):
            pack(hr.open(columns), tmp_path / "pack", PackOptions())
    assert not (tmp_path / "pack").exists()
