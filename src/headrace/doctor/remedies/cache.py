"""A cache of what is the same each time a sample is made."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from headrace.doctor.causes.case import WORTH, Case
from headrace.doctor.causes.decoding import Cut, cut_of
from headrace.doctor.causes.transfers import IMAGE_DTYPE, LEAF, Leaf
from headrace.doctor.quantities import counted, number, percent, size
from headrace.doctor.remedies.native_decode import CODE as NATIVE_DECODE
from headrace.doctor.remedies.proposal import MEDIUM, Proposal, tried, would_not
from headrace.doctor.remedies.stages import scaled, share_of

CODE = "cache"
PILLOW = 4 / 3
"""Bytes of an RGB image as Pillow holds it, by those of its array: four a pixel."""


def cache(case: Case) -> Iterator[Proposal]:
    cut = cut_of(case)
    title = f"samples kept as they are after {cut.last}"
    share = share_of(cut.before)
    if not cut.is_fixed:
        yield would_not(CODE, title, "What is read for a sample was something else when the sample was made again.")
        return
    if share < WORTH:
        yield would_not(CODE, title, f"What is the same each time is {percent(share)} of making a batch. {_from(cut)}")
        return
    each, samples, free = sample_bytes(case, cut), _samples(case), _free_bytes(case)
    room = _why_no_room(each, samples, free)
    if room:
        yield would_not(CODE, title, f"{room} {_from(cut)}")
        return
    assert each is not None
    assert samples is not None
    whole = each * samples
    yield tried(
        case,
        case.predict(scaled(cut.before)(0.0)),
        code=CODE,
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


def sample_bytes(case: Case, cut: Cut) -> float | None:
    """Of one sample where it would be kept: of the images that were decoded once more after the run; else as it is in
    a batch, images as bytes unless they were normalised, which bytes cannot hold."""
    decoded = [bytes_ for one in case.calibrations if one.remedy == NATIVE_DECODE for bytes_ in one.pixel_bytes]
    if decoded and not cut.transforms:
        return fmean(decoded)
    leaves = [Leaf(dtype, _sizes(sizes)) for dtype, sizes in LEAF.findall(case.shapes[0] if case.shapes else "")]
    as_bytes = not _is_normalised(cut)
    in_batch = sum(one.smaller_bytes if as_bytes and one.smaller == IMAGE_DTYPE else one.bytes for one in leaves)
    return in_batch / case.samples_a_batch if in_batch and case.samples_a_batch else None


def _is_normalised(cut: Cut) -> bool:
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


def _changes(case: Case, cut: Cut, whole: float) -> dict[str, Any] | None:
    """Injection keeps what `load` of an image gives, in each process for itself: what is predicted comes of that where
    samples come again in the run, and to the process that had them before."""
    is_one = case.workers == 0 or (case.workers == 1 and case.facts.get("persistent_workers") is True)
    decodes = any("Pillow" in one.label for one in cut.before if one.category == "decode")
    if cut.transforms or case.making.passes < 2 or not is_one or not decodes:
        return None
    return {"cache": {"bytes": math.ceil(PILLOW * whole)}}


def _from(cut: Cut) -> str:
    if cut.random_from is None:
        return cut.why
    return f"{cut.why} Caching may start no later than {cut.last}."
