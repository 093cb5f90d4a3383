"""ImageReader as a remedy: the script's view by its stages, timed both ways, and what it replaces."""

from __future__ import annotations

import io
import re
from functools import partial

import numpy as np
import pytest
from machine_findings import quantities
from made_prescriptions import helping, made, with_batches, with_survey
from made_sessions import MadeRun
from PIL import Image

from headrace.doctor.adoption.image_reader import ScriptView, script_view, timed_views
from headrace.doctor.measure import main_view_of
from headrace.doctor.session.after_run import Calibration, LookedImage, MachineSurvey
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


def jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (60, 80, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((400, 300)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "steps",
    [
        ("hr.RandomResizedCrop((64, 48), scale=(0.5, 1.0), flip=0.5)",),
        ("hr.Resize(64)", "hr.CenterCrop(48)", "hr.RandomHorizontalFlip()"),
        ("hr.Resize((64, 48))", "hr.RandomCrop(32)"),
        (),
    ],
    ids=["a random crop", "the middle", "two steps", "whole"],
)
def test_images_are_timed_both_ways(steps: tuple[str, ...]) -> None:
    view = ScriptView("Pillow", steps, "float32", "hr.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))", "bicubic")
    data = {"a.jpg": jpeg(1), "b.jpg": b"none", "c.jpg": jpeg(2)}
    found = timed_views(view, [(name, partial(bytes, one)) for name, one in data.items()], lambda: True)
    assert found is not None
    assert (found.remedy, found.unit, found.files) == ("image-reader", "image", ["a.jpg", "c.jpg"])
    assert found.view == view.code
    assert all(us > 0 for us in [*found.present_us, *found.other_us])
    assert timed_views(view, [("a.jpg", lambda: jpeg(1))], lambda: False) is None


def test_it_replaces_what_the_view_does() -> None:
    survey = MachineSurvey(calibrations=[Calibration("image-reader", "image", ["a"] * 4, [4e3] * 4, [1e3] * 4)])
    session = with_survey(with_batches(made(MadeRun(stages=IMAGENET)), *BATCH), survey)
    session.looked_image = LookedImage(["hr.RandomResizedCrop(224)"], "float32", "hr.IMAGENET")
    found = helping(session, "image-reader")
    assert re.findall("Pillow|RandomResizedCrop|Normalize", found.title) == ["Pillow", "RandomResizedCrop", "Normalize"]
    assert quantities(found.why)[1] == "100 %"
    assert quantities(found.why)[-2:] == ["4", "25 %"]
    assert found.confidence == "medium"
    assert found.prediction is not None
    assert found.prediction.speedup > 1.5


def test_only_names_of_headrace_are_taken_from_a_sessions_text() -> None:
    for step in ("hr.__import__('os')", "print(1)", "hr.Resize(open('x'))", "hr.errors"):
        with pytest.raises(ValueError, match=r"of headrace's|malformed"):
            timed_views(ScriptView("Pillow", (step,)), [], lambda: True)
