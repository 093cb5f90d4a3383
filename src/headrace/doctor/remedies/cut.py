"""How far the making of a sample is the same each time: what may be kept, and from where on it must be done anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..analyse.diagnosis import StagePart
from .case import Case
from .stages import name_of, share_of

WORTH_KEEPING = 0.1
"""Share of what is the same each time from which transforms are kept, too, and not only the decoded image."""
LOADING = ("read", "lookup", "scan", "decode")
"""Categories whose result is that of the file."""
KEPT = {
    "CenterCrop", "ConvertImageDtype", "Grayscale", "LongestMaxSize", "Normalize", "PILToTensor", "Pad",
    "PadIfNeeded", "Pillow convert", "Pillow resize", "Pillow thumbnail", "Resize", "SmallestMaxSize", "ToDtype",
    "ToFloat", "ToGray", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor", "ToTensorV2", "cv2.cvtColor",
    "cv2.resize", "torchvision center_crop", "torchvision normalize", "torchvision pil_to_tensor",
    "torchvision resize", "torchvision to_dtype", "torchvision to_image", "torchvision to_tensor",
}  # fmt: skip
"""Transforms that give the same for the same input, as they are mostly used."""


@dataclass(frozen=True)
class Cut:
    before: list[StagePart]
    """What is the same each time, in order; transforms among it only where they are worth keeping."""
    random_from: StagePart | None
    """The first transform that may draw at random; None where none does."""

    @property
    def transforms(self) -> list[StagePart]:
        return [one for one in self.before if one.category == "transform"]

    @property
    def last(self) -> str:
        """Where caching would start, in words."""
        if self.transforms:
            return self.transforms[-1].label
        return "decoding" if any(one.category == "decode" for one in self.before) else "reading"


def cut_of(case: Case) -> Cut:
    before, after = [], None
    for stage in _in_order(case):
        if stage.category in LOADING:
            before.append(stage)
        elif stage.category == "transform" and after is None:
            if stage.label in KEPT:
                before.append(stage)
            else:
                after = stage
    transforms = [one for one in before if one.category == "transform"]
    if share_of(transforms) < WORTH_KEEPING * share_of(before):
        before = [one for one in before if one.category != "transform"]
    return Cut(before, after)


def _in_order(case: Case) -> Sequence[StagePart]:
    """As the stages of a batch first ended; those that no batch has come last."""
    order: dict[str, int] = {}
    for maker in case.session.makers:
        if maker.trainer == case.view.trainer.pid:
            for row in maker.batches.stages:
                for number, *_ in row:
                    order.setdefault(maker.stages[number], len(order))
    return sorted(case.making.stages, key=lambda stage: order.get(name_of(stage), len(order)))
