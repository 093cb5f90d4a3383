"""First screen of every report: a sentence, a few bullets, and a single recommendation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from headrace.doctor.causes import (
    CROWDED,
    EFFORTS,
    LEAST_GAIN,
    LEAST_STEPS,
    MOST_WORDS,
    SPINNING,
    Prescription,
    Remedy,
    effort,
)
from headrace.doctor.measure import BOUND, Diagnosis
from headrace.doctor.quantities import duration, times
from headrace.doctor.report.remedy_text import helping, outcome_of, predicted, title

MOST_BULLETS = 4
SLOWED = 0.85
"""Reporting threshold: ratio of a step on cached batches with idle workers to a step without its waits."""


@dataclass(frozen=True)
class Recommendation:
    """Recommended next action. Unknown texts are empty."""

    text: str
    speed: str = ""
    """Resulting step time, such as `38.9 ms is predicted`."""
    certainty: str = ""
    effort: str = ""
    coverage: str = ""
    """Parts of a batch that Headrace's Loader makes."""
    change: str = ""
    """Change in words or a line of code."""

    @property
    def terms(self) -> list[str]:
        """Certainty, effort, coverage and change, each with its name, unless empty."""
        names = ("certainty", "effort", "coverage", "change")
        named = {name: getattr(self, name) for name in names}
        return [f"{name}: {text}" for name, text in named.items() if text]


@dataclass(frozen=True)
class FirstScreen:
    """Texts that a reader sees first, identical in every form of the report."""

    sentence: str
    bullets: list[str]
    recommendation: Recommendation | None
    """Recommendation; None if too few steps were seen, because the end of the command then matters more."""
    rest: list[str] = field(default_factory=list)
    """Statements that do not fit and move to the notes."""


def first_screen(diagnosis: Diagnosis, prescription: Prescription | None) -> FirstScreen:
    """Return the first screen. Every speed on it belongs to its recommendation."""
    found = recommendation(diagnosis, prescription)
    verdict = diagnosis.verdict.text
    if found is not None and found.speed:
        faster = f"{verdict.rstrip('.')}; {found.speed}."
        verdict = faster if len(faster.split()) <= MOST_WORDS else verdict
    before, after = ([one.text for one in some] for some in (diagnosis.ending, diagnosis.statements))
    texts: list[str] = [*before, verdict, *_slowed(diagnosis, prescription), *after]
    return FirstScreen(texts[0], texts[1 : 1 + MOST_BULLETS], found, texts[1 + MOST_BULLETS :])


def _slowed(diagnosis: Diagnosis, prescription: Prescription | None) -> Iterator[str]:
    """Yield a sentence if workers slow the training down, which explains a step shorter than the one without waits."""
    bounds = None if prescription is None or prescription.stop else prescription.lower_bounds
    waits = diagnosis.wait_share
    is_said = any(one.code == SPINNING for one in diagnosis.findings)
    if bounds is None or bounds.replay_us is None or waits is None or is_said:
        return
    own_us = bounds.observed_us * (1 - waits)
    if bounds.replay_us < SLOWED * own_us:
        yield (
            f"The workers slow the training down: without its waits a step takes {duration(own_us)} beside them, and "
            f"{duration(bounds.replay_us)} while they are idle."
        )


def recommendation(diagnosis: Diagnosis, prescription: Prescription | None) -> Recommendation | None:
    """Return the best proven remedy, else the first remedy with a certain predicted gain, else advice.

    If data does not limit the step, only a proven remedy counts. If a proof refuted a remedy, no advice is given,
    because it may amount to the same remedy.
    """
    if prescription is not None and prescription.stop:
        few = _are_few(diagnosis)
        return (None if few else _proved(prescription)) or Recommendation(prescription.stop)
    if _are_few(diagnosis):
        return None
    if prescription is not None:
        remedy = gaining(prescription)
        if remedy is not None or any(outcome.is_refused for outcome in prescription.outcomes):
            return remedy
    # Crowded workers and threads make every stage slower than necessary.
    first = sorted(diagnosis.findings, key=lambda one: one.code not in CROWDED or one.weight < BOUND)
    advice = next((finding.advice for finding in first if finding.advice), "")
    return Recommendation(advice, _at_best(prescription), "not tried, and its gain is not known") if advice else None


def gaining(prescription: Prescription) -> Recommendation | None:
    """Return the best proven remedy, else the first with a certain predicted gain; None without either."""
    return _proved(prescription) or _predicted(prescription)


def _are_few(diagnosis: Diagnosis) -> bool:
    return bool(diagnosis.budgets) and all(budget.steps < LEAST_STEPS for budget in diagnosis.budgets)


def _proved(prescription: Prescription) -> Recommendation | None:
    """Return the remedies with the largest proven gain; None if no proof gained."""
    outcomes = {tuple(sorted(one.remedies)): one for one in prescription.outcomes}  # the last proof counts
    gained = [(one.step_us, one) for one in outcomes.values() if one.recommended and one.step_us is not None]
    if not gained:
        return None
    step_us, best = min(gained, key=lambda each: each[0])
    known = {one.code: one for one in prescription.remedies}
    names = " + ".join(title(known[code]) if code in known else code for code in best.remedies)
    speedup, without = "", ""
    if best.speedup is not None:
        speedup = f", {times(best.speedup)} as fast"
        without = "" if prescription.again_us is None else f", against {duration(step_us * best.speedup)} without it"
    return Recommendation(
        f"{names}: proved {duration(step_us)} a step{speedup}",
        f"{duration(step_us)} is proved",
        f"proved by a run{without}",
        *_asked([known[code] for code in best.remedies if code in known]),
    )


def _predicted(prescription: Prescription) -> Recommendation | None:
    """Return the first remedy with a predicted gain; None if there is none.

    Refuted remedies and remedies that may gain nothing are skipped.
    """
    for remedy in helping(prescription):
        outcome, prediction = outcome_of(prescription, [remedy.code]), remedy.prediction
        is_open = outcome is None or not outcome.is_refused
        if is_open and prediction is not None and prediction.high_us < prediction.step_us * prediction.speedup:
            return Recommendation(
                f"{title(remedy)}: {predicted(prediction)}",
                f"{duration(prediction.step_us)} is predicted",
                f"{remedy.confidence} (predicted)",
                *_asked([remedy]),
            )
    return None


def _asked(remedies: Sequence[Remedy]) -> tuple[str, str, str]:
    """Return the effort of the remedies, the Loader's coverage of a batch, and the largest change."""
    if not remedies:
        return "", "", ""
    most = max(remedies, key=effort)
    edit = most.edit
    change = most.hint if edit is None else f"{PurePath(edit.file).name}:{edit.line}, by --apply PATCH"
    return EFFORTS[effort(most)], next((one.coverage for one in remedies if one.coverage), ""), change


def _at_best(prescription: Prescription | None) -> str:
    """Return the step time with ready batches as text: the best that removing the cause can reach."""
    bounds = None if prescription is None else prescription.lower_bounds
    if bounds is None or bounds.replay_us is None:
        return ""
    if bounds.replay_us >= (1 - LEAST_GAIN) * bounds.observed_us:
        return "with batches at hand it takes as long"
    return f"{duration(bounds.replay_us)} at best"
