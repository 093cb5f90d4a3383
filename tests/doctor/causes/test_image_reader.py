"""ImageReader as a remedy: the script's view by its stages, and what it replaces."""

from __future__ import annotations

import re

import pytest
from machine_findings import quantities
from made_prescriptions import helping, made, with_batches
from made_sessions import MadeRun

from headrace.doctor.adoption.view_codes import evaluated
from headrace.doctor.causes.decoding import ScriptView, script_view
from headrace.doctor.measure import main_view_of
from headrace.doctor.session.after_run import LookedImage
from headrace.doctor.session.model import Session

BATCH = ("float32[64,3,224,224] int64[64]", 64 * 3 * 224 * 224 * 4)
IMAGENET = {
    "decode:Pillow load": 8_000,
    "transform:RandomResizedCrop": 3_000,
    "transform:ToTensor": 2_000,
    "transform:Normalize": 2_000,
}


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
    assert (view.code, view.filter) == (f"headrace.ImageReader({code}, exif=False)", looked.filter)


def test_without_a_look_the_whole_image_is_decoded() -> None:
    view = view_of(with_batches(made(MadeRun(stages={"decode:cv2.imdecode": 1_000})), *BATCH))
    assert view == ScriptView("OpenCV", ())


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


def test_only_names_of_headrace_are_taken_from_a_sessions_text() -> None:
    for step in ("hr.__import__('os')", "print(1)", "hr.Resize(open('x'))", "hr.errors"):
        with pytest.raises(ValueError, match=r"of headrace's|malformed"):
            evaluated(step)
