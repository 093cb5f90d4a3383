"""Pinned batches, and batches that are on the device before the step asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.analyse.parts import COPY
from headrace.doctor.causes.case import WORTH, Case, Change
from headrace.doctor.edits.changes import Wanted
from headrace.doctor.predict.setup import Setup
from headrace.doctor.quantities import percent, size, time
from headrace.doctor.remedies.factor import Factor
from headrace.doctor.remedies.proposal import LOW, MEDIUM, Proposal, tried, with_factor, would_not
from headrace.doctor.remedies.workers import of_loaders

PIN, PREFETCH = "pin-memory", "device-prefetch"
LEFT = Factor(0.0, 0.5, 1.0, False, "How much of a copy runs beside the step was not measured: assumed is all to none.")


def pin_memory(case: Case) -> Iterator[Proposal]:
    title = "batches pinned by a thread"
    if case.facts.get("pin_memory") is True:
        yield would_not(PIN, title, "Already pinned (pin_memory=True).")
        return
    why_not = _why_not(case)
    if why_not:
        yield would_not(PIN, title, why_not)
        return
    yield tried(
        case,
        with_factor(case, LEFT, lambda left: pinned(case, left)),
        code=PIN,
        title=title,
        why=f"Copies to the GPU come from memory that is not pinned and take {_copies(case)}. {LEFT.basis}",
        confidence=LOW,
        change=pinned(case, LEFT.usual),
        costs=_pinned_bytes(case),
        wanted=Wanted({"pin_memory": "True"}),
        hint="DataLoader(…, pin_memory=True), and batch.to(device, non_blocking=True)",
        changes=of_loaders(case, pin_memory=True),
    )


def pinned(case: Case, left: float) -> Change:
    """Batches pinned by a thread, where so much is left of the copies' time in the step."""

    def change(setup: Setup) -> Setup:
        return replace(setup, pinned=True, off_step_us=max(setup.off_step_us, (1 - left) * _copy_us(case)))

    return change


def device_prefetch(case: Case) -> Iterator[Proposal]:
    title = "the next batch copied to the device on a side stream"
    why_not = _why_not(case)
    if why_not:
        yield would_not(PREFETCH, title, why_not)
        return

    def change(setup: Setup) -> Setup:
        return replace(setup, off_step_us=max(setup.off_step_us, _copy_us(case)))

    yield tried(
        case,
        case.predict(change),
        code=PREFETCH,
        title=title,
        why=f"Copies to the GPU take {_copies(case)}, and the step stands still meanwhile.",
        confidence=MEDIUM,
        change=change,
        costs=[*_pinned_bytes(case), *_device_bytes(case)],
        wanted=Wanted(prefetcher="cuda"),
        hint='for batch in headrace.DevicePrefetcher(loader, "cuda"): …; with normalize=headrace.IMAGENET images '
        "travel as bytes and become floats on the device",
        changes={"device_prefetch": True},
    )


def _why_not(case: Case) -> str:
    if not case.has_gpu:
        return "No GPU was used: nothing is copied to one."
    if _share(case) < WORTH:
        return f"Copies to the GPU take {_copies(case)}: that is all that it could gain."
    return ""


def _copy_us(case: Case) -> float:
    """Of one batch, in the training thread."""
    batches = 1.0 if case.recorded is None else case.recorded.batches_a_step
    return case.part_us(COPY) / max(batches, 1.0)


def _share(case: Case) -> float:
    return case.part_us(COPY) / case.step_us if case.step_us else 0.0


def _copies(case: Case) -> str:
    return f"{time(case.part_us(COPY))} ({percent(_share(case))}) of a step"


def _pinned_bytes(case: Case) -> list[str]:
    each = case.batch_bytes
    queued = 1 if case.recorded is None else case.workers * case.recorded.setup.prefetch
    return [] if each is None else [f"{size(each * max(queued, 1))} of pinned memory at most"]


def _device_bytes(case: Case) -> list[str]:
    return [] if case.batch_bytes is None else [f"{size(2 * case.batch_bytes)} of GPU memory for two batches ahead"]
