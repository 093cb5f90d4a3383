"""OpenCV. Its functions use threads of their own, whose CPU time is not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    for name in ("imread", "imreadmulti"):
        count_paths(probe, cv2, name, "filename")
    for name in DECODES:
        probe.time_calls(cv2, name, "decode", f"OpenCV {name}")
    for name in TRANSFORMS:
        probe.time_calls(cv2, name, "transform", f"OpenCV {name}")
    probe.time_calls(cv2.VideoCapture, "read", "decode", "OpenCV video")
