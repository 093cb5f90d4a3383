"""Decoding of images."""

from __future__ import annotations

from headrace.doctor.adoption import ScriptView, script_view
from headrace.doctor.causes.case import WORTH, Case, sample_us, share_of
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind
from headrace.doctor.causes.remedy import FEW_LINES
from headrace.doctor.quantities import duration, percent
from headrace.doctor.simulate import factor, scaled

ASSUMED = (0.3, 1.0)


def image_reader(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose `ImageReader` or `decode_image`, which produce the script's view of an image in one call."""
    view = script_view(case.session, case.view)
    if view is None:
        return None
    decoding = [one for one in case.stages("decode") if view.library in one.label or "cv2" in one.label]
    replaced = [*decoding, *(one for one in case.stages("transform") if one.label in view.replaces)]
    share = share_of(replaced)
    kind = kind.titled(f"ImageReader in place of {view.library}'s decoding{_and_view(view)}")
    if share < WORTH:
        return None
    left = factor(case.calibrations, kind.code, "image", assumed=ASSUMED)
    timed = next((one.view for one in case.calibrations if one.remedy == kind.code), "") or view.code
    return kind.leaving(
        case,
        left,
        scaled(replaced),
        why=f"{view.library} and what follows it take {duration(sample_us(replaced))} a sample, {percent(share)} of "
        f"making a batch; ImageReader decodes only what the window shows.",
        costs=["the lines of the dataset that decode", _difference(view)],
        hint=f"in the dataset's __init__: self.read = {timed}; in __getitem__: self.read(path), or the bytes. "
        "headrace.decode_image does the same in one call",
    )


def _difference(view: ScriptView) -> str:
    """Describe the pixel difference: without the script's filter, a reader uses Pillow's BILINEAR triangle filter."""
    if view.reader_filter is not None or not view.window:
        return "pixels that differ by rounding"
    return f"pixels of a bilinear filter in place of {view.filter}"


def _and_view(view: ScriptView) -> str:
    """Name the parts that follow decoding."""
    parts = [*([view.window] if view.window else []), *(["Normalize"] if view.normalize else [])]
    return "" if not parts else f", {' and '.join(parts)}"


CAUSE = Cause(
    remedies=[
        RemedyKind(
            "image-reader",
            "ImageReader in place of decoding and what follows it",
            "Use `ImageReader` or `decode_image` with the script's own view, in place of Pillow's or OpenCV's decoding "
            "and what follows it",
            FEW_LINES,
            image_reader,
        ),
    ]
)
