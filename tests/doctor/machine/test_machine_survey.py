"""What is looked up once a command has ended: files that were seen, and the times of reading them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from headrace.doctor.machine.survey import indexed, surveyed
from headrace.doctor.session.model import Machine
from headrace.doctor.session.producers import FileOpens, OpenedFile


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


def opened_in(folder: Path, opens: dict[str, int]) -> FileOpens:
    return FileOpens([OpenedFile(str(folder / name), many) for name, many in opens.items()])


def test_an_archive_and_its_images_are_timed(tar: Path) -> None:
    found = surveyed(machine(tar), FileOpens())
    look_up, header = found.calibrations
    assert (look_up.remedy, look_up.unit, len(look_up.other_us), look_up.present_us) == (
        "indexed-tar",
        "look-up",
        4,
        [],
    )
    assert (header.remedy, header.unit, len(header.other_us)) == ("indexed-tar", "header", 4)
    assert all(us > 0 for us in [*look_up.other_us, *header.present_us])


def test_nothing_seen_nothing_timed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass")
    found = surveyed(machine(tmp_path / "train.py", tmp_path / "gone.tar", tmp_path), FileOpens())
    assert found.calibrations == []


def test_a_tar_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "odd.tar"
    path.write_bytes(b"odd" * 1000)
    assert indexed(str(path)) == []
    assert surveyed(machine(path), FileOpens()).calibrations == []


def test_images_and_archives_that_were_opened_are_timed(tmp_path: Path, tar: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02d}.png").write_bytes(png())
    opens = {"13.png": 5, "17.png": 4, tar.name: 2}
    timed: list[list[str]] = []

    def time_views(images: Any, _: Any) -> None:
        timed.append([name for name, _ in images])

    look_up, _ = surveyed(
        machine(), FileOpens([OpenedFile(str(tmp_path / name), many) for name, many in opens.items()]), time_views
    ).calibrations
    assert look_up.files[0] == f"{tar} a.png"
    assert timed[0][:2] == [str(tmp_path / "13.png"), str(tmp_path / "17.png")]
