"""Datasets that decode for nothing, decode before the first step, share a handle, or parse text for each sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_findings import quantities
from made_prescriptions import helping, is_listed, made, with_batches
from made_sessions import MadeRun
from observed_runs import measured, python
from report_pages import said

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.shared_handles import SHARED_HANDLE
from headrace.doctor.causes.start_up import SLOW_START
from headrace.doctor.causes.unused_decoding import UNUSED
from headrace.doctor.measure import Finding
from headrace.doctor.session.model import Session
from headrace.doctor.session.producers import SourceLine

DAMAGED = "Caught BadZipFile in DataLoader worker process 0.\nzipfile.BadZipFile: Bad CRC-32 for file 'a.jpg'"
ROWS = {"decoded": ["left", "right"], "plain": ["action"]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "code", "text"),
    [
        ("zip", SHARED_HANDLE, "zipfile.ZipFile"),
        ("unused", UNUSED, ": camera."),
        ("eager", SLOW_START, "odd_datasets.py:"),
        ("text", "stage-parse", "numpy.loadtxt"),
        ("json", "stage-parse", "json"),
    ],
)
def test_a_planted_dataset_is_named(kind: str, code: str, text: str, tmp_path: Path) -> None:
    run = measured(python("odd_datasets.py", kind, tmp_path), tmp_path, "--steps", "1000" if kind == "zip" else "20")
    (found,) = [one for one in run.diagnosis.findings if one.code == code]
    assert text in found.text


def described(facts: dict[str, Any], error: str | None = None, *, batch: str = "float32[4,7]") -> Session:
    """A session of a loader with these facts, whose trainer failed with an error."""
    loader = {"described": facts, "start_method": "fork"} | {"dataset": "train.Photos"}
    session = with_batches(made(MadeRun(facts=loader)), batch, 112)
    for process in session.processes:
        if process.role == "trainer":
            process.error = error
    return session


def finding(session: Session, code: str) -> Finding | None:
    return next((one for one in diagnose(session).findings if one.code == code), None)


@pytest.mark.parametrize(
    ("handles", "error", "start_method", "is_explained"),
    [
        (["zipfile.ZipFile"], DAMAGED, "fork", True),
        (["h5py._hl.files.File"], "in DataLoader worker process 1.\nOSError: Can't read data", "fork", True),
        (["sqlite3.Connection"], "in DataLoader worker process 1.\nsqlite3.DatabaseError: malformed", "fork", True),
        (["zipfile.ZipFile"], DAMAGED, "spawn", False),
        ([], DAMAGED, "fork", False),
        (["zipfile.ZipFile"], "in DataLoader worker process 1.\nKeyError: 'label'", "fork", False),
        (["zipfile.ZipFile"], "zipfile.BadZipFile: of the trainer's own", "fork", False),
    ],
)
def test_wrong_bytes_of_forked_workers_are_no_damage(
    handles: list[str], error: str, start_method: str, is_explained: bool
) -> None:
    session = described({"handles": handles}, error)
    session.trainers[0].loaders[0].facts["start_method"] = start_method
    found = finding(session, SHARED_HANDLE)
    assert (found is not None) is is_explained
    assert found is None or found.text in said(diagnose(session))


def test_columns_that_no_batch_holds_are_left_out() -> None:
    found = helping(described(ROWS), UNUSED)
    assert "select_columns(['action'])" in found.hint
    assert found.why.endswith(": left, right.")


@pytest.mark.parametrize("batch", ["float32[4,3,64,64]", "uint8[4,64,64]", "float32[4,2,3,64,64]"])
def test_columns_whose_pixels_a_batch_holds_are_not(batch: str) -> None:
    assert finding(described(ROWS, batch=batch), UNUSED) is None
    assert not is_listed(described(ROWS, batch=batch), UNUSED)
    assert not is_listed(described({}), UNUSED)


@pytest.mark.parametrize(("share", "before_s", "is_named"), [(0.7, 20, True), (0.3, 20, False), (0.9, 3, False)])
def test_a_long_start_is_named_by_its_line(share: float, before_s: int, is_named: bool) -> None:
    session = made()
    trainer = session.trainers[0]
    trainer.passes[0].start += before_s * 10**6
    trainer.before = [SourceLine("/home/ada/train.py:7:D.__init__", round(share * before_s * 1e6))]
    found = finding(session, SLOW_START)
    assert (found is not None) is is_named
    if found is not None:
        assert quantities(found.text) == ["20.0 s", "70 %", "7"]
