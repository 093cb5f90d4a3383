"""Each sentence of a report, and the shape of its first screen: all recorded sessions, and 200 made ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from golden_sessions import names, prescribed, session_of
from made_prescriptions import COLUMNS, ROOMY, made, replayed
from made_prescriptions import prescribed as prescribed_of_made
from made_sessions import MadeRun
from report_pages import said, text

from headrace.doctor.causes import LEAST_STEPS, MOST_WORDS, Prescription, diagnose
from headrace.doctor.causes.case import SLOWED
from headrace.doctor.measure import Diagnosis, TimePart, TrainerView, main_view_of, replayed_us
from headrace.doctor.measure.steps import BOUND
from headrace.doctor.quantities import duration, number, percent, times
from headrace.doctor.report import document, report_view
from headrace.doctor.report.remedy_text import MOST_BULLETS, FirstScreen, first_screen, interval, remedy_rows, title
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import Session

MADE, BLOCKS = 200, 20
REMEDIES = ("workers", "prefetch", "indexed-tar", "native-decode", "persistent-workers")
STAGES = ("lookup:tarfile member", "decode:Pillow load", "transform:RandomResizedCrop", "collate:default")
OF_THE_STEP = {"pad-to-batch", "same-shape", "data-work", "pin-memory", "device-prefetch"}
"""Remedies that shorten a step besides its data stall."""
ROUNDED = 1.06
"""Two digits of a factor, and what a prediction may exceed what the shares allow by."""


def proofs(rng: np.random.Generator, step_us: float) -> Iterator[Proof]:
    """Yield proofs that gain, refute, decide nothing, ran out of time, broke, or were tried on a busy machine."""
    codes = [str(one) for one in rng.permutation(REMEDIES)[: rng.integers(0, 4)]]
    for several in [*([one] for one in codes), *([codes[:2]] if len(codes) > 1 and rng.random() < 0.5 else [])]:
        why = str(rng.choice(["measured"] * 6 + ["timed out", "broke", "not tried"]))
        mean, spread = step_us * rng.uniform(0.15, 1.4), rng.uniform(0, 0.8)
        steps = (mean * rng.uniform(1 - spread, 1 + spread, int(rng.choice([1, 12, 40])))).astype(int).tolist()
        samples = str(rng.choice(["same", "alike", "different"], p=[0.6, 0.3, 0.1]))
        yield Proof(several, {}, why, steps=steps if why == "measured" else [], samples=samples)


def made_at_random(seed: int) -> Session:
    rng = np.random.default_rng(seed)
    run = MadeRun(
        steps=int(rng.choice([3, 8, 20, 40], p=[0.1, 0.1, 0.3, 0.5])),
        workers=int(rng.integers(0, 4)),
        stages={one: int(rng.integers(0, 12_000)) for one in rng.permutation(STAGES)[: rng.integers(1, 4)]},
        cpu=float(rng.uniform(0.2, 1)),
        forward=int(rng.integers(100, 8_000)),
        backward=int(rng.integers(100, 8_000)),
        slow_batches={int(rng.integers(0, 20)): int(rng.integers(0, 40_000))} if rng.random() < 0.2 else {},
        gpu=bool(rng.random() < 0.2),
    )
    session = made(run, facts=ROOMY | {"cores": int(rng.choice([2, 8]))}, columns=COLUMNS)
    trainer = session.trainers[0]
    step_us = (trainer.steps.end[-1] - trainer.steps.start[0]) / run.steps
    if rng.random() < 0.7:
        session = replayed(session, max(int(step_us * rng.uniform(0.1, 1.1)), 10))
    session.proofs = list(proofs(rng, step_us))
    means = step_us * rng.uniform(0.9, 1.2, int(rng.choice([0, 1, 3], p=[0.2, 0.5, 0.3])))
    session.controls = [Proof([], {}, "measured", steps=[int(mean)] * 40) for mean in means]
    for process in session.processes:
        threads = int(rng.choice([1, 1, 4]))
        process.facts.setdefault("facts", {}).update(torch_threads=threads)
    return session


def factors(sentence: str) -> list[float]:
    return [float(one.replace(",", "")) for one in re.findall(r"([\d.,]+) × as fast", sentence)]


def contradictions(session: Session, diagnosis: Diagnosis, whole: Prescription) -> Iterator[str]:
    """Yield each sentence that the shares, or the proofs, of a session contradict."""
    share, verdict = diagnosis.data_share, said(diagnosis)
    arrow = arrow_of(first_screen(diagnosis, whole))
    if share is not None:
        if ("Not input-bound" in verdict or "not input-bound" in whole.stop) and share >= BOUND:
            yield f"not input-bound at {share:.0%}"
        most = ROUNDED / max(1 - share, 0.01)
        in_step = not (diagnosis.batch_production and diagnosis.batch_production[0].workers)
        if in_step and not any(one.recommended for one in whole.outcomes):
            yield from [f"{arrow} / {share:.1%}" for one in factors(arrow) if one > most]
    yield from unfounded(session, diagnosis, whole)
    last = {tuple(sorted(one.remedies)): one for one in whole.outcomes}
    gained = [one for one in last.values() if one.recommended]
    names = {one.code: title(one) for one in whole.remedies}
    measured = sum(diagnosis_budget.steps for diagnosis_budget in diagnosis.budgets[:1])
    if 0 < measured < LEAST_STEPS and (whole.remedies or whole.together or factors(arrow)) and not gained:
        yield f"remedies of {measured} steps"
    if gained and measured >= LEAST_STEPS:
        best = min(gained, key=lambda one: one.step_us or 0.0)
        if not arrow.startswith(" + ".join(names.get(code, code) for code in best.remedies) + ": proved"):
            yield f"proved {best.remedies}, but: {arrow}"
    refuted = [names.get(one.remedies[0], "?") for one in last.values() if one.is_refused and len(one.remedies) == 1]
    if not gained and arrow.startswith(tuple(refuted)):
        yield f"refuted: {arrow}"
    for row in remedy_rows(whole).helps:
        proof = row.outcome
        if row.is_refused and proof is not None:
            is_slow = proof.why == "measured" and (proof.low_us or 0.0) > 0 and not proof.unclear
            if not is_slow and proof.why != "broke" and proof.samples != "different":
                yield f"refused, and not refuted: {proof}"
        if proof is not None and proof.why == "timed out" and "not measured" not in row.proved:
            yield row.proved
    bounds = whole.lower_bounds
    if bounds is not None and bounds.replay_us is not None:
        beaten = [one for one in gained if (one.high_us or 0.0) < 0.98 * bounds.replay_us]
        yield from [f"a bound of {bounds.replay_us:.0f} us, and proved {one.step_us}" for one in beaten]


def unfounded(session: Session, diagnosis: Diagnosis, whole: Prescription) -> Iterator[str]:
    """Yield each figure that the evidence contradicts, and each pair of sentences that cannot both be true."""
    view = main_view_of(session)
    if view is None or view.budget is None or view.wait_share is None:
        return
    trainer, steps = view.trainer, view.training.steps
    start, end, step_us = steps[0].start, steps[-1].end, view.budget.mean_us
    if not math.isclose(step_us, (end - start) / len(steps), rel_tol=1e-3):
        yield f"a step of {step_us}"
    gets = [row for row, at in enumerate(trainer.gets.start) if start <= at < end]
    waited = sum(trainer.gets.duration[row] for row in gets) / (end - start)
    if not view.has_gpu and view.wait_share < waited - 0.02:
        yield f"waits {view.wait_share}, and {waited} by its calls of next()"
    parts = [view.budget.parts, *(one.parts for one in (*diagnosis.waits, *diagnosis.causes))]
    yield from [f"shares that sum to {sum(one.share for one in of)}" for of in parts if not _is_whole(of)]
    found = {one.code: one for one in diagnosis.findings}
    yield from [f"more than a whole: {one.text}" for one in found.values() if max(_percents(one.text), default=0) > 100]
    stages = sum(one.weight for one in diagnosis.findings if one.code.startswith("stage-"))
    if stages > view.wait_share + 1e-6:
        yield f"stages of {stages:.1%} of a step, which waits {view.wait_share:.1%}"
    least_us = _least_us(session, view)
    best = None if OF_THE_STEP & {*whole.together} else whole.best
    for prediction in [*(one.prediction for one in whole.remedies if one.code not in OF_THE_STEP), best]:
        if prediction is not None and prediction.step_us < 0.999 * least_us:
            yield f"{prediction} predicted, where {least_us} us remain"
    for outcome in whole.outcomes:
        if outcome.recommended and (not session.controls or outcome.step_us >= min(map(_mean, session.controls))):
            yield f"proved within the controls' spread: {outcome}"
    workers = next((one for one in whole.remedies if one.code == "workers"), None)
    if workers is not None and workers.helps and "cannot help" in " ".join(one.text for one in found.values()):
        yield f"{workers.title}, and workers cannot help"
    texts = {code: f"{one.text} {one.advice}" for code, one in found.items()}
    if workers is not None and "cannot help" in workers.why and "cores left" in texts.get("few-workers", ""):
        yield "cores are left for workers that cannot help"
    if "threads" in found and all(process.facts["facts"]["torch_threads"] == 1 for process in session.processes):
        yield found["threads"].advice


def _is_whole(parts: Sequence[TimePart]) -> bool:
    return not parts or math.isclose(sum(one.share for one in parts), 1, abs_tol=1e-6)


def _percents(sentence: str) -> list[float]:
    return [float(one) for one in re.findall(r"([\d.]+) %", sentence)]


def _mean(proof: Proof) -> float:
    return sum(proof.steps) / len(proof.steps)


def _least_us(session: Session, view: TrainerView) -> float:
    """Return the step without its stall, or on cached batches if workers slow the step itself down."""
    assert view.budget is not None
    own_us = (1 - (view.wait_share or 0.0)) * view.budget.mean_us
    replay_us = replayed_us(view)
    return own_us if replay_us is None else min(own_us, replay_us if replay_us < SLOWED * own_us else own_us)


def arrow_of(screen: FirstScreen) -> str:
    return "" if screen.recommendation is None else screen.recommendation.text


def chosen(screen: FirstScreen, whole: Prescription) -> tuple[str, list[str], list[str]]:
    """How the recommendation's gain is known, with the step of its remedy, and everything that is known of that gain.

    Without a gain only the lower bound may be named, in the sentence.
    """
    arrow, titles = arrow_of(screen), {one.code: title(one) for one in whole.remedies}
    for one in whole.outcomes[::-1]:
        if arrow.startswith(" + ".join(titles.get(code, code) for code in one.remedies) + ": proved "):
            again = [duration(one.step_us * one.speedup)] if one.step_us and one.speedup else []
            return "proved", [duration(one.step_us)], [duration(one.step_us), times(one.speedup or 0.0), *again]
    for remedy in whole.remedies:
        known = remedy.prediction
        if known is not None and arrow.startswith(f"{titles[remedy.code]}: {duration(known.step_us)} "):
            between = re.findall(FIGURE, interval(known.low_us, known.high_us)) or []
            return "predicted", [duration(known.step_us)], [duration(known.step_us), times(known.speedup), *between]
    bound_us = None if whole.lower_bounds is None else whole.lower_bounds.replay_us
    return "", [] if bound_us is None else [duration(bound_us)], []


FIGURE = r"(?:\d+ min )?\d[\d,.]* (?:µs|ms|s|×)"
SPEED = re.compile(r"; (?:([^;]+) (?:is proved|is predicted|at best)|with batches at hand it takes as long)\.$")


def misshapen(screen: FirstScreen, diagnosis: Diagnosis, whole: Prescription) -> Iterator[str]:
    """Yield what is wrong with a first screen: its length, its terms, or a speed that is not the chosen remedy's."""
    sentence, arrow, found = screen.sentence, arrow_of(screen), screen.recommendation
    if len(sentence.split()) > MOST_WORDS or len(screen.bullets) > MOST_BULLETS:
        yield f"long: {sentence} {screen.bullets}"
    lines = [sentence, *screen.bullets, *screen.rest]
    found_so = [SPEED.sub(".", line) for line in lines if not line.startswith("The workers slow")]
    if found_so != [one.text for one in (*diagnosis.ending, diagnosis.verdict, *diagnosis.statements)]:
        yield f"not as it was found: {lines}"
    how, step, figures = chosen(screen, whole)
    speeds = [one for line in lines for one in SPEED.findall(line) if one]
    if len(speeds) > 1 or any(one not in step for one in speeds) or factors(" ".join(lines)):
        yield f"another speed: {lines} / {arrow}"
    if how and [one for one in re.findall(FIGURE, arrow.rpartition(": ")[2]) if one not in figures]:
        yield f"another figure: {arrow} / {figures}"
    known = [one for one in whole.remedies if one.helps and title(one) in arrow]
    if how and (found is None or how not in found.certainty or (known and not (found.effort and found.change))):
        yield f"without its terms: {found}"
    if found is not None and not how and (found.effort or found.change or factors(arrow)):
        yield f"terms of nothing: {found}"


def check(session: Session, diagnosis: Diagnosis, whole: Prescription) -> list[str]:
    """Return the contradictions of a session."""
    return [*contradictions(session, diagnosis, whole), *misshapen(first_screen(diagnosis, whole), diagnosis, whole)]


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if place % 3 else ()) for place, name in enumerate(names())]
)
def test_no_sentence_of_a_recorded_session_contradicts_its_shares(name: str, tmp_path: Path) -> None:
    session = session_of(name, tmp_path)
    assert check(session, *prescribed(name, session)) == []


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "block", [pytest.param(block, marks=pytest.mark.long if block % 10 else ()) for block in range(BLOCKS)]
)
def test_no_sentence_of_a_made_session_contradicts_its_shares(block: int) -> None:
    for seed in range(block, MADE, BLOCKS):
        session = made_at_random(seed)
        assert check(session, diagnose(session), prescribed_of_made(session)) == [], f"seed {seed}"


TIME = r"((?:\d+ h )?(?:\d+ min )?\d[\d,.]* (?:µs|ms|s|min)\b|–)"
SHARE = r"(<?\d[\d.]* %)"


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if place % 4 else ()) for place, name in enumerate(names())]
)
def test_a_quantity_is_the_same_wherever_it_is_printed(name: str, tmp_path: Path) -> None:
    session = session_of(name, tmp_path)
    diagnosis, prescription = prescribed(name, session)
    shown = " ".join(text(report_view(session, diagnosis, prescription)).split())
    budget, bounds = diagnosis.budgets_by_wait[0], prescription.lower_bounds

    def printed(*patterns: str) -> set[str]:
        return {value for pattern in patterns for value in re.findall(pattern, shown)}

    step = printed(rf"^(?:Not input-bound: )?[Aa] step takes {TIME}", rf"baseline {TIME}", rf"Step {TIME} on average")
    assert step == {duration(budget.mean_us)}
    assert printed(rf"waits {SHARE} of it for data") <= {percent(diagnosis.wait_share)}
    cached = printed(rf"{TIME} at best", rf"cached batches {TIME}(?!.*without data work)", rf"without data work {TIME}")
    assert cached <= {duration(None if bounds is None else bounds.replay_us)}
    assert len(printed(r"([\d.,]+) cores(?:' worth)? of work")) <= 1
    assert printed(r"95 % below [^·]*· ([\d,]+) (?:steps?|batch(?:es)?)\b") == {number(budget.steps)}
    own = [one for one in diagnosis.batch_production if one.trainer == budget.pid]
    if len(own) == 1 and own[0].workers:
        assert printed(r"\bin (\d+) workers?\b[,.]") <= {number(own[0].workers)}
    told = json.loads(document(session, diagnosis, prescription))
    steps_us = {one["code"]: one["prediction"] for one in told["prescription"]["remedies"]}
    for remedy in prescription.helping:
        if remedy.prediction is not None:
            step_us, speedup = remedy.prediction.step_us, remedy.prediction.speedup
            assert steps_us[remedy.code]["step_us"] == pytest.approx(step_us)
            assert f"{duration(step_us)} a step" in shown
            assert f"{times(speedup)} as fast" in shown
            assert budget.mean_us / step_us == pytest.approx(speedup, rel=0.02)  # but for what rounding hides
    assert told["first_screen"]["sentence"] in shown
