"""What is looked up once a command has ended: files that were seen, places for copies, sizes of images."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from headrace.doctor.machine import files_read
from headrace.doctor.machine.files_read import list_folder, places
from headrace.doctor.machine.survey import indexed, surveyed
from headrace.doctor.session.after_run import SeenFile, SeenFolder
from headrace.doctor.session.model import Machine
from headrace.doctor.session.producers import FileOpens, OpenedFile, OpenedFolder


def machine(*paths: Path, **facts: Any) -> Machine:
    return Machine("here", {"files": [{"path": str(path), "seen": 9 - n} for n, path in enumerate(paths)], **facts})


def png(side: int = 32) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((side, side), 50).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    path = tmp_path / "images.tar"
    with tarfile.open(path, "w") as archive:
        for name, data in {"a.png": png(), "b.txt": b"text", "c.png": b"no image", "d.png": png()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_an_archive_and_its_images_are_timed(tar: Path) -> None:
    found = surveyed(machine(tar), FileOpens())
    assert [(one.path, one.seen) for one in found.files] == [(str(tar), 9)]
    look_up, header, sizes = found.calibrations
    assert (look_up.remedy, look_up.unit, len(look_up.other_us), look_up.present_us) == (
        "indexed-tar",
        "look-up",
        4,
        [],
    )
    assert (header.remedy, header.unit, len(header.other_us)) == ("indexed-tar", "header", 4)
    assert sizes.files == [f"{tar} a.png", f"{tar} d.png"]  # c.png is no image, and is left out
    assert (sizes.remedy, sizes.pixel_bytes) == ("cache", [32 * 32 * 3] * 2)
    assert all(us > 0 for us in [*look_up.other_us, *header.present_us])


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    os.mkfifo(tmp_path / "b.png")
    (sizes,) = surveyed(machine(), opened_in(tmp_path, {"a.png": 1, "b.png": 1})).calibrations
    assert sizes.files == [str(tmp_path / "a.png")]


def test_nothing_seen_nothing_timed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass")
    found = surveyed(machine(tmp_path / "train.py", tmp_path / "gone.tar", tmp_path), FileOpens())
    assert (found.files, found.calibrations) == ([], [])


def test_a_tar_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "odd.tar"
    path.write_bytes(b"odd" * 1000)
    assert indexed(str(path)) == []
    assert surveyed(machine(path), FileOpens()).calibrations == []


def test_places_are_memory_and_a_disk_that_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mount = {"path": str(tmp_path), "network": False, "disk": "sda"}
    assert [one.kind for one in places(machine(mounts=[mount]))] == ["memory", "disk"]
    slow = machine(mounts=[mount], disks={"sda": {"rotational": True}})
    assert [one.kind for one in places(slow)] == ["memory"]
    assert [one.kind for one in places(machine(mounts=[{**mount, "network": True}]))] == ["memory"]


# Files that were opened.


def opened_in(folder: Path, opens: dict[str, int], *, whole: int | None = None, is_deep: bool = False) -> FileOpens:
    """These, by name, of as many opens as `whole`, if files are not told one by one."""
    told = [OpenedFile(str(folder / name), count) for name, count in opens.items()]
    ends = sorted({Path(name).suffix for name in opens})
    whole = sum(opens.values()) if whole is None else whole
    return FileOpens(told, [OpenedFolder(str(folder), whole, is_deep, ends)])


def listed(folder: Path, ends: list[str], is_time_left: Callable[[], bool] = lambda: True) -> SeenFile:
    """What is found of a folder whose files were each opened once."""
    return list_folder(OpenedFolder(str(folder), 60, False, ends), is_time_left=is_time_left)


def filled(folder: Path, count: int, *, end: str = ".bin", size: int = 100) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}{end}").write_bytes(bytes(size))
    return folder


def test_files_that_come_again_are_all_that_are_read(tmp_path: Path) -> None:
    folder = filled(tmp_path, 20)
    opens = {f"{number}.bin": 9 - number for number in range(5)}
    found = surveyed(machine(), opened_in(folder, opens)).files
    assert [(one.path, one.bytes, one.opens, one.folder) for one in found] == [
        (str(folder / name), 100, count, None) for name, count in opens.items()
    ]


def test_files_that_were_opened_once_stand_for_their_folder(tmp_path: Path) -> None:
    folder = filled(tmp_path, 20)
    filled(folder, 3, end=".txt", size=10_000)
    filled(folder / "beneath", 3)
    (one,) = surveyed(machine(), opened_in(folder, {f"{number}.bin": 1 for number in range(10)})).files
    assert (one.path, one.bytes, one.opens) == (str(folder), 2_000, 10)
    assert one.folder == SeenFolder(20, 10, [".bin"], is_deep=False, sized=20, is_whole=True)


def test_a_few_files_stand_for_themselves(tmp_path: Path) -> None:
    folder = filled(tmp_path, 20)
    found = surveyed(machine(), opened_in(folder, {"1.bin": 1, "2.bin": 1, "gone.bin": 1, "code.py": 1})).files
    assert [one.path for one in found] == [str(folder / "1.bin"), str(folder / "2.bin")]


def test_folders_beneath_one(tmp_path: Path) -> None:
    for name in "abc":
        filled(tmp_path / name, 4)
    (one,) = surveyed(machine(), opened_in(tmp_path, {"a/1.bin": 1}, whole=10, is_deep=True)).files
    assert one.folder is not None
    assert (one.bytes, one.folder.files, one.folder.is_deep) == (1_200, 12, True)


def test_the_sampler_adds_what_was_not_opened_in_a_batch(tmp_path: Path, tar: Path) -> None:
    folder = filled(tmp_path / "data", 20)
    (tmp_path / "link").symlink_to(folder)
    opened = opened_in(tmp_path / "link", {f"{number}.bin": 1 for number in range(10)})
    found = surveyed(machine(folder / "7.bin", tar), opened).files
    assert [(one.path, one.seen) for one in found] == [(str(tmp_path / "link"), 9), (str(tar), 8)]


def test_images_and_archives_that_were_opened_are_timed(tmp_path: Path, tar: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02d}.png").write_bytes(png())
    opens = {"13.png": 5, "17.png": 4, tar.name: 2}
    look_up, _, sizes = surveyed(machine(), opened_in(tmp_path, opens)).calibrations
    assert look_up.files[0] == f"{tar} a.png"
    assert sizes.files[:2] == [str(tmp_path / "13.png"), str(tmp_path / "17.png")]


def test_sizes_of_a_large_folder_are_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_read, "MOST_SIZED", 10)
    folder = filled(filled(tmp_path, 30, size=100), 30, end=".2.bin", size=300)
    found = listed(folder, [".bin"])
    assert found.folder is not None
    assert (found.folder.files, found.folder.sized, found.folder.is_whole) == (60, 10, True)
    assert 60 * 100 < found.bytes < 60 * 300


def test_a_folder_without_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_read, "_AT_ONCE", 10)
    folder = filled(tmp_path, 60)
    looks = iter([True] * 3 + [False] * 9)
    cut = listed(folder, [""], lambda: next(looks))
    assert cut.folder is not None
    assert (cut.folder.files, cut.bytes, cut.folder.is_whole) == (30, 0, False)
    monkeypatch.setattr(files_read, "MOST_LISTED", 40)
    cut = listed(folder, [""])
    assert cut.folder is not None
    assert (cut.folder.files, cut.folder.is_whole) == (50, False)
    nowhere = listed(Path("/nowhere"), [""]).folder
    assert nowhere is not None
    assert not nowhere.files
