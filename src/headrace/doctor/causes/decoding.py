"""How far the making of a sample is the same each time: what may be cached, and from where on it must be done anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.doctor.analyse.join import LookedStages
from headrace.doctor.causes.case import Case
from headrace.doctor.measure.diagnosis import StagePart
from headrace.doctor.quantities import counted
from headrace.doctor.remedies.stages import name_of, share_of

WORTH_KEEPING = 0.1
"""Share of what is the same each time from which transforms are cached, too, and not only the decoded image."""
LEAST_LOOKS = 4
"""Samples that were made twice, below which nothing is known of the rest."""
LOADING = ("read", "lookup", "scan", "decode")
"""Categories whose result is that of the file."""
BY_CLASS = {
    "CenterCrop", "ConvertImageDtype", "Grayscale", "LongestMaxSize", "Normalize", "PILToTensor", "Pad",
    "PadIfNeeded", "Resize", "SmallestMaxSize", "ToDtype", "ToFloat", "ToGray", "ToImage", "ToPILImage",
    "ToPureTensor", "ToTensor", "ToTensorV2",
}  # fmt: skip
"""Transforms of libraries that draw nothing by themselves."""
BY_CALL = {
    "OpenCV convertScaleAbs", "OpenCV copyMakeBorder", "OpenCV cvtColor", "OpenCV normalize", "OpenCV resize",
    "Pillow convert", "Pillow crop", "Pillow quantize", "Pillow reduce", "Pillow resize", "Pillow thumbnail",
    "torchvision center_crop", "torchvision convert_image_dtype", "torchvision normalize", "torchvision pad",
    "torchvision pil_to_tensor", "torchvision resize", "torchvision rgb_to_grayscale", "torchvision to_dtype",
    "torchvision to_grayscale", "torchvision to_image", "torchvision to_pil_image", "torchvision to_tensor",
}  # fmt: skip
"""Calls that do as they are told, by the names of docs/doctor/stages.md: a script of its own may tell them something
else each time, so that they count only where samples were made twice."""


@dataclass(frozen=True)
class Cut:
    before: list[StagePart]
    """What is the same each time, in order; transforms among it only where they are worth caching."""
    random_from: StagePart | None
    """The first transform that is not known to give the same each time; None where there is none."""
    why: str
    """What is known of it, or of the whole sample: a sentence."""
    is_fixed: bool = True
    """Whether a sample is made of the same data each time: not where reading or decoding gave others when it was made
    again."""

    @property
    def transforms(self) -> list[StagePart]:
        return [one for one in self.before if one.category == "transform"]

    @property
    def last(self) -> str:
        """Name where caching would start."""
        if self.transforms:
            return self.transforms[-1].label
        return "decoding" if any(one.category == "decode" for one in self.before) else "reading"


def cut_of(case: Case) -> Cut:
    seen = Seen([look for finder in case.finders for look in finder.looks()])
    before, after = [], None
    for stage in _in_order(case, seen):
        if stage.category in LOADING:
            before.append(stage)
        elif stage.category == "transform" and after is None:
            if seen.may_be_cached(stage):
                before.append(stage)
            else:
                after = stage
    transforms = [one for one in before if one.category == "transform"]
    if share_of(transforms) < WORTH_KEEPING * share_of(before):
        before = [one for one in before if one.category != "transform"]
    return Cut(before, after, _why(seen, after), is_fixed=not seen.loads_others)


class Seen:
    """What samples of the loader show that were looked at closely."""

    def __init__(self, looks: Sequence[LookedStages]) -> None:
        self.looks = looks
        self.twice = sum(any(one.same is not None for one in look.sample.stages) or look.sample.same is not None
                         for look in looks)  # fmt: skip
        """How many were made twice."""

    @property
    def is_proof(self) -> bool:
        return self.twice >= LEAST_LOOKS

    @cached_property
    def order(self) -> dict[str, int]:
        """Give the places of stages, by name, as they ended."""
        names = dict.fromkeys(look.label(place) for look in self.looks for place in range(len(look.sample.stages)))
        return {name: place for place, name in enumerate(names)}

    @cached_property
    def loads_others(self) -> bool:
        """Tell whether reading or decoding for the same key gave something else."""
        return any(
            one.same is False and look.label(place).partition(":")[0] in LOADING
            for look in self.looks
            for place, one in enumerate(look.sample.stages)
        )

    @cached_property
    def drew(self) -> set[str]:
        """Return transforms that drew random numbers, or that come after something that did."""
        return {name for look in self.looks for name in _behind_draws(look)}

    @cached_property
    def differs(self) -> set[str]:
        """Return transforms that gave something else when a sample was made again, or come after one that did; where
        they were made twice also those of which that could not be told."""
        return {name for look in self.looks for name in _behind_differences(look, self.is_proof)}

    @property
    def is_same(self) -> bool:
        """Tell whether whole samples were the same each time, and drew nothing."""
        whole = [look.sample for look in self.looks]
        return self.is_proof and not self.drew and all(not one.drew and one.same is True for one in whole)

    def may_be_cached(self, stage: StagePart) -> bool:
        """Refuse also what no look saw: only some samples may go through it."""
        name = name_of(stage)
        if name not in self.order or name in self.drew or name in self.differs:
            return False
        return stage.label in BY_CLASS or (stage.label in BY_CALL and self.is_proof)


def _behind_draws(look: LookedStages) -> Iterator[str]:
    drew = False
    for place, one in enumerate(look.sample.stages):
        drew |= one.drew
        if drew and look.label(place).startswith("transform:"):
            yield look.label(place)


def _behind_differences(look: LookedStages, is_proof: bool) -> Iterator[str]:
    differs = False
    for place, one in enumerate(look.sample.stages):
        is_transform = look.label(place).startswith("transform:")
        differs |= one.same is False or (one.same is None and is_proof and is_transform)
        if differs and is_transform:
            yield look.label(place)


def _why(seen: Seen, after: StagePart | None) -> str:
    samples = counted(seen.twice, "sample")
    if after is not None:
        name = name_of(after)
        if name in seen.drew:
            return f"Augmentation is random from here on ({after.label}): random numbers are drawn in it or before it."
        if name in seen.differs:
            what = "samples that were made again came out of it otherwise, or nobody can tell"
        elif after.label in BY_CALL and not seen.is_proof:
            what = "samples were not made twice, so nobody knows whether it is given the same each time"
        else:
            what = "nobody knows whether it gives the same each time"
        return f"Augmentation may be random from here on ({after.label}): {what}."
    if seen.is_same:
        return f"No random augmentation was seen: {samples}, made twice, came out the same, and drew no random numbers."
    if seen.is_proof:
        return f"Of {samples}, made twice, some came out otherwise, or drew random numbers behind the last stage seen."
    return "Samples were not made twice, so nobody knows what of the rest is random."


def _in_order(case: Case, seen: Seen) -> Sequence[StagePart]:
    """Sort stages as those of looked-at samples ended, then as those of this loader's batches did."""
    order = dict(seen.order)
    for finder in case.finders:
        for maker, row in finder.batches():
            for number, *_ in maker.batches.stages[row]:
                order.setdefault(maker.stages[number], len(order))
    return sorted(case.making.stages, key=lambda stage: order.get(name_of(stage), len(order)))
