"""Candidates of `headrace doctor --prove`: the command unchanged, each remedy, and the useful ones together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from headrace.doctor.causes import Prescription, control_means_us
from headrace.doctor.measure import is_gain, is_valid
from headrace.doctor.prove.baseline import FEWEST_STEPS
from headrace.doctor.prove.prover import LOADER, Attempt, Prover
from headrace.doctor.session.after_run import Proof

CONTROL = Attempt([], {}, None)
"""The unchanged command."""
FAILED = {"broke": "fails", "timed out": "takes too long"}
"""Ends of the unchanged command after which no remedy is tried."""


def remedy_attempts(prescription: Prescription, prover: Prover) -> Iterator[Attempt]:
    """Yield each remedy between two runs of the unchanged command, then the useful remedies together.

    A shared machine may be faster or slower by now, and the measured run was observed more closely. So a remedy is
    tried only if there is time for a control run before it.
    """
    wanted, pace, proofs = attempts(prescription), prover.pace, prover.proofs
    if not wanted:
        return
    for number, one in enumerate(wanted, 1):
        yield from _with_control(replace(one, place=f" ({number} of {len(wanted)})"), prover)
        if not proofs[-1].remedies and proofs[-1].why in FAILED:
            again = f"the command {FAILED[proofs[-1].why]} when it is run once more without remedies"
            why_not = f"{again}: {proofs[-1].detail}".rstrip(": ")
            proofs += [Proof(one.remedies, one.changes, "not tried", why_not) for one in wanted[number - 1 :]]
            return
    # The fastest of the runs without remedies, which gains must beat.
    before_us = min([pace.step_us, *control_means_us(proofs)])
    best = tried_together(proofs, before_us)
    if best is not None:
        yield from _with_control(replace(best, place=" together"), prover)
    if any(one.remedies and one.steps for one in proofs) and prover.steps_for(CONTROL):
        yield CONTROL


def _with_control(one: Attempt, prover: Prover) -> Iterator[Attempt]:
    """Yield the unchanged command, then an attempt; without time for both, an attempt that is not tried."""
    control = replace(CONTROL, reserved_s=prover.pace.seconds(FEWEST_STEPS, one.step_us))
    if not prover.steps_for(control):
        yield replace(one, reserved_s=prover.left_s)
        return
    yield control
    if prover.proofs[-1].why not in FAILED:
        yield one


def attempts(prescription: Prescription) -> list[Attempt]:
    """Return an attempt for each remedy that would help and can be injected.

    The shortest expected step comes first, remedies without a prediction last.
    """
    found = [
        Attempt([one.code], one.changes, None if one.prediction is None else one.prediction.step_us)
        for one in prescription.remedies
        if one.helps and one.changes
    ]
    return sorted(found, key=lambda one: float("inf") if one.step_us is None else one.step_us)


def tried_together(proofs: Sequence[Proof], observed_us: float) -> Attempt | None:
    """Combine all proven remedies; None if the result is no more than one of them.

    The most useful comes first and takes precedence in conflicts. The combination is expected to do no worse than the
    best alone.
    """
    useful = sorted((proof for proof in proofs if is_of_use(proof, observed_us)), key=lambda one: fmean(one.steps))
    if useful and LOADER in useful[0].changes:  # nothing is left for the others to do
        return None
    useful = [proof for proof in useful if LOADER not in proof.changes]
    codes = [code for proof in useful for code in proof.remedies]
    changes: dict[str, Any] = {}
    for proof in useful:
        changes = joined(changes, proof.changes)
    if len(codes) < 2 or changes == useful[0].changes:
        return None
    return Attempt(codes, changes, fmean(useful[0].steps))


def is_of_use(proof: Proof, observed_us: float) -> bool:
    """Return True if a remedy would be recommended: measured, surely faster, and with unchanged samples."""
    return is_valid(proof) and is_gain(proof.steps, observed_us)


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge two changes; the first takes precedence."""
    both = {
        key: joined(value, second[key]) if isinstance(value, dict) and isinstance(second.get(key), dict) else value
        for key, value in first.items()
    }
    return {**second, **both}
