"""Whole runs whose workers read files, each with a log of its own: what the doctor knows of them, and that a proof
reads copies and nothing else."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from observed_runs import observe, python
from PIL import Image

from headrace.doctor.session.model import Session

FILES = 12
MEMBERS = 8


def long(*values: Any) -> Any:
    """A case that another one stands for."""
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Twelve images, a tar of eight, and text that nobody reads."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(FILES):
        Image.effect_noise((16 + number, 16), 50).save(folder / f"{number}.png")
    (folder / "labels.txt").write_text("nobody reads this" * 1000)
    with tarfile.open(folder / "all.tar", "w") as tar:
        for number in range(MEMBERS):
            member = tarfile.TarInfo(f"{number}.png")
            content = (folder / f"{number}.png").read_bytes()
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return folder


def of_folder(session: Session, folder: Path) -> dict[str, int]:
    """Opens by path, of the files in it."""
    return {one.path: one.opens for one in session.opened.files if Path(one.path).parent == folder}


@pytest.mark.parametrize("how", ["open", long("pillow"), long("opencv"), long("tar")])
@pytest.mark.long
def test_what_was_opened_is_what_the_run_itself_noted(how: str, data: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    observed = observe(python("read_files.py", how, data, log, "--epochs", 4), tmp_path)
    assert observed.status == 0, observed.error
    noted = Counter(log.read_text().splitlines())
    assert of_folder(observed.session, data) == noted
