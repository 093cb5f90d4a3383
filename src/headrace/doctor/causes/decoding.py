"""Decoding of images, and of columns that no batch holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from headrace.doctor.causes.case import MEDIUM, WORTH, Case, sample_us, share_of
from headrace.doctor.causes.cause import LEADS, Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import FEW_LINES, ONE_LINE
from headrace.doctor.causes.stages import category
from headrace.doctor.measure import Finding, TrainerView, tensors_of
from headrace.doctor.quantities import duration, percent
from headrace.doctor.session.after_run import LookedImage
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import scaled, untimed

ASSUMED = (0.2, 0.8)
"""Share of the present time that the reader takes: of 24 photographs whole 7 to 62 %, of PNGs up to 63 %."""
PILLOW, OPENCV = "Pillow", "OpenCV"
GEOMETRY = {
    "CenterCrop", "HorizontalFlip", "OpenCV cvtColor", "OpenCV flip", "OpenCV resize", "Pillow convert", "Pillow crop",
    "Pillow resize", "Pillow transpose", "RandomCrop", "RandomHorizontalFlip", "RandomResizedCrop", "Resize",
    "torchvision center_crop", "torchvision hflip", "torchvision horizontal_flip", "torchvision resize",
    "torchvision resized_crop",
}  # fmt: skip
"""Transforms that a view covers, by the names of docs/doctor/internals.md."""
VALUES = {
    "ConvertImageDtype", "Normalize", "OpenCV normalize", "PILToTensor", "ToDtype", "ToImage", "ToTensor", "ToTensorV2",
    "torchvision convert_image_dtype", "torchvision normalize", "torchvision pil_to_tensor", "torchvision to_dtype",
    "torchvision to_image", "torchvision to_tensor",
}  # fmt: skip
"""Transforms that a dtype and `normalize=` cover."""
READER_FILTERS = {
    PILLOW: {"nearest": "nearest", "bilinear": "triangle", "bicubic": "bicubic", "lanczos": "lanczos"},
    OPENCV: {"bilinear": "linear"},
}
"""ImageReader's filters, by library and name of the script's filter."""


@dataclass(frozen=True)
class ScriptView:
    """View of an image in a script. A reader has no augmentations, so values after them are left out."""

    library: str
    """Library that decodes images: Pillow or OpenCV."""
    image: LookedImage = field(default_factory=LookedImage)
    """Recipe of an inspected sample; by default, the whole image."""
    replaces: frozenset[str] = frozenset()
    """Labels of the transforms that the view, the dtype and `normalize` cover."""

    @property
    def normalize(self) -> str:
        return "" if self.image.is_augmented else self.image.normalize

    @property
    def window(self) -> str:
        """Name of the first step that crops or resizes; empty for the whole image."""
        names = [step.removeprefix("hr.").partition("(")[0] for step in self.image.steps]
        return next((name for name in names if "Flip" not in name), "")

    @property
    def reader_filter(self) -> str | None:
        """ImageReader's name of the script's filter; None if it lacks the filter."""
        return READER_FILTERS[self.library].get(self.image.filter)

    @property
    def code(self) -> str:
        image, values = self.image, list[str]()
        steps = image.steps[0] if len(image.steps) == 1 else f"[{', '.join(image.steps)}]"
        if image.dtype != "uint8" and not image.is_augmented:
            values.append(f'dtype="{image.dtype}"')
        if self.normalize:
            values.append(f"normalize={self.normalize}")
        if self.window and self.reader_filter not in (None, "triangle"):
            values.append(f'filter="{self.reader_filter}"')
        if self.library != OPENCV:  # which turns images by their EXIF orientation
            values.append("exif=False")
        text = f"hr.ImageReader({', '.join([*([f'view={steps}'] if image.steps else []), *values])})"
        return text.replace("hr.", "headrace.")


def script_view(session: Session, view: TrainerView) -> ScriptView | None:
    """Return the view of the images in the loader that a training waits for; None if no image is decoded."""
    if not view.batch_production:
        return None
    stages = [(one.category, one.label) for one in view.batch_production[0].stages]
    decoders = [label for category, label in stages if category == "decode"]
    if any(PILLOW in label for label in decoders):
        library = PILLOW
    elif any(OPENCV in label or "cv2" in label for label in decoders):
        library = OPENCV
    else:
        return None
    image = session.looked_image
    if image is None:
        return ScriptView(library)
    covered = GEOMETRY if image.is_augmented else GEOMETRY | VALUES
    labels = (label for category, label in stages if category == "transform")
    return ScriptView(library, image, frozenset(covered.intersection(labels)))


def image_reader(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose `ImageReader` or `decode_image`, which produce the script's view of an image in one call."""
    view = script_view(case.session, case.view)
    if view is None:
        return None
    decoding = [one for one in case.stages("decode") if view.library in one.label or "cv2" in one.label]
    replaced = [*decoding, *(one for one in case.stages("transform") if one.label in view.replaces)]
    share = share_of(replaced)
    kind = replace(kind, title=f"ImageReader in place of {view.library}'s decoding{_and_view(view)}")
    if share < WORTH:
        return None
    return kind.leaving(
        case,
        untimed(*ASSUMED),
        scaled(replaced),
        why=f"{view.library} and what follows it take {duration(sample_us(replaced))} a sample, {percent(share)} of "
        f"making a batch; ImageReader decodes only what the window shows.",
        costs=["the lines of the dataset that decode", _difference(view)],
        hint=f"in the dataset's __init__: self.read = {view.code}; in __getitem__: self.read(path), or the bytes. "
        "headrace.decode_image does the same in one call",
    )


def _difference(view: ScriptView) -> str:
    """Describe the pixel difference: without the script's filter, a reader uses Pillow's BILINEAR triangle filter."""
    if view.reader_filter is not None or not view.window:
        return "pixels that differ by rounding"
    return f"pixels of a bilinear filter in place of {view.image.filter}"


def _and_view(view: ScriptView) -> str:
    """Name the parts that follow decoding."""
    parts = [*([view.window] if view.window else []), *(["Normalize"] if view.normalize else [])]
    return "" if not parts else f", {' and '.join(parts)}"


CAUSE = Cause(
    remedies=[
        RemedyKind("image-reader", "ImageReader in place of decoding and what follows it", FEW_LINES, image_reader)
    ]
)


UNUSED = "unused-decoding"
"""Code of the finding and of the remedy."""
PICTURE_DIMS = 3
"""Least dimensions of a batch's array that may hold pictures or sound."""


def unused_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find columns that are decoded for each sample of the loader that steps wait for, without pixels in a batch."""
    making = next(iter(view.awaited_production), None)
    loader = None if making is None else view.loader(making.loader)
    described = {} if loader is None else loader.facts.get("described") or {}
    sizes = [size for shape in view.trainer.shapes for _, size in tensors_of(shape)]
    # The last two dimensions may be those of a picture; smaller ones are vectors of a sequence.
    are_pixels = (len(size) == PICTURE_DIMS and min(size[1:]) >= 16 for size in sizes)
    if not sizes or any(are_pixels) or any(len(size) > PICTURE_DIMS for size in sizes):
        return
    decoded, plain = described.get("decoded"), described.get("plain")
    weight = sum(part.share for part in view.causes.parts if category(part.name) == "decode") * (view.wait_share or 0.0)
    if decoded and weight >= WORTH:
        those = f"dataset.select_columns({plain!r})" if plain else "select_columns"
        yield Finding(
            UNUSED,
            weight,
            f"Columns are decoded for each sample, though no array of a batch holds pixels: {', '.join(decoded)}.",
            f"columns of a Hugging Face dataset, which decodes them at each access; {percent(weight)} of each "
            f"{view.training.unit}",
            f"Leave them out by {those}, unless __getitem__ computes something of their pixels.",
        )


def select_columns(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to leave out the columns that a finding names."""
    found = case.finding(UNUSED)
    if found is None:
        return None
    without = scaled(case.stages("decode"))(0.0)
    return kind.tried(case, without, why=found.text, confidence=MEDIUM, hint=found.advice)


COLUMNS = Cause(
    findings={
        UNUSED: "Columns of a Hugging Face dataset are decoded for 2 % of a step or more, and no batch has pixels."
    },
    find=of_steps(unused_findings),
    order=LEADS,
    explains=(UNUSED,),
    remedies=[RemedyKind(UNUSED, "columns that are not used left out", ONE_LINE, select_columns)],
)
