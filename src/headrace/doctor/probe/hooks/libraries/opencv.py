"""OpenCV. Its functions use threads of their own, whose CPU time is not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...timed import Function, stand_in
from .paths import count_paths

if TYPE_CHECKING:
    from ...probe import Probe

DECODES = ["imdecode", "imdecodemulti", "imread", "imreadmulti"]
TRANSFORMS = [
    "GaussianBlur",
    "LUT",
    "addWeighted",
    "bilateralFilter",
    "blur",
    "convertScaleAbs",
    "copyMakeBorder",
    "cvtColor",
    "equalizeHist",
    "filter2D",
    "flip",
    "getRectSubPix",
    "medianBlur",
    "normalize",
    "pyrDown",
    "remap",
    "resize",
    "rotate",
    "transpose",
    "warpAffine",
    "warpPerspective",
    "warpPolar",
]


def install(probe: Probe, cv2: Any) -> None:
    """Its pool of threads counts once one of these was called: many import OpenCV and use none of it."""

    def marked(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            probe.used.add("cv2")
            return original(*args, **kwargs)

        return stand_in(original, call)

    for owner, name in [*((cv2, name) for name in (*DECODES, *TRANSFORMS)), (cv2.VideoCapture, "read")]:
        probe.patches.replace(owner, name, marked)
    for name in ("imread", "imreadmulti"):
        count_paths(probe, cv2, name, "filename")
    for name in DECODES:
        probe.time_calls(cv2, name, "decode", f"OpenCV {name}")
    for name in TRANSFORMS:
        probe.time_calls(cv2, name, "transform", f"OpenCV {name}")
    probe.time_calls(cv2.VideoCapture, "read", "decode", "OpenCV video")
