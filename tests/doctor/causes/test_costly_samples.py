"""Samples that cost more than they need: padding, and decoding too large, for nothing, early or from shared handles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from machine_findings import quantities
from made_prescriptions import helping, is_listed, made, with_batches
from made_sessions import MadeRun, read, simulate, write_evidence, write_settings
from observed_runs import measured, python
from report_pages import said

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.decoding import UNUSED, ScriptView, script_view
from headrace.doctor.causes.loop_work import SLOW_START
from headrace.doctor.causes.processes import SHARED_HANDLE
from headrace.doctor.measure import Diagnosis, Finding, main_view_of
from headrace.doctor.session.after_run import LookedImage
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import SourceLine

RUN = MadeRun(forward=6_000, backward=12_000, stages={"getitem:x": 1_000})
"""The model takes nearly all of a step."""


def examined(folder: Path, *padding: tuple[int, int, int, int], pass_: int = 0) -> Diagnosis:
    """`padding`: rows, width, filled and longest of the batches that were looked at."""
    write_settings(folder)
    for name, records in simulate(RUN).items():
        looks = [["padding", pass_, 8 * place, *counts] for place, counts in enumerate(padding)]
        write_evidence(folder, name, [*records, *(looks if name.split("-")[1] == str(RUN.pid) else [])])
    return diagnose(read(folder))


def padding(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.code == "padding"]


def test_padding_to_a_maximum_costs_what_shorter_batches_would_save(tmp_path: Path) -> None:
    diagnosis = examined(tmp_path, (8, 512, 800, 200), (8, 512, 1_000, 312))
    (finding,) = padding(diagnosis)
    assert quantities(finding.text) == ["78 %", "512", "256"]
    assert quantities(finding.evidence)[:2] == ["50 %", "2"]
    model = sum(part.us for part in diagnosis.budgets[0].parts if part.name in ("forward", "backward"))
    assert finding.weight == pytest.approx(0.5 * model / diagnosis.budgets[0].mean_us)
    assert finding is diagnosis.findings[0]
    assert said(diagnosis).startswith("Not input-bound")
    assert said(diagnosis).endswith(finding.text)


def test_padding_to_the_batchs_longest_is_worth_a_word_where_it_is_much(tmp_path: Path) -> None:
    (finding,) = padding(examined(tmp_path, (8, 512, 2_048, 512)))
    assert quantities(finding.text)[:1] == ["50 %"]
    assert finding.weight == 0
    assert "about one length" in finding.advice


def test_little_padding_is_not_spoken_of(tmp_path: Path) -> None:
    assert padding(examined(tmp_path, (8, 512, 4_000, 500))) == []


def test_batches_that_no_step_waited_for_say_nothing(tmp_path: Path) -> None:
    assert padding(examined(tmp_path, (8, 512, 800, 200), pass_=7)) == []


BATCH = ("float32[64,3,224,224] int64[64]", 64 * 3 * 224 * 224 * 4)
IMAGENET = {"decode:Pillow load": 8_000, "transform:RandomResizedCrop": 3_000}
IMAGENET |= {"transform:ToTensor": 2_000, "transform:Normalize": 2_000}


def view_of(session: Session) -> ScriptView | None:
    trainer = main_view_of(session)
    assert trainer is not None
    return script_view(session, trainer)


@pytest.mark.parametrize(
    ("looked", "code"),
    [
        (
            LookedImage(["hr.RandomResizedCrop(192, scale=(0.5, 1.0))"], "float32", "hr.IMAGENET", "bicubic"),
            'view=headrace.RandomResizedCrop(192, scale=(0.5, 1.0)), dtype="float32", normalize=headrace.IMAGENET, '
            'filter="bicubic"',
        ),
        (
            LookedImage(["hr.Resize(256)", "hr.CenterCrop(224)"], "float32", "hr.IMAGENET", is_augmented=True),
            "view=[headrace.Resize(256), headrace.CenterCrop(224)]",
        ),
    ],
    ids=["float32", "colours drawn"],
)
def test_the_view_is_what_was_looked_at(looked: LookedImage, code: str) -> None:
    session = with_batches(made(MadeRun(stages=IMAGENET)), *BATCH)
    session.looked_image = looked
    view = view_of(session)
    assert view is not None
    assert (view.code, view.image.filter) == (f"headrace.ImageReader({code}, exif=False)", looked.filter)


def test_without_a_look_the_whole_image_is_decoded() -> None:
    view = view_of(with_batches(made(MadeRun(stages={"decode:cv2.imdecode": 1_000})), *BATCH))
    assert view == ScriptView("OpenCV")


def test_it_replaces_what_the_view_does() -> None:
    session = with_batches(made(MadeRun(stages=IMAGENET)), *BATCH)
    session.looked_image = LookedImage(["hr.RandomResizedCrop(224)"], "float32", "hr.IMAGENET")
    found = helping(session, "image-reader")
    assert re.findall("Pillow|RandomResizedCrop|Normalize", found.title) == ["Pillow", "RandomResizedCrop", "Normalize"]
    assert quantities(found.why)[1] == "100 %"
    assert quantities(found.why)[-2:] == ["20 %", "80 %"]
    assert found.confidence == "low"
    assert found.prediction is not None
    assert found.prediction.speedup > 1.2


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
def test_wrong_bytes_of_forks_are_fine(handles: list[str], error: str, start_method: str, is_explained: bool) -> None:
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
