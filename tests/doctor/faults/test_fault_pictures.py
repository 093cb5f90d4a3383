"""Pictures of faults: what they show, how large they are, and where they appear."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_samples import Samples, classified, looked
from html_pages import parsed
from made_reports import made_diagnosis, made_session
from PIL import Image
from test_data_faults import bilinear_labels, blue_first, separately_cropped, separately_flipped
from torch.utils.data import DataLoader

from headrace.doctor.explain.look import Look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.faults import FaultPicture, fault_pictures, find_faults
from headrace.doctor.report import Outputs, report_view
from headrace.doctor.report.html_page import html_page
from headrace.doctor.session.after_run import DataFault

STEP = 164
"""Pixels between two pictures of a sheet."""


def pictured(make: Any, folder: Path, tmp_path: Path, prefix: str = "") -> FaultPicture:
    """Return the picture of the only fault of a dataset."""
    look = looked(DataLoader(Samples(folder, make, prefix), batch_size=6, shuffle=True), tmp_path)
    explained = explain_look(look, most_s=60)
    found = fault_pictures(find_faults(look, explained, {}), look, explained)
    assert list(found) == [0]
    return found[0]


def sheet_of(picture: FaultPicture) -> np.ndarray:
    assert picture.png.startswith(b"\x89PNG")
    assert len(picture.png) <= 200_000
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)


def near(pixels: np.ndarray, colour: tuple[int, int, int]) -> int:
    """Return the number of pixels of about a colour: a sheet has a palette."""
    return int((np.abs(pixels - colour).max(axis=-1) < 40).sum())


@pytest.mark.parametrize("make", [separately_cropped, separately_flipped])
def test_windows_of_an_image_and_its_mask(make: Any, folder: Path, tmp_path: Path) -> None:
    picture = pictured(make, folder, tmp_path)
    sheet = sheet_of(picture)
    assert sheet.shape[1] == 3 * STEP - 4
    assert sheet.shape[0] <= 6 * STEP - 4
    cyan = near(sheet[:, :160], (0, 220, 255))
    yellow = near(sheet[:, :160], (255, 200, 0))
    assert cyan > 500
    if make is separately_cropped:  # separate flips have the same window, drawn once over the other
        assert yellow > 500


def test_labels_that_no_file_holds_are_red(folder: Path, tmp_path: Path) -> None:
    picture = pictured(bilinear_labels, folder, tmp_path)
    sheet = sheet_of(picture)
    assert near(sheet[:, :STEP], (255, 0, 0)) == 0
    assert near(sheet[:, STEP:], (255, 0, 0)) > 1000
    assert picture.text == "the label image; 1, with labels in red that no pixel around has"


def test_a_turned_picture_and_its_file(folder: Path, tmp_path: Path) -> None:
    sheet = sheet_of(pictured(classified, folder, tmp_path, "turned"))
    stored, upright = sheet[:160, :160], sheet[:160, STEP:]
    assert (stored[150] == 255).all()  # it is wide
    assert (upright[:, 150] == 255).all()  # and it should be high


def test_an_image_as_its_means_read_it(folder: Path, tmp_path: Path) -> None:
    sheet = sheet_of(pictured(blue_first, folder, tmp_path))
    file, read = sheet[:110, :160], sheet[:110, STEP : STEP + 160]
    assert np.abs(file - read).mean() > 2 * np.abs(file - read[..., ::-1]).mean()


def test_a_sheet_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise compresses least."""
    monkeypatch.setattr(sys.modules["headrace.doctor.faults.fault_pictures"], "_MOST_BYTES", 100_000)
    for number in range(12):
        noise = np.random.default_rng(number).integers(0, 256, (160, 160, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    look = looked(DataLoader(Samples(tmp_path, blue_first), batch_size=6), tmp_path)
    fault = DataFault("channel-order", "certain", "e", ["0"])
    sheet = sheet_of(fault_pictures([fault], look, explain_look(look, most_s=60))[0])
    assert sheet.shape[0] < 6 * STEP - 4


def test_faults_without_a_picture(folder: Path, tmp_path: Path) -> None:
    look: Look = looked(DataLoader(Samples(folder, classified), batch_size=6), tmp_path)
    others = [DataFault(code, "certain", "e") for code in ("same-order", "non-finite")]
    assert fault_pictures(others, look, explain_look(look, most_s=60)) == {}


def test_only_the_page_has_pictures(tmp_path: Path) -> None:
    session = made_session()
    session.faults = [DataFault("same-order", "certain", "one"), *[DataFault("misaligned", "certain", "two")] * 2]
    pictures = {1: FaultPicture(b"first", "<left>"), 2: FaultPicture(b"second", "b")}
    outputs = Outputs(html=tmp_path / "r.html", json=str(tmp_path / "r.json"))
    assert outputs.put(session, made_diagnosis(), None, saved=None, pictures=pictures) == []
    tags = parsed((tmp_path / "r.html").read_text())
    shown = [tag.attributes for tag in tags if tag.name == "img"]
    assert shown[0] == {"src": "data:image/png;base64,Zmlyc3Q=", "alt": "<left>"}
    assert len(shown) == 2
    policy = next(tag for tag in tags if tag.attributes.get("http-equiv") == "Content-Security-Policy")
    assert "; img-src data:; " in policy.attributes["content"]
    assert "Zmlyc3Q" not in (tmp_path / "r.json").read_text()


def test_a_page_stays_below_its_limit() -> None:
    session = made_session()
    session.faults = [DataFault("misaligned", "certain", "e")] * 6
    page = html_page(
        report_view(session, made_diagnosis()), {place: FaultPicture(bytes(180_000), "") for place in range(6)}
    )
    assert len(page) < 1_000_000
    assert page.count("data:image/png") == 2
