"""Text on remedies for all reports: the first screen with its recommendation, predictions, proofs and costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from headrace.doctor.causes import (
    EFFORTS,
    MOST_WORDS,
    Prescription,
    ProofOutcome,
    Recommended,
    Remedy,
    effort,
    recommended,
    slowed,
)
from headrace.doctor.measure import LEAST_GAIN, Diagnosis
from headrace.doctor.quantities import duration, times
from headrace.doctor.session.after_run import AdoptedPart
from headrace.doctor.simulate import Prediction

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
        return [f"{name}: {text}" for name in names if (text := getattr(self, name))]


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
        step = duration(outcome.step_us)
        texts = f"{names}: proved {step} a step{speedup}", f"{step} is proved", f"proved by a run{without}"
        return Recommendation(*texts, *_asked(chosen))
    if prediction is not None:
        (remedy,) = chosen.remedies
        unsure = "" if prediction.is_certain_gain else "; it may gain nothing"
        step, confidence = f"{duration(prediction.step_us)} is predicted", f"{remedy.confidence} (predicted{unsure})"
        return Recommendation(f"{title(remedy)}: {predicted(prediction)}", step, confidence, *_asked(chosen))
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


MEASURED = "measured"
SHOWN_IDLE = ("loader", "workers")
"""Codes of remedies that reports show even if they would not help; JSON has all."""
_UNPROVED = {
    "broke": "breaks the run",
    "not applied": "could not be tried",
    "not tried": "not tried",
    "timed out": "not measured, since it ran out of time",
    "interrupted": "its proof was interrupted",
}
CERTAINTIES = {"exact": "", "differs": "differs", "drawn": "drawn", "check": "to check"}
CERTAINTIES |= {"python": "stays Python, to check", "no": "not taken over"}
_SAMPLES = {"same": "the samples were the same"}
_SAMPLES["alike"] = "types and shapes of the samples were the same, in another order"


def interval(low_us: float | None, high_us: float | None) -> str:
    """Return text such as `36.0 to 45.1 ms`; empty if an end is unknown or infinite, as for very few steps."""
    if low_us is None or high_us is None or math.isinf(high_us):
        return ""
    low, high = duration(low_us), duration(high_us)
    if low.split(" ")[1:] == high.split(" ")[1:] and low.count(" ") == 1:
        low = low.split(" ")[0]
    return f"{low} to {high}"


def predicted(prediction: Prediction) -> str:
    """Return text such as `38.2 ms a step (36.0 to 45.1 ms), 2.6 × as fast`."""
    between = interval(prediction.low_us, prediction.high_us)
    return f"{duration(prediction.step_us)} a step ({between}), {times(prediction.speedup)} as fast"


def proved(outcome: ProofOutcome) -> str:
    """Return the outcome of a proof as text: its figures, or the reason that there are none."""
    if outcome.why != MEASURED:
        last = outcome.detail.rstrip().splitlines()[-1:]
        return ": ".join([_UNPROVED.get(outcome.why, outcome.why), *last])
    text = f"{'unclear:' if outcome.is_undecided else 'proved'} {duration(outcome.step_us)}"
    if outcome.speedup is not None:
        text += f", {times(outcome.speedup)}"
    if outcome.recommended:
        return text
    if outcome.samples == "different":
        return f"not recommended, since the samples differed: {text}"
    if outcome.is_undecided:
        between = interval(outcome.low_us, outcome.high_us)
        return text + (f" ({between})" if between else "") + (f"; {outcome.unclear}" if outcome.unclear else "")
    if outcome.is_slower:
        return text.replace("proved", "proved slower:", 1)
    return f"no certain gain: {text}"


def part_line(part: AdoptedPart) -> str:
    """Return text such as `Resize(256) → hr.Resize(256) (check: …)`, without a note for exact parts."""
    becomes = f" → {part.becomes}" if part.becomes else ""
    note = f": {part.note}" if part.note else ""
    sure = CERTAINTIES.get(part.certainty, part.certainty)
    return f"{part.part}{becomes}" + (f" ({sure}{note})" if sure else "")


def title(remedy: Remedy) -> str:
    """Return the remedy's title with an initial capital."""
    return remedy.title[:1].upper() + remedy.title[1:]


def bound_rows(prescription: Prescription | None) -> Iterator[tuple[str, float | None]]:
    """Yield the names and values of the baseline and each lower bound of a step."""
    bounds = None if prescription is None else prescription.lower_bounds
    if prescription is None or bounds is None:
        return
    yield "baseline", bounds.observed_us
    if prescription.again_us is not None:
        yield "again", prescription.again_us
    if bounds.work_us and bounds.replay_us is not None:
        yield "cached batches", bounds.replay_us + bounds.work_us
        yield "without data work", bounds.replay_us
    else:
        yield "cached batches", bounds.replay_us


@dataclass(frozen=True)
class RemedyRow:
    """Helpful remedy, or several remedies at once. Unknown texts are empty."""

    title: str
    prediction: Prediction | None
    outcome: ProofOutcome | None
    remedy: Remedy | None = None
    """None for several remedies, and for one that was tried and is no longer predicted to help."""
    without: str = ""
    """Helpful remedies left out of a combination, with the reason."""

    @property
    def is_refused(self) -> bool:
        """True if the proof refuted the remedy."""
        return self.outcome is not None and self.outcome.is_refused

    @property
    def costs(self) -> str:
        return "" if self.remedy is None else ", ".join(self.remedy.costs)

    @property
    def predicted(self) -> str:
        return "" if self.prediction is None else predicted(self.prediction)

    @property
    def proved(self) -> str:
        return "" if self.outcome is None else proved(self.outcome)

    @property
    def samples(self) -> str:
        """Effect of the proof on the samples; empty if different samples are the reason for refusal."""
        if self.outcome is None or self.outcome.why != MEASURED or self.outcome.samples == "different":
            return ""
        return _SAMPLES.get(self.outcome.samples or "", "whether the samples were the same is unknown")


@dataclass(frozen=True)
class RemedyRows:
    """All remedy texts of a report, in order."""

    helps: Sequence[RemedyRow] = ()
    """Helpful remedies, largest gain first."""
    numbers: Sequence[int] = ()
    """Numbers of the remedies to combine, starting at 1; those proved together, if any were."""
    together: RemedyRow = RemedyRow("Together", None, None)
    """Combination of remedies, without a prediction for a single remedy."""
    idle: Sequence[tuple[str, str]] = ()
    """Remedies that would not help, each with the reason."""

    @property
    def combined(self) -> str:
        return ", ".join(map(str, self.numbers))


def remedy_rows(prescription: Prescription | None) -> RemedyRows:
    """Return helpful remedies, remedies tried without success, and remedies that would not help."""
    if prescription is None:
        return RemedyRows()
    helps = prescription.helping
    proof = next((one for one in reversed(prescription.outcomes) if len(one.remedies) > 1), None)
    known, titles = {one.code for one in helps}, {one.code: title(one) for one in prescription.remedies}
    tried = None
    if proof is not None and proof.is_refused:  # then combine the remedies that no proof refuted
        names = " + ".join(titles.get(code, code) for code in proof.remedies)
        tried, proof = RemedyRow(f"{names}, together", proof.predicted, proof), None
    codes = prescription.together if proof is None else proof.remedies
    left_out = [title(one) for one in helps if one.code in prescription.left_out]
    without = f"without what its proof refuted ({'; '.join(left_out)})" if left_out else ""
    best = prescription.best if proof is None else proof.predicted
    rows = [RemedyRow(title(one), one.prediction, prescription.outcome_of([one.code]), one) for one in helps]
    # Keep the outcomes of remedies that were tried alone but are no longer predicted to help.
    alone = dict.fromkeys(one.remedies[0] for one in prescription.outcomes if len(one.remedies) == 1)
    unlike = [code for code in alone if code not in known]
    rows += [RemedyRow(titles.get(code, code), None, prescription.outcome_of([code])) for code in unlike]
    rows += [] if tried is None else [tried]
    return RemedyRows(
        helps=rows,
        numbers=[place for place, remedy in enumerate(helps, start=1) if remedy.code in codes],
        together=RemedyRow("Together", best if len(codes) > 1 else None, proof, without=without),
        idle=[(title(one), one.why) for one in prescription.remedies if not one.helps and one.code in SHOWN_IDLE],
    )
