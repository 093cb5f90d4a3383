"""Decoding, and caching of the deterministic part of making a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..adoption import ScriptView, script_view
from ..measure import LookedStages, StagePart
from ..quantities import counted, duration, number, percent, size
from ..session.trainers import order_described
from .case import MEDIUM, WORTH, Case, name_of, sample_us, scaled, share_of
from .proposals import Proposal, RemedyKind
from .remedy import factor
from .transfers import IMAGE_DTYPE, leaves_of

ASSUMED = (0.3, 1.0)
WORTH_KEEPING = 0.1
"""Minimum share of the deterministic part for transforms to be cached along with the decoded image."""
WORTH_A_COPY = 1.2
"""Minimum speedup that justifies a cache's memory and the risk of a stale copy."""
LEAST_LOOKS = 4
"""Minimum number of samples made twice for a conclusion about the rest."""
LOADING = ("read", "remote", "lookup", "scan", "decode")
"""Categories of stages with a result that depends only on the file."""
BY_CLASS = {
    "CenterCrop", "ConvertImageDtype", "Grayscale", "LongestMaxSize", "Normalize", "PILToTensor", "Pad",
    "PadIfNeeded", "Resize", "SmallestMaxSize", "ToDtype", "ToFloat", "ToGray", "ToImage", "ToPILImage",
    "ToPureTensor", "ToTensor", "ToTensorV2",
}  # fmt: skip
"""Library transforms that draw no random numbers."""
BY_CALL = {
    "OpenCV convertScaleAbs", "OpenCV copyMakeBorder", "OpenCV cvtColor", "OpenCV normalize", "OpenCV resize",
    "Pillow convert", "Pillow crop", "Pillow quantize", "Pillow reduce", "Pillow resize", "Pillow thumbnail",
    "torchvision center_crop", "torchvision convert_image_dtype", "torchvision normalize", "torchvision pad",
    "torchvision pil_to_tensor", "torchvision resize", "torchvision rgb_to_grayscale", "torchvision to_dtype",
    "torchvision to_grayscale", "torchvision to_image", "torchvision to_pil_image", "torchvision to_tensor",
}  # fmt: skip
"""Calls that are deterministic given their arguments, by the names in docs/doctor/measuring.md. A script may pass
random arguments, so the calls count only if samples were made twice."""

RESIZING = ("affine", "crop", "pad", "perspective", "reduce", "resize", "rotate", "scale", "size", "thumbnail", "zoom")
"""Lowercase name parts of transforms that may change an image's size."""


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
    unread = f" {view.unread}" if view.unread else ""
    return kind.leaving(
        case,
        left,
        scaled(replaced),
        why=f"{view.library} and what follows it take {duration(sample_us(replaced))} a sample, {percent(share)} of "
        f"making a batch; ImageReader decodes only what the window shows.{unread}",
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


@dataclass(frozen=True)
class CacheCut:
    """End of the deterministic part of making a sample."""

    before: list[StagePart]
    """Deterministic stages in order, with transforms only if they are worth caching."""
    random_from: StagePart | None
    """First transform that may vary between calls; None if there is none."""
    why: str
    """Sentence about `random_from`, or about the whole sample."""
    is_fixed: bool = True
    """True if a sample is made of the same data each time; False if reading or decoding it again gave different
    data."""

    @property
    def transforms(self) -> list[StagePart]:
        return [one for one in self.before if one.category == "transform"]

    @property
    def is_normalised(self) -> bool:
        return any("normalize" in one.label.lower() for one in self.transforms)

    @property
    def last(self) -> str:
        """Name of the stage after which caching would start."""
        if self.transforms:
            return self.transforms[-1].label
        return "decoding" if any(one.category == "decode" for one in self.before) else "reading"

    @property
    def said(self) -> str:
        """Sentence about randomness, and about the last stage at which caching may start."""
        return self.why if self.random_from is None else f"{self.why} Caching may start no later than {self.last}."


def cut_of(case: Case) -> CacheCut:
    """Find the end of the deterministic part of a case's samples."""
    seen = SeenSamples([look for finder in case.finders for look in finder.looks()])
    order = dict(seen.order)  # stages in the order they ended: looked-at samples first, then this loader's batches
    for finder in case.finders:
        for maker, row in finder.batches():
            for stage, *_ in maker.batches.stages[row]:
                order.setdefault(maker.stages[stage], len(order))
    before, after = [], None
    for part in sorted(case.making.stages, key=lambda one: order.get(name_of(one), len(order))):
        if part.category in LOADING:
            before.append(part)
        elif part.category == "transform" and after is None:
            if seen.may_be_cached(part):
                before.append(part)
            else:
                after = part
    transforms = [one for one in before if one.category == "transform"]
    if share_of(transforms) < WORTH_KEEPING * share_of(before):
        before = [one for one in before if one.category != "transform"]
    return CacheCut(before, after, seen.why_random(after), is_fixed=not seen.loads_others)


class SeenSamples:
    """Evidence from the samples of a loader that were looked at closely.

    The sets hold names of transforms. `drew` holds transforms that drew random numbers, or that follow a stage that
    did. `differs` holds transforms with a different result when a sample was made again, or that follow such a stage.
    If samples were made twice, `differs` also holds transforms with results that could not be compared.
    """

    def __init__(self, looks: Sequence[LookedStages]) -> None:
        self.looks = looks
        same = [[look.sample.same, *(one.same for one in look.sample.stages)] for look in looks]
        self.twice = sum(any(one is not None for one in each) for each in same)
        """Samples that were made twice."""
        self.is_proof = self.twice >= LEAST_LOOKS
        self.order: dict[str, int] = {}
        """Order in which stages ended, by name."""
        self.loads_others = False
        """True if reading or decoding the same key again gave different data."""
        self.drew: set[str] = set()
        self.differs: set[str] = set()
        for look in looks:
            self._take(look)

    def _take(self, look: LookedStages) -> None:
        drew = differs = False
        for place, one in enumerate(look.sample.stages):
            name = look.label(place)
            self.order.setdefault(name, len(self.order))
            category = name.partition(":")[0]
            self.loads_others |= one.same is False and category in LOADING
            drew |= one.drew
            differs |= one.same is False or (one.same is None and self.is_proof and category == "transform")
            if category == "transform" and drew:
                self.drew.add(name)
            if category == "transform" and differs:
                self.differs.add(name)

    def may_be_cached(self, stage: StagePart) -> bool:
        """Return True if a stage is known to be deterministic. An unseen stage may apply to some samples only."""
        name = name_of(stage)
        if name not in self.order or name in self.drew or name in self.differs:
            return False
        return stage.label in BY_CLASS or (stage.label in BY_CALL and self.is_proof)

    def why_random(self, after: StagePart | None) -> str:
        """Describe the first transform that may be random, or whole samples if there is none."""
        if after is not None:
            name = name_of(after)
            if name in self.drew:
                return f"Augmentation is random from {after.label} on: random numbers are drawn in it or before it."
            if name in self.differs:
                what = "samples made again came out of it differently, or could not be compared"
            elif after.label in BY_CALL and not self.is_proof:
                what = "samples were not made twice, so it is unknown whether it gets the same input each time"
            else:
                what = "it is unknown whether it gives the same result each time"
            return f"Augmentation may be random from {after.label} on: {what}."
        if not self.is_proof:
            return "Samples were not made twice, so it is unknown which other stages are random."
        samples, whole = counted(self.twice, "sample"), [look.sample for look in self.looks]
        if not self.drew and all(not one.drew and one.same is True for one in whole):
            said = f"{samples}, made twice, came out the same, and drew no random numbers."
            return f"No random augmentation was seen: {said}"
        return (
            f"Of {samples}, made twice, some came out differently, or drew random numbers behind the last stage seen."
        )


def cache(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose a cache of the deterministic part of samples."""
    cut = cut_of(case)
    kind, share = kind.titled(f"samples cached after {cut.last}"), share_of(cut.before)
    samples, each, free = dataset_samples(case), sample_bytes(case, cut), case.free_bytes
    if not cut.is_fixed or share < WORTH or each is None or samples is None or free is None or each * samples > free:
        return None
    prediction = case.predict(scaled(cut.before)(0.0))
    if prediction is None or prediction.speedup < WORTH_A_COPY:
        return None
    whole = each * samples
    dataset = f"the whole dataset, {number(samples)} samples of {size(each)}"
    costs = [f"{size(whole)} for {dataset}, of {size(free)} free"]
    if case.workers > 1:
        copies = size(whole * case.workers)
        costs.append(f"{copies} where each of {counted(case.workers, 'worker')} has a cache of its own, and shuffles")
    return kind.tried(
        case,
        scaled(cut.before)(0.0),
        prediction=prediction,
        why=f"{percent(share)} of making a batch is deterministic. {cut.said} Once all samples are cached, from the "
        "second epoch on, only the rest is done.",
        confidence=MEDIUM,
        costs=costs,
        hint="headrace.cached(dataset, load=…, augment=…, cache='ram:…') caches what load= gives for all workers: "
        f"load= is all up to {cut.last}{'' if cut.is_normalised else ', with images as bytes'}, and augment= the rest. "
        "Or cache the arrays by index yourself: in one memory map (numpy.memmap), or written once to files",
    )


def sample_bytes(case: Case, cut: CacheCut) -> float | None:
    """Return the bytes of one sample at the point of caching; None if unknown.

    For images looked at again after the run, the decoded size is known, up to the first transform that resizes.
    Otherwise the size in a batch counts, with images as bytes unless they were normalised: bytes cannot hold those.
    """
    decoded = next((one.pixel_bytes for one in case.calibrations if one.remedy == "cache"), [])
    if decoded and not cut.is_normalised and not any(_resizes(one) for one in cut.transforms):
        return fmean(decoded)
    as_bytes = not cut.is_normalised
    leaves = [one.smaller if as_bytes and one.smaller.dtype == IMAGE_DTYPE else one for one in leaves_of(case)]
    in_batch = sum(one.bytes for one in leaves)
    return in_batch / case.samples_a_batch if in_batch and case.samples_a_batch else None


def _resizes(stage: StagePart) -> bool:
    return any(part in stage.label.lower() for part in RESIZING)


def dataset_samples(case: Case) -> int | None:
    """Return the number of samples in the dataset; None if the loader has no length, as for most streams.

    This is the dataset's own length if the loader's length agrees to within a batch on each rank, and otherwise the
    samples that the loader yields on all ranks.
    """
    length, a_batch, told = case.facts.get("length"), case.samples_a_batch, case.facts.get("samples")
    if not isinstance(length, int) or a_batch is None:
        return None
    a_step = a_batch * _shares(case)
    if isinstance(told, int) and abs(told - length * a_step) <= a_step:  # else a sampler draws a subset
        return told
    return math.ceil(length * a_step)


def _shares(case: Case) -> int:
    """Return the number of shares a DistributedSampler divides the dataset into; 1 for other samplers."""
    sampler = order_described(case.facts.get("described") or {})
    if "DistributedSampler" not in str(sampler.get("class")):
        return 1
    replicas = (sampler.get("attributes") or {}).get("num_replicas")
    return replicas if isinstance(replicas, int) else 1
