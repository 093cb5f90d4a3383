"""What is looked up once a command has ended: files that were seen, places for copies, what images take to decode."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from headrace.doctor.session.model import Machine, Opened, OpenedFile, OpenedFolder
from headrace.doctor.survey.archives import look_ups
from headrace.doctor.survey.images import decoded, near
from headrace.doctor.survey.places import places
from headrace.doctor.survey.survey import surveyed


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
    found = surveyed(machine(tar), Opened())
    assert [(one.path, one.seen) for one in found.files] == [(str(tar), 9)]
    look_up, images = found.calibrations
    assert (look_up.remedy, len(look_up.other_us), look_up.present_us) == ("indexed-tar", 4, [])
    assert images.remedy == "native-decode"
    assert images.files == [f"{tar} a.png", f"{tar} d.png"], "c.png is no image, and is left out"
    assert images.pixel_bytes == [32 * 32 * 3] * 2
    assert all(us > 0 for us in [*images.present_us, *images.other_us, *look_up.other_us])


def test_loose_images_stand_for_their_folder(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02d}.png").write_bytes(png())
    (images,) = surveyed(machine(tmp_path / "07.png"), Opened()).calibrations
    assert images.files[0] == str(tmp_path / "07.png")
    assert 4 <= len(images.files) <= 12
    assert near("/nowhere/a.png") == ["/nowhere/a.png"]


def test_neighbours_that_are_no_plain_files_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    os.mkfifo(tmp_path / "b.png")
    (images,) = surveyed(machine(tmp_path / "a.png"), Opened()).calibrations
    assert images.files == [str(tmp_path / "a.png")]


def test_nothing_seen_nothing_timed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass")
    found = surveyed(machine(tmp_path / "train.py", tmp_path / "gone.tar", tmp_path), Opened())
    assert (found.files, found.calibrations) == ([], [])


def test_a_tar_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "odd.tar"
    path.write_bytes(b"odd" * 1000)
    assert look_ups(str(path)) is None
    assert surveyed(machine(path), Opened()).calibrations == []


def test_no_more_than_the_time_there_is(tmp_path: Path) -> None:
    asked: list[str] = []

    def read(name: str) -> Callable[[], bytes]:
        return lambda: asked.append(name) or png()  # type: ignore[func-returns-value]

    found = decoded(((name, read(name)) for name in "abc"), lambda: len(asked) < 2)
    assert found is not None
    assert found.files == asked == ["a", "b"]


def test_places_are_memory_and_a_disk_that_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mount = {"path": str(tmp_path), "network": False, "disk": "sda"}
    assert [one.kind for one in places(machine(mounts=[mount]))] == ["memory", "disk"]
    slow = machine(mounts=[mount], disks={"sda": {"rotational": True}})
    assert [one.kind for one in places(slow)] == ["memory"]
    assert [one.kind for one in places(machine(mounts=[{**mount, "network": True}]))] == ["memory"]
