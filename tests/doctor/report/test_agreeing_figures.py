"""Every figure of a report agrees with every other: each quantity of the recorded sessions, wherever it is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from golden_sessions import derived, names, prescribed
from html_pages import parsed
from report_pages import printed

from headrace.doctor.causes import Prescription
from headrace.doctor.measure import Diagnosis
from headrace.doctor.quantities import duration, number, percent, times
from headrace.doctor.report import markdown, text
from headrace.doctor.report.html.page import html_page
from headrace.doctor.report.outputs import document
from headrace.doctor.report.view import report_view
from headrace.doctor.session.model import Session

TIME = r"((?:\d+ h )?(?:\d+ min )?\d[\d,.]* (?:µs|ms|s|min)\b|–)"
SHARE = r"(<?\d[\d.]* %)"


@dataclass(frozen=True)
class PrintedSession:
    """One session in all formats, each as one line of words."""

    session: Session
    diagnosis: Diagnosis
    prescription: Prescription
    formats: dict[str, str]
    told: dict[str, Any]
    """The JSON document."""

    def printed(self, *patterns: str) -> dict[str, set[str]]:
        """Return what the patterns' groups match, by format; formats without any are left out."""
        found = {
            name: {value for pattern in patterns for value in re.findall(pattern, one)}
            for name, one in self.formats.items()
        }
        return {name: values for name, values in found.items() if values}


EACH = [pytest.param(name, marks=pytest.mark.long if place % 4 else ()) for place, name in enumerate(names())]


@pytest.fixture(scope="module", params=EACH)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PrintedSession:
    session, _ = derived(request.param, tmp_path_factory.mktemp("golden"))
    diagnosis, prescription = prescribed(request.param, session)
    view = report_view(session, diagnosis, prescription)
    page = "\n".join(tag.text for tag in parsed(html_page(view)) if tag.name == "body")
    formats = {
        "screen": printed(session, diagnosis, prescription),
        "narrow": printed(session, diagnosis, prescription, width=60),
        "plain": text(view),
        "html": page,
        "markdown": markdown(view),
    }
    words = {name: " ".join(one.replace("**", "").replace("`", "").split()) for name, one in formats.items()}
    told = json.loads(document(session, diagnosis, prescription))
    return PrintedSession(session, diagnosis, prescription, words, told)


def step_us(one: PrintedSession) -> str:
    return duration(one.diagnosis.budgets_by_wait[0].mean_us)


def wait_share(one: PrintedSession) -> str:
    return percent(one.diagnosis.wait_share)


def bound_us(one: PrintedSession) -> str:
    return duration(None if one.prescription.lower_bounds is None else one.prescription.lower_bounds.replay_us)


QUANTITIES: dict[str, tuple[Callable[[PrintedSession], str], tuple[str, ...]]] = {
    "mean step": (
        step_us,
        (rf"^(?:Not input-bound: )?[Aa] step takes {TIME}", rf"baseline {TIME}", rf"Step {TIME} on average"),
    ),
    "wait of a step": (
        wait_share,
        (rf"waits {SHARE} of it for data",),
    ),
    "step on cached batches": (
        bound_us,
        (
            rf"{TIME} at best",
            rf"cached batches {TIME}(?![\s\S]*without data work)",  # which the loop did there
            rf"without data work {TIME}",
        ),
    ),
}


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_quantity_is_the_same_wherever_it_is_printed(shown: PrintedSession, name: str) -> None:
    expected, patterns = QUANTITIES[name]
    for where, values in shown.printed(*patterns).items():
        assert values == {expected(shown)}, where


def test_every_quantity_is_printed_somewhere(shown: PrintedSession) -> None:
    """A pattern that fits nothing any more would agree with everything."""
    assert {"screen", "plain"} <= set(shown.printed(*QUANTITIES["mean step"][1]))
    assert {"screen", "plain", "html", "markdown"} <= set(shown.printed(*QUANTITIES["wait of a step"][1]))


def test_demanded_cores_are_one_figure(shown: PrintedSession) -> None:
    values = shown.printed(r"([\d.,]+) cores(?:' worth)? of work")
    assert len(set().union(*values.values())) <= 1


def test_each_remedy_has_the_same_figures_in_all_formats(shown: PrintedSession) -> None:
    told = {one["code"]: one["prediction"] for one in shown.told["prescription"]["remedies"]}
    for place, remedy in enumerate(shown.prescription.helping, start=1):
        if remedy.prediction is None:
            continue
        step, gain = duration(remedy.prediction.step_us), times(remedy.prediction.speedup)
        assert told[remedy.code]["step_us"] == pytest.approx(remedy.prediction.step_us)
        assert f"{step} a step" in shown.formats["plain"], remedy.code
        assert f"{gain} as fast" in shown.formats["plain"], remedy.code
        assert step in shown.formats["html"], remedy.code
        head = rf"→ {re.escape(remedy.title[:1].upper() + remedy.title[1:])}: {TIME} a step .*?, ([\d.,]+ ×) as fast"
        for where, one in shown.formats.items():
            for values in re.findall(head, one):
                assert values == (step, gain), (where, place)


def test_speed_ups_are_those_of_the_steps_that_stand_beside_them(shown: PrintedSession) -> None:
    """The baseline by the predicted step, as both are shown, but for what rounding hides."""
    baseline_us = shown.diagnosis.budgets_by_wait[0].mean_us
    for remedy in shown.prescription.helping:
        if remedy.prediction is not None:
            assert baseline_us / remedy.prediction.step_us == pytest.approx(remedy.prediction.speedup, rel=0.02)


def test_counts_of_steps_and_workers_agree(shown: PrintedSession) -> None:
    budget = shown.diagnosis.budgets_by_wait[0]
    summary = r"95 % below [^·]*· ([\d,]+) (?:steps?|batch(?:es)?)\b"
    for where, values in shown.printed(summary).items():
        assert values == {number(budget.steps)}, where
    batch_production = [one for one in shown.diagnosis.batch_production if one.trainer == budget.pid]
    if len(batch_production) == 1 and batch_production[0].workers:
        for where, values in shown.printed(r"\bin (\d+) workers?\b[,.]").items():
            assert values == {number(batch_production[0].workers)}, where
