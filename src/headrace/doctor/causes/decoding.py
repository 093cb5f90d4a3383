"""Decoding, and caching what is the same each time a sample is made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from headrace.doctor.causes.case import (
    LOW,
    MEDIUM,
    WORTH,
    Case,
    Proposal,
    name_of,
    scaled,
    share_of,
    tried,
    with_factor,
    would_not,
)
from headrace.doctor.causes.remedy import factor
from headrace.doctor.causes.stage_names import named
from headrace.doctor.causes.transfers import IMAGE_DTYPE, LEAF, Leaf
from headrace.doctor.measure.batches import LookedStages
from headrace.doctor.measure.diagnosis import StagePart
from headrace.doctor.quantities import counted, number, percent, size, time

# -- from doctor/remedies/cut.py: How far the making of a sample is the same each time: what may be cached, and from
# where on it must be done anew.


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
class CacheCut:
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


def cut_of(case: Case) -> CacheCut:
    seen = SeenSamples([look for finder in case.finders for look in finder.looks()])
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
    return CacheCut(before, after, _why(seen, after), is_fixed=not seen.loads_others)


class SeenSamples:
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


def _why(seen: SeenSamples, after: StagePart | None) -> str:
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


def _in_order(case: Case, seen: SeenSamples) -> Sequence[StagePart]:
    """Sort stages as those of looked-at samples ended, then as those of this loader's batches did."""
    order = dict(seen.order)
    for finder in case.finders:
        for maker, row in finder.batches():
            for stage, *_ in maker.batches.stages[row]:
                order.setdefault(maker.stages[stage], len(order))
    return sorted(case.making.stages, key=lambda stage: order.get(name_of(stage), len(order)))


# -- from doctor/remedies/native_decode.py: Headrace's decoder in place of Pillow's.


NATIVE_DECODE = "native-decode"
ASSUMED = (0.3, 1.0)
KEY = "native_decode"
"""In `changes`."""


def native_decode(case: Case) -> Iterator[Proposal]:
    title = "Headrace's decoder in place of Pillow's"
    decoding, by_pillow = case.stages("decode"), case.stages("decode", label="Pillow")
    if not decoding:
        yield would_not(NATIVE_DECODE, title, "Nothing is decoded while batches are made.")
        return
    share = share_of(by_pillow)
    if share < WORTH:
        heaviest = decoding[0]
        said = f"Pillow's decoding is {percent(share)} of making a batch"
        other = "" if heaviest in by_pillow else f"; the rest is {named(name_of(heaviest))}"
        yield would_not(NATIVE_DECODE, title, f"{said}{other}.")
        return
    left = factor(case.calibrations, NATIVE_DECODE, "image", assumed=ASSUMED)
    yield tried(
        case,
        with_factor(case, left, scaled(by_pillow)),
        code=NATIVE_DECODE,
        title=title,
        why=f"Pillow decodes for {time(sum(one.wall_us for one in by_pillow))} a sample, {percent(share)} of making a "
        f"batch. {left.basis}",
        confidence=MEDIUM if left.is_measured else LOW,
        change=scaled(by_pillow)(left.usual),
        costs=["resized pixels differ from Pillow's by one level of 255 at most"],
        hint="headrace.decode_image(path, view=headrace.Resize(…)), which decodes only the window that is used, in "
        "place of Image.open(path).convert(…).resize(…)",
        changes={KEY: True} if _can_be_injected(case) else None,
    )


def _can_be_injected(case: Case) -> bool:
    """Pillow's own methods are answered for where that gives the same pixels: a whole PNG, or a bilinear resize of an
    image that was not decoded yet. Samples of this loader show whether there is any."""
    return any(KEY in look.sample.takes for finder in case.finders for look in finder.looks())


# -- from doctor/remedies/cache.py: A cache of what is the same each time a sample is made.


CACHE = "cache"
PILLOW = 4 / 3
"""Bytes of an RGB image as Pillow holds it, by those of its array: four a pixel."""


def cache(case: Case) -> Iterator[Proposal]:
    cut = cut_of(case)
    title = f"samples kept as they are after {cut.last}"
    share = share_of(cut.before)
    if not cut.is_fixed:
        yield would_not(CACHE, title, "What is read for a sample was something else when the sample was made again.")
        return
    if share < WORTH:
        yield would_not(CACHE, title, f"What is the same each time is {percent(share)} of making a batch. {_from(cut)}")
        return
    each, samples, free = sample_bytes(case, cut), _samples(case), _free_bytes(case)
    room = _why_no_room(each, samples, free)
    if room:
        yield would_not(CACHE, title, f"{room} {_from(cut)}")
        return
    assert each is not None
    assert samples is not None
    whole = each * samples
    yield tried(
        case,
        case.predict(scaled(cut.before)(0.0)),
        code=CACHE,
        title=title,
        why=f"{percent(share)} of making a batch gives the same each time. {_from(cut)} Once all samples are cached, "
        "from the second epoch on, only the rest is done.",
        confidence=MEDIUM,
        change=scaled(cut.before)(0.0),
        costs=_costs(case, whole, each, samples, free),
        hint="headrace.cached(dataset, load=…, augment=…, cache='ram:…') keeps what load= gives, once for all workers: "
        f"load= is all up to {cut.last}{'' if _is_normalised(cut) else ', with images as bytes'}, and augment= the "
        "rest. Or keep the arrays by index yourself: in one memory map (numpy.memmap), or written once to files",
        changes=_changes(case, cut, whole),
    )


def sample_bytes(case: Case, cut: CacheCut) -> float | None:
    """Of one sample where it would be kept: of the images that were decoded once more after the run; else as it is in
    a batch, images as bytes unless they were normalised, which bytes cannot hold."""
    decoded = [bytes_ for one in case.calibrations if one.remedy == NATIVE_DECODE for bytes_ in one.pixel_bytes]
    if decoded and not cut.transforms:
        return fmean(decoded)
    leaves = [Leaf(dtype, _sizes(sizes)) for dtype, sizes in LEAF.findall(case.shapes[0] if case.shapes else "")]
    as_bytes = not _is_normalised(cut)
    in_batch = sum(one.smaller_bytes if as_bytes and one.smaller == IMAGE_DTYPE else one.bytes for one in leaves)
    return in_batch / case.samples_a_batch if in_batch and case.samples_a_batch else None


def _is_normalised(cut: CacheCut) -> bool:
    return any("normalize" in one.label.lower() for one in cut.transforms)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",") if one)


def _samples(case: Case) -> int | None:
    """Of the dataset, as far as the loader has a length."""
    length = case.facts.get("length")
    if not isinstance(length, int) or case.samples_a_batch is None:
        return None
    return math.ceil(length * case.samples_a_batch)


def _free_bytes(case: Case) -> float | None:
    return None if case.host is None else min(case.host.known("memory_available_bytes"), default=None)


def _why_no_room(each: float | None, samples: int | None, free: float | None) -> str:
    if each is None:
        return "The size of a sample is not known: no tensor was seen in the batches."
    if samples is None:
        return f"The dataset has no length; each sample would take {size(each)}."
    if free is None:
        return f"It would take {size(each * samples)}, and the memory that is free was not measured."
    if each * samples > free:
        whole = f"{number(samples)} samples of {size(each)} are {size(each * samples)}"
        return f"{whole}, and {size(free)} of memory are free."
    return ""


def _costs(case: Case, whole: float, each: float, samples: int, free: float | None) -> list[str]:
    costs = [f"{size(whole)} for {number(samples)} samples of {size(each)}, of {size(free or 0)} that are free"]
    if case.workers > 1:
        copies = whole * case.workers
        costs.append(f"{size(copies)} where each of {counted(case.workers, 'worker')} keeps its own, and shuffles")
    return costs


def _changes(case: Case, cut: CacheCut, whole: float) -> dict[str, Any] | None:
    """Injection keeps what `load` of an image gives, in each process for itself: what is predicted comes of that where
    samples come again in the run, and to the process that had them before."""
    is_one = case.workers == 0 or (case.workers == 1 and case.facts.get("persistent_workers") is True)
    decodes = any("Pillow" in one.label for one in cut.before if one.category == "decode")
    if cut.transforms or case.making.passes < 2 or not is_one or not decodes:
        return None
    return {"cache": {"bytes": math.ceil(PILLOW * whole)}}


def _from(cut: CacheCut) -> str:
    if cut.random_from is None:
        return cut.why
    return f"{cut.why} Caching may start no later than {cut.last}."
