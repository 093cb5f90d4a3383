"""First screen of every report: a sentence, a few bullets, and a single recommendation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath

from headrace.doctor.causes import (
    EFFORTS,
    MOST_WORDS,
    Prescription,
    Recommended,
    effort,
    recommended,
    slowed,
)
from headrace.doctor.measure import LEAST_GAIN, Diagnosis
from headrace.doctor.quantities import duration, times
from headrace.doctor.report.remedy_text import predicted, title

MOST_BULLETS = 4


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
    rest: list[str] = field(default_factory=list)
    """Statements that do not fit and move to the notes."""


def first_screen(diagnosis: Diagnosis, prescription: Prescription | None) -> FirstScreen:
    """Return the first screen. Every speed on it belongs to its recommendation."""
    chosen = recommended(diagnosis, prescription)
    found = None if chosen is None else _worded(chosen, prescription)
    verdict = diagnosis.verdict.text
    if found is not None and found.speed:
        faster = f"{verdict.rstrip('.')}; {found.speed}."
        verdict = faster if len(faster.split()) <= MOST_WORDS else verdict
    before, after = ([one.text for one in some] for some in (diagnosis.ending, diagnosis.statements))
    texts: list[str] = [*before, verdict, *slowed(diagnosis, prescription), *after]
    return FirstScreen(texts[0], texts[1 : 1 + MOST_BULLETS], found, texts[1 + MOST_BULLETS :])


def _worded(chosen: Recommended, prescription: Prescription | None) -> Recommendation:
    outcome, prediction = chosen.outcome, chosen.prediction
    if outcome is not None and outcome.step_us is not None:
        known = {one.code: title(one) for one in chosen.remedies}
        names = " + ".join(known.get(code, code) for code in outcome.remedies)
        speedup, without = "", ""
        if outcome.speedup is not None:
            speedup = f", {times(outcome.speedup)} as fast"
            if prescription is not None and prescription.again_us is not None:
                without = f", against {duration(outcome.step_us * outcome.speedup)} without it"
        return Recommendation(
            f"{names}: proved {duration(outcome.step_us)} a step{speedup}",
            f"{duration(outcome.step_us)} is proved",
            f"proved by a run{without}",
            *_asked(chosen),
        )
    if prediction is not None:
        (remedy,) = chosen.remedies
        return Recommendation(
            f"{title(remedy)}: {predicted(prediction)}",
            f"{duration(prediction.step_us)} is predicted",
            f"{remedy.confidence} (predicted{'' if prediction.is_certain_gain else '; it may gain nothing'})",
            *_asked(chosen),
        )
    if chosen.stop:
        return Recommendation(chosen.stop)
    return Recommendation(chosen.advice, _at_best(prescription), "not tried, and its gain is not known")


def _asked(chosen: Recommended) -> tuple[str, str, str]:
    """Return the effort of the remedies, the Loader's coverage of a batch, and the largest change."""
    if not chosen.remedies:
        return "", "", ""
    most = max(chosen.remedies, key=effort)
    edit = most.edit
    change = most.hint if edit is None else f"{PurePath(edit.file).name}:{edit.line}, by --apply PATCH"
    return EFFORTS[effort(most)], next((one.coverage for one in chosen.remedies if one.coverage), ""), change


def _at_best(prescription: Prescription | None) -> str:
    """Return the step time with ready batches as text: the best that removing the cause can reach."""
    bounds = None if prescription is None else prescription.lower_bounds
    if bounds is None or bounds.replay_us is None:
        return ""
    if bounds.replay_us >= (1 - LEAST_GAIN) * bounds.observed_us:
        return "with batches at hand it takes as long"
    return f"{duration(bounds.replay_us)} at best"
