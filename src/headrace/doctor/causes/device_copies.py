"""Copies of batches to the device: from memory that is not pinned, and within the step."""

from __future__ import annotations

from dataclasses import replace

from headrace.doctor.causes.case import MEDIUM, WORTH, Case
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind
from headrace.doctor.causes.remedy import ONE_LINE, SETTING
from headrace.doctor.edits import WantedEdit
from headrace.doctor.measure import COPY
from headrace.doctor.quantities import duration, percent, size
from headrace.doctor.simulate import Change, Factor

_UNSURE = "How much of a copy runs alongside the step was not measured: the prediction assumes all to none."
COPY_LEFT = Factor(0.0, 0.5, 1.0, False, _UNSURE)


def pin_memory(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to pin batches in a thread of the trainer."""
    if case.facts.get("pin_memory") is True or not _copies_much(case):
        return None
    return kind.leaving(
        case,
        COPY_LEFT,
        lambda left: pinned(case, left),
        why=f"Copies to the GPU come from memory that is not pinned and take {_copies(case)}.",
        costs=_pinned_bytes(case),
        arguments={"pin_memory": True},
    )


def pinned(case: Case, left: float) -> Change:
    """Return the change to batches pinned by a thread, with the given share of the copy time left in the step."""
    off_us = (1 - left) * _copy_us(case)
    return lambda setup: replace(setup, pinned=True, off_step_us=max(setup.off_step_us, off_us))


def device_prefetch(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to copy batches to the device before the step requests them."""
    if not _copies_much(case):
        return None
    ahead = [] if case.batch_bytes is None else [f"{size(2 * case.batch_bytes)} of GPU memory for two batches ahead"]
    return kind.tried(
        case,
        lambda setup: replace(setup, off_step_us=max(setup.off_step_us, _copy_us(case))),
        why=f"Copies to the GPU take {_copies(case)}, and the step stands still meanwhile.",
        confidence=MEDIUM,
        costs=[*_pinned_bytes(case), *ahead],
        wanted=WantedEdit(prefetcher="cuda"),
        injects=True,
    )


def _copies_much(case: Case) -> bool:
    return case.has_gpu and case.step_share(case.part_us(COPY)) >= WORTH


def _copy_us(case: Case) -> float:
    """Return the training thread's time to copy one batch."""
    return case.part_us(COPY) / max(case.batches_a_step, 1.0)


def _copies(case: Case) -> str:
    us = case.part_us(COPY)
    return f"{duration(us)} ({percent(case.step_share(us))}) of a step"


def _pinned_bytes(case: Case) -> list[str]:
    queued = 1 if case.recorded is None else case.workers * case.recorded.setup.prefetch
    return [] if case.batch_bytes is None else [f"{size(case.batch_bytes * max(queued, 1))} of pinned memory at most"]


CAUSE = Cause(
    remedies=[
        RemedyKind(
            "pin-memory",
            "batches pinned by a thread",
            SETTING,
            pin_memory,
            hint="DataLoader(…, pin_memory=True), and batch.to(device, non_blocking=True)",
            key="loaders",
            value='`{"0": {"pin_memory": true}}`',
        ),
        RemedyKind(
            "device-prefetch",
            "the next batch copied to the device on a side stream",
            ONE_LINE,
            device_prefetch,
            hint='for batch in headrace.DevicePrefetcher(loader, "cuda"): …; with normalize=headrace.IMAGENET images '
            "travel as bytes and become floats on the device",
            key="device_prefetch",
            value="`true`",
        ),
    ]
)
