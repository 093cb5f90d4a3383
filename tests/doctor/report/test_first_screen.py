"""The first screen of hand-made diagnoses: its bounds, its terms, and what comes before what."""

from __future__ import annotations

import pytest
from machine_findings import quantities
from made_reports import balanced_prescription, made_diagnosis, made_prescription
from made_sessions import replace

from headrace.doctor.causes import MOST_WORDS, Prescription, gaining, recommended
from headrace.doctor.measure import Finding, Statement
from headrace.doctor.report.remedy_text import MOST_BULLETS, first_screen


def test_only_the_loader_has_a_coverage() -> None:
    prescription = made_prescription()
    other = first_screen(made_diagnosis(), prescription).recommendation
    assert other is not None
    assert [term.partition(":")[0] for term in other.terms] == ["certainty", "effort", "change"]
    remedies = [replace(prescription.remedies[0], code="loader", coverage="all 3")]
    found = first_screen(made_diagnosis(), replace(prescription, remedies=remedies, outcomes=[])).recommendation
    assert found is not None
    assert "coverage: all 3" in found.terms


def test_how_the_command_ended_comes_before_the_verdict() -> None:
    ending = [Statement("failed", "The command failed with exit status 1."), Statement("failed", "ValueError: odd")]
    screen = first_screen(replace(made_diagnosis(), ending=ending), made_prescription())
    assert [screen.sentence, screen.bullets[0]] == [one.text for one in ending]
    assert screen.bullets[1].startswith(made_diagnosis().verdict.text.rstrip("."))


def test_what_has_no_room_is_left_for_the_notes() -> None:
    statements = [f"Statement {number}." for number in range(9)]
    coded = [Statement("noise", text) for text in statements]
    screen = first_screen(replace(made_diagnosis(), statements=coded), made_prescription())
    assert (screen.bullets, screen.rest) == (statements[:MOST_BULLETS], statements[MOST_BULLETS:])


def test_a_speed_that_makes_the_sentence_too_long_stands_with_the_recommendation_only() -> None:
    verdict = f"A step takes 100 ms; {'word ' * (MOST_WORDS - 5)}."
    screen = first_screen(replace(made_diagnosis(), verdict=Statement("input-bound", verdict)), made_prescription())
    assert screen.sentence == verdict
    assert screen.recommendation is not None
    assert "39.0 ms" in screen.recommendation.text


def test_a_run_that_waits_for_no_data_is_told_so_and_has_no_speed() -> None:
    screen = first_screen(made_diagnosis(), balanced_prescription())
    assert screen.recommendation is not None
    assert (screen.recommendation.text, screen.recommendation.terms) == (balanced_prescription().stop, [])
    assert screen.sentence == made_diagnosis().verdict.text


@pytest.mark.parametrize(("weight", "is_first"), [(0.2, True), (0.01, False)])
def test_workers_that_crowd_each_other_are_the_first_lead(weight: float, is_first: bool) -> None:
    crowd = Finding("workers-cores", weight, "12 workers share 2 cores.", "", "Start fewer workers.")
    diagnosis = replace(made_diagnosis(), findings=[*made_diagnosis().findings, crowd])
    found = first_screen(diagnosis, None).recommendation
    assert found is not None
    assert (found.text == crowd.advice) == is_first
    assert "not known" in found.certainty


INDEXED, WORKERS, *_ = made_prescription().remedies


@pytest.mark.parametrize(
    ("prescription", "figures"),
    [
        (made_prescription(), ["39.0 ms", "2.6 ×"]),
        (replace(made_prescription(), outcomes=[]), ["38.2 ms", "36.0", "45.1 ms", "2.6 ×"]),
        (
            replace(made_prescription(), remedies=[WORKERS, INDEXED], outcomes=made_prescription().outcomes[1:]),
            ["38.2 ms", "36.0", "45.1 ms", "2.6 ×"],
        ),
    ],
    ids=["proved", "predicted", "the other breaks the run"],
)
def test_the_remedy_that_gains_most_is_recommended(prescription: Prescription, figures: list[str]) -> None:
    found = first_screen(made_diagnosis(), prescription).recommendation
    assert found is not None
    assert found.text.startswith(f"{INDEXED.title}: ")
    assert quantities(found.text) == figures


def test_a_predicted_gain_that_is_not_certain_is_recommended_before_advice() -> None:
    assert INDEXED.prediction is not None
    unsure = replace(INDEXED, prediction=replace(INDEXED.prediction, high_us=200_000.0))
    found = first_screen(made_diagnosis(), replace(made_prescription(), remedies=[unsure], outcomes=[])).recommendation
    assert found is not None
    assert quantities(found.text)[0] == "38.2 ms"
    assert "not known" not in found.certainty
    assert "nothing" in found.certainty
    certain = gaining(replace(made_prescription(), remedies=[unsure, WORKERS], outcomes=[]))
    assert certain is not None
    assert [one.code for one in certain.remedies] == ["workers"]


def test_a_remedy_of_unknown_gain_is_not_recommended() -> None:
    prescription = replace(made_prescription(), remedies=[replace(WORKERS, prediction=None)], best=None, outcomes=[])
    found = recommended(made_diagnosis(), prescription)
    assert found is not None
    assert (found.remedies, found.advice) == ((), made_diagnosis().findings[0].advice)


def test_of_a_single_step_no_advice_follows() -> None:
    (only,) = made_diagnosis().budgets
    assert recommended(replace(made_diagnosis(), budgets=[replace(only, steps=1)]), None) is None
