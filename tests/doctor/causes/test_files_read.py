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

from headrace.doctor.causes.storage import FilesRead
from headrace.doctor.probe.settings import ProbeSettings, boot_id
from headrace.doctor.prove.trial import TrialRequest, attempt
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
    (folder,) = (one for one in observed.session.opened.folders if one.path == str(data))
    assert (folder.opens, folder.names, folder.is_exact) == (noted.total(), len(noted), True)
    assert observed.session.survey is not None
    found = {one.path: one.bytes for one in observed.session.survey.files if one.opens}
    assert found == {path: Path(path).stat().st_size for path in noted}


@pytest.mark.parametrize(
    ("how", "is_folder"), [long("open", True), long("pillow", False), long("opencv", True), long("tar", False)]
)
def test_every_read_of_a_proof_goes_to_the_copies(how: str, is_folder: bool, data: Path, tmp_path: Path) -> None:
    observed = observe(python("read_files.py", how, data, tmp_path / "log", *epochs(is_folder)), tmp_path)
    assert observed.session.survey is not None
    files = [one for one in observed.session.survey.files if one.path.startswith(str(data))]
    assert [one.folder is not None for one in files] == ([True] if is_folder else [False] * len(files))
    (tmp_path / "disk").mkdir()
    changes = {"staging": FilesRead(files, [], 0).pairs(str(tmp_path / "disk"))}
    like = ProbeSettings(str(tmp_path), 0, 0, boot_id())
    command = python("read_files.py", how, data, tmp_path / "proof", "--epochs", 1000, "--away")
    trial = attempt(command, like, TrialRequest(changes, 10, 2, 120.0))
    assert trial.why == "measured", trial.detail
    assert len((tmp_path / "proof").read_text().splitlines()) >= (2 if how == "tar" else 4 * 10)
    assert not data.exists()  # the files were not there to be read
    assert not list((tmp_path / "disk").iterdir())


def epochs(is_folder: bool) -> list[object]:
    """In one, each file is opened once, and stands for others of its folder; in four, they have come again."""
    return ["--epochs", 1 if is_folder else 4]
