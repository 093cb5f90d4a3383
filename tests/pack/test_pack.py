"""Packs against tarfile, webdataset and Pillow; what a kill, a full disk, damage and odd datasets do to them."""

from __future__ import annotations

import io
import json
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import headrace as hr
from headrace.errors import DatasetError, HeadraceError, NotFoundError, ReadError, UsageError, WriteError
from headrace.pack import Form, PackOptions, describe, merge, pack, try_out, verify
from headrace.tools.command_line import app

SMALL = 200_000
"""Bytes of a shard that make several of the photographs."""
WRITTEN = (".tar", ".json", "columns.headrace")
"""Ends of the names of files that are equal in every pack of one dataset."""


def members_of(folder: Path) -> dict[str, bytes]:
    found = {}
    for tar in sorted(folder.glob("*.tar")):
        with tarfile.open(tar) as archive:
            for member in archive:
                assert member.name not in found
                found[member.name] = archive.extractfile(member).read()
    return found


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith(WRITTEN)}


def rgb(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def packed(photos: Path, to: Path, options: PackOptions | None = None, **how: object) -> Path:
    pack(hr.open(str(photos)), to, options or PackOptions(max_shard_bytes=SMALL), **how)
    return to


def test_a_lossless_pack_has_the_same_pixels_and_labels(photos: Path, tmp_path: Path) -> None:
    members = members_of(packed(photos, tmp_path / "pack"))
    sources = sorted(photos.rglob("*.jpg"))
    assert len(members) == 2 * len(sources)
    for path in sources:
        key = str(path.relative_to(photos).with_suffix(""))
        np.testing.assert_array_equal(rgb(members[f"{key}.jpg"]), rgb(path.read_bytes()))
        assert members[f"{key}.cls"] == path.parent.name.removeprefix("class").encode()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_a_pack(photos: Path, tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    shards = sorted(map(str, packed(photos, tmp_path / "pack").glob("*.tar")))
    assert len(shards) > 3
    samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode("rgb8").to_tuple("__key__", "jpg", "cls"))
    assert [key for key, _, _ in samples] == [path[:-4] for path in hr.open(str(photos)).keys]
    assert [label for _, _, label in samples] == hr.open(str(photos)).labels().tolist()


def test_a_loader_makes_the_same_batches_of_a_pack(photos: Path, tmp_path: Path) -> None:
    tars = hr.open(str(packed(photos, tmp_path / "pack") / "shard-*.tar"))
    options = {"view": hr.RandomResizedCrop(64), "batch_size": 20, "seed": 3, "output": "numpy"}
    for theirs, ours in zip(hr.Loader(hr.open(str(photos)), **options), hr.Loader(tars, **options), strict=True):
        np.testing.assert_array_equal(theirs["image"], ours["image"])
        np.testing.assert_array_equal(theirs["label"], ours["label"])


def test_reduced_images_in_each_form_are_those_of_the_jpeg(photos: Path, tmp_path: Path) -> None:
    forms = {}
    for form in (Form.jpeg, Form.yuv420, Form.raw):
        to = packed(photos, tmp_path / form, PackOptions(form=form, short_side=100))
        forms[form] = hr.open(str(to / "*.tar"))
        assert verify(to) == []
    batches = {
        form: next(iter(hr.Loader(data, view=hr.CenterCrop(64), batch_size=60, output="numpy")))["image"]
        for form, data in forms.items()
    }  # fmt: skip
    np.testing.assert_array_equal(batches[Form.yuv420], batches[Form.jpeg])
    assert np.abs(batches[Form.raw].astype(int) - batches[Form.jpeg]).mean() < 5
    sizes = [Image.open(io.BytesIO(sample["image"])).size for sample in forms[Form.jpeg]]
    assert {min(size) for size in sizes} == {64, 97, 100}  # smaller images stay
    rough, fine = (
        try_out(hr.open(str(photos)), PackOptions(form=Form.jpeg, short_side=100, quality=quality))
        for quality in (20, 95)
    )
    assert 20 < rough.psnr_db < fine.psnr_db < 60
    assert 0.5 < rough.ssim < fine.ssim < 1
    pixels = try_out(hr.open(str(photos)), PackOptions(form=Form.raw, short_side=100))
    assert (pixels.psnr_db, pixels.ssim) == (None, None)
    assert pixels.samples == 60
    assert pixels.decode_after_s < pixels.decode_before_s


def test_dense_columns_are_reduced_by_the_nearest_filter(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels, depth = rng.integers(0, 256, (150, 201, 3), np.uint8), rng.integers(0, 65536, (150, 201)).astype(np.uint16)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(depth).save(tmp_path / "b.png")
    (tmp_path / "list.csv").write_text("rgb,depth,caption,score\na.png,b.png,grün,1.5\n")
    pack(hr.open(str(tmp_path / "list.csv")), tmp_path / "pack", PackOptions(form=Form.jpeg, short_side=100))
    members = members_of(tmp_path / "pack")
    assert sorted(members) == ["a.depth.png", "a.json", "a.rgb.jpg", "a.txt"]
    assert members["a.txt"].decode() == "grün"
    assert json.loads(members["a.json"]) == {"score": 1.5}
    small = np.asarray(Image.open(io.BytesIO(members["a.depth.png"])))
    assert rgb(members["a.rgb.jpg"]).shape[:2] == small.shape == (100, 134)
    rows, columns = ((np.arange(n) + 0.5) * size / n for n, size in ((100, 150), (134, 201)))
    np.testing.assert_array_equal(small, depth[rows.astype(int)][:, columns.astype(int)])


def test_values_of_more_than_8_bits_stay_exact_whatever_their_column_is_called(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 65536, (150, 200)).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    Image.fromarray(values.astype(np.float32)).save(tmp_path / "a.tif")
    Image.fromarray((values % 5).astype(np.uint8), "L").convert("P").save(tmp_path / "a.gif")
    (tmp_path / "list.csv").write_text("disparity,height,classes\na.png,a.tif,a.gif\n")
    pack(hr.open(str(tmp_path / "list.csv")), tmp_path / "pack", PackOptions(form=Form.raw, short_side=75))
    members = members_of(tmp_path / "pack")
    small = values[1::2, 1::2]
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(members["a.disparity.png"]))), small)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(members["a.height.tif"]))), small)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(members["a.classes.png"]))), small % 5)


def test_parts_of_many_machines_have_the_bytes_of_one(photos: Path, tmp_path: Path) -> None:
    options = PackOptions(max_shard_bytes=SMALL, shuffle=7)
    alone = packed(photos, tmp_path / "alone", options)
    for number in (2, 0, 1):
        if number == 1:
            with pytest.raises(HeadraceError, match="missing"):
                merge(tmp_path / "parts")
        packed(photos, tmp_path / "parts", options, part=(number, 3))
    assert bytes_of(tmp_path / "parts") == bytes_of(alone)
    assert merge(tmp_path / "parts") == describe(alone).shards
    assert max(path.stat().st_size for path in alone.glob("*.tar")) <= 1.15 * SMALL
    order = [sample["__key__"] for sample in hr.open(str(alone / "*.tar"))]
    assert sorted(order) == sorted(hr.open(str(photos)).keys)
    assert order != sorted(order)


SCRIPT = """
import sys, headrace as hr
from pathlib import Path
from headrace.pack import PackOptions, pack
pack(hr.open(sys.argv[1]), Path(sys.argv[2]), PackOptions(max_shard_bytes=200_000), 
     tick=lambda *_: print("shard", flush=True))
"""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed >= 2 else ()) for seed in range(50)]
)
def test_a_killed_pack_goes_on_to_the_same_bytes(photos: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    command = [sys.executable, "-c", SCRIPT, str(photos), str(tmp_path / "pack")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for _ in range(rng.randrange(6)):
            process.stdout.readline()
        time.sleep(rng.random() * 0.03)
        process.send_signal(signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "pack").glob("*.tar")}
    packed(photos, tmp_path / "pack")
    assert bytes_of(tmp_path / "pack") == bytes_of(packed(photos, tmp_path / "undisturbed"))
    assert all(path.stat().st_mtime_ns == at for path, at in before.items()), "a finished shard was written again"
    assert not list((tmp_path / "pack").glob("*.partial"))


def test_a_flipped_byte_is_found_and_its_member_named(photos: Path, tmp_path: Path) -> None:
    to = packed(photos, tmp_path / "pack")
    tar = sorted(to.glob("*.tar"))[1]
    whole = tar.read_bytes()
    with tarfile.open(tar) as archive:
        members = archive.getmembers()
    rng = random.Random(0)
    for at in [members[2].offset_data + 5, members[3].offset + 1, len(whole) - 1, *rng.sample(range(len(whole)), 12)]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        tar.write_bytes(damaged)
        assert len(verify(to)) >= 1, at
        holder = [one.name for one in members if one.offset_data <= at < one.offset_data + one.size]
        if holder:
            assert holder[0] in verify(to)[0]
    tar.write_bytes(whole)
    assert verify(to) == []
    tar.unlink()
    assert "missing" in verify(to)[0]


@pytest.mark.parametrize(
    ("seed", "flips"), [(0, 8), *(pytest.param(seed, 100, marks=pytest.mark.long) for seed in range(1, 5))]
)
def test_each_flipped_byte_of_each_file_is_found(photos: Path, tmp_path: Path, seed: int, flips: int) -> None:
    data = hr.open(str(photos))[:6].with_column("score", np.arange(6) / 3)
    pack(data, tmp_path / "pack", PackOptions(max_shard_bytes=SMALL // 2))
    rng = random.Random(seed)
    files = sorted(path for path in (tmp_path / "pack").iterdir() if path.stat().st_size)
    assert len([path for path in files if path.name.endswith(".tar.headrace")]) > 1
    for path in files:
        whole = path.read_bytes()
        for at in sorted(rng.sample(range(len(whole)), min(len(whole), flips))):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            same = path.suffix == ".json" and _same_json(damaged, whole)  # such as E for e in an escape
            assert same or any(path.name in each for each in _wrong_in(tmp_path / "pack")), at
        path.write_bytes(whole)
    assert verify(tmp_path / "pack") == []
    (tmp_path / "pack/columns.headrace").unlink()
    assert "columns.headrace: missing" in verify(tmp_path / "pack")[0]


def _wrong_in(folder: Path) -> list[str]:
    try:
        return verify(folder)
    except DatasetError as error:  # of the plan
        return [str(error)]


def _same_json(one: bytes, other: bytes) -> bool:
    with suppress(ValueError):
        return bool(json.loads(one) == json.loads(other))
    return False


def test_a_bad_sample_is_named_or_left_out(tmp_path: Path) -> None:
    for name, data in {"a/1.jpg": _jpeg(), "a/2.jpg": _jpeg()[:-90], "b/3.jpg": _jpeg()}.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    data = hr.open(str(tmp_path / "in"))
    with pytest.raises(HeadraceError, match=r"a/2\.jpg"):
        pack(data, tmp_path / "pack", PackOptions(form=Form.raw))
    report = pack(data, tmp_path / "pack", PackOptions(form=Form.raw, drop_bad=True))
    assert [key for key, _ in report.dropped] == ["a/2.jpg"]
    assert sorted(members_of(tmp_path / "pack")) == ["a/1.cls", "a/1.ppm", "b/3.cls", "b/3.ppm"]


def test_a_failed_read_is_never_a_bad_sample(tmp_path: Path) -> None:
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(_jpeg())
    data = hr.open(str(tmp_path / "in"))
    (tmp_path / "in" / "2.jpg").unlink()
    with pytest.raises(ReadError, match=r"2\.jpg"):
        pack(data, tmp_path / "pack", PackOptions(drop_bad=True))


def test_names_that_collide_stay_apart(tmp_path: Path) -> None:
    for name in ("x.jpg", "x.jpeg", "x.y.jpg", "x_y.jpg"):
        (tmp_path / "in" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / "a" / name).write_bytes(_jpeg())
    to = packed(tmp_path / "in", tmp_path / "pack")
    assert sum(name.endswith(".jpg") for name in members_of(to)) == 4
    assert len(hr.open(str(to / "*.tar"))) == 4


def test_bytes_in_memory_are_in_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert pack(hr.open([_jpeg()]), ".", PackOptions()).samples == 1


@pytest.mark.long
def test_what_cannot_be_packed_is_refused(photos: Path, tmp_path: Path) -> None:
    to = packed(photos, tmp_path / "pack")
    with pytest.raises(UsageError, match="options"):
        packed(photos, to, PackOptions())
    with pytest.raises(UsageError, match="apart"):
        packed(photos, photos)
    with pytest.raises(UsageError, match="apart"):
        packed(photos, photos / "pack")
    with pytest.raises(UsageError, match="short_side"):
        PackOptions(form=Form.jpeg)
    with pytest.raises(UsageError, match="short_side"):
        PackOptions(short_side=256)
    with pytest.raises(NotFoundError, match="expected a pack"):
        describe(tmp_path)


@pytest.mark.long
def test_a_second_run_of_one_part_is_refused(photos: Path, tmp_path: Path) -> None:
    errors = []

    def tick(done: int, total: int, written: int) -> None:
        with pytest.raises(WriteError, match="another run") as error:
            packed(photos, tmp_path / "pack")
        errors.append(error)

    packed(photos, tmp_path / "pack", tick=tick)
    assert errors


def test_a_full_disk_is_an_error_and_the_next_run_goes_on(photos: Path, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    command = [sys.executable, "-m", "headrace", "pack", str(photos), str(tmp_path / "pack"), "--max-shard", "200kB"]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
    assert done.returncode == 1
    assert "shard-000000.tar: " in done.stderr
    assert "Traceback" not in done.stderr
    assert bytes_of(packed(photos, tmp_path / "pack")) == bytes_of(packed(photos, tmp_path / "undisturbed"))


def test_one_sample_and_a_command_line(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "x.jpg").write_bytes(_jpeg())
    for verb in (
        ["pack", str(tmp_path / "in"), str(tmp_path / "pack"), "--json", "-"],
        ["verify"],
        ["info"],
        ["merge"],
    ):
        arguments = verb if len(verb) > 1 else [*verb, str(tmp_path / "pack"), "--json", "-"]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.stderr
        document = json.loads(done.stdout)
    assert document["shards"] == 1
    assert os.listdir(tmp_path / "pack")


def test_images_that_look_alike_are_listed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for seed in range(6):
        blobs = np.random.default_rng(seed).integers(0, 256, (8, 9, 3), np.uint8)
        whole = Image.fromarray(blobs).resize((320, 240), Image.Resampling.BICUBIC)
        whole.save(tmp_path / f"in/{seed}.jpg", quality=92)
        if seed == 3:
            whole.resize((200, 150)).save(tmp_path / "in/3-small.jpg", quality=60)
            turned = Image.Exif()
            turned[0x0112] = 3
            whole.rotate(180).save(tmp_path / "in/3-turned.jpg", exif=turned)
    pack(hr.open(tmp_path / "in"), tmp_path / "pack", PackOptions())
    done = CliRunner().invoke(app, ["info", str(tmp_path / "pack"), "--near-duplicates", "--json", "-"])
    assert json.loads(done.stdout)["near_duplicates"] == [["3-small.jpg", "3-turned.jpg", "3.jpg"]]


def _jpeg() -> bytes:
    target = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 60, 3), np.uint8)).save(target, "JPEG")
    return target.getvalue()


def test_facts_of_the_system_for_a_bug_report():
    done = CliRunner().invoke(app, ["info", "--system", "--json", "-"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["headrace"] == hr.__version__
    assert found["python"] == platform.python_version()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert "scalar" in found["instruction sets"]


@pytest.mark.parametrize("arguments", [["info"], ["info", "folder", "--system"]])
def test_info_takes_a_pack_or_the_system(arguments):
    with pytest.raises(UsageError, match="--system"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
