"""Pictures of faults: what they show, how large they are, and where they appear."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_samples import Samples, classified, looked
from made_reports import made_diagnosis, made_session
from PIL import Image
from test_data_faults import bilinear_labels, blue_first, separately_cropped
from torch.utils.data import DataLoader

from headrace.doctor.explain.look import Look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.faults import FaultPicture, fault_pictures, find_faults
from headrace.doctor.faults.fault_pictures import GAP, SIDE
from headrace.doctor.report import Outputs, report_view
from headrace.doctor.report.html_page import html_page
from headrace.doctor.session.after_run import DataFault

STEP = SIDE + GAP
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
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)


@pytest.mark.parametrize(("make", "columns"), [(separately_cropped, 4), (bilinear_labels, 2), (blue_first, 2)])
def test_files_stand_beside_what_is_made_of_them(make: Any, columns: int, folder: Path, tmp_path: Path) -> None:
    sheet = sheet_of(pictured(make, folder, tmp_path))
    assert sheet.shape == (4 * STEP - 4, columns * STEP - 4, 3)
    for column in range(columns):
        assert sheet[:SIDE, column * STEP : column * STEP + SIDE].std() > 10


def test_an_image_with_its_colours_exchanged(folder: Path, tmp_path: Path) -> None:
    sheet = sheet_of(pictured(blue_first, folder, tmp_path))
    file, read = sheet[:110, :160], sheet[:110, STEP : STEP + 160]
    assert np.abs(file - read).mean() > 2 * np.abs(file - read[..., ::-1]).mean()


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
    page = (tmp_path / "r.html").read_text()
    assert '<img src="data:image/png;base64,Zmlyc3Q=" alt="&lt;left&gt;">' in page
    assert page.count("<img ") == 2
    assert "Zmlyc3Q" not in (tmp_path / "r.json").read_text()


def test_a_page_stays_below_its_limit() -> None:
    session = made_session()
    session.faults = [DataFault("misaligned", "certain", "e")] * 6
    page = html_page(
        report_view(session, made_diagnosis()), {place: FaultPicture(bytes(180_000), "") for place in range(6)}
    )
    assert len(page) < 1_000_000
    assert page.count("data:image/png") == 2
