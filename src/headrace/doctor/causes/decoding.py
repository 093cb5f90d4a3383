"""Decoding, and caching of decoded images."""

from __future__ import annotations

import math
from statistics import fmean

from headrace.doctor.adoption import ScriptView, script_view
from headrace.doctor.causes.case import MEDIUM, WORTH, Case, sample_us, share_of
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind
from headrace.doctor.causes.remedy import CACHED_COPY, FEW_LINES
from headrace.doctor.quantities import counted, duration, number, percent, size
from headrace.doctor.session.trainers import order_described
from headrace.doctor.simulate import factor, scaled

ASSUMED = (0.3, 1.0)
WORTH_A_COPY = 1.2
"""Minimum speedup that justifies a cache's memory and the risk of a stale copy."""
LOADING = ("read", "remote", "lookup", "scan", "decode", "parse")
"""Categories of stages with a result that depends only on the file."""


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


def cache(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose a cache of decoded images."""
    loading = [one for one in case.making.stages if one.category in LOADING]
    share, samples, free = share_of(loading), dataset_samples(case), case.free_bytes
    decoded = next((one.pixel_bytes for one in case.calibrations if one.remedy == "cache"), [])
    if share < WORTH or samples is None or free is None or not decoded:
        return None
    each = fmean(decoded)
    if each * samples > free:
        return None
    prediction = case.predict(scaled(loading)(0.0))
    if prediction is None or prediction.speedup < WORTH_A_COPY:
        return None
    dataset = f"the whole dataset, {number(samples)} samples of {size(each)}"
    costs = [f"{size(each * samples)} for {dataset}, of {size(free)} free"]
    if case.workers > 1:
        copies = size(each * samples * case.workers)
        costs.append(f"{copies} where each of {counted(case.workers, 'worker')} has a cache of its own, and shuffles")
    return kind.tried(
        case,
        scaled(loading)(0.0),
        prediction=prediction,
        why=f"{percent(share)} of making a batch reads and decodes files. Once all samples are cached, from the second "
        "epoch on, only the rest is done.",
        confidence=MEDIUM,
        costs=costs,
        hint="headrace.cached(dataset, load=…, augment=…, cache='ram:…') caches what load= gives for all workers: "
        "load= is all up to decoding, and augment= the rest",
    )


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
        RemedyKind("cache", "decoded images cached", "Cache decoded images", CACHED_COPY, cache),
    ]
)
