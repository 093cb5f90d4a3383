"""The first screen of hand-made diagnoses: its bounds, its terms, and what comes before what."""

from __future__ import annotations

import re

import pytest
from machine_findings import quantities
from made_prescriptions import made
from made_reports import balanced_prescription, made_diagnosis, made_prescription
from made_sessions import MadeRun, replace
from typer.testing import CliRunner

from headrace.doctor.causes import MOST_WORDS, Prescription, gaining, recommended
from headrace.doctor.cli import app
from headrace.doctor.comparison import compare
from headrace.doctor.measure import Finding, Statement
from headrace.doctor.report import document
from headrace.doctor.report.remedy_text import MOST_BULLETS, first_screen
from headrace.errors import SessionError


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


SLOW = MadeRun(steps=60, stages={"decode:PIL.Image.load": 32_000, "collate:default": 2_000})
FAST = replace(SLOW, stages={"decode:PIL.Image.load": 12_000, "collate:default": 2_000})


@pytest.fixture(scope="module")
def sessions():
    return made(SLOW), made(FAST)


def test_what_became_faster_and_where_from(sessions):
    found = compare(*sessions)
    assert found.step.is_certain
    assert found.parts[0].name == "data wait"
    decode = found.stages[0]
    assert (decode.name, decode.before_us, decode.after_us) == ("decode:PIL.Image.load", 8_000, 3_000)
    assert [one.is_certain for one in found.stages if one.name.startswith("collate")] == [False]
    assert "as fast" in found.verdict
    assert re.search(r"-5\.0 ms .*decode:PIL\.Image\.load", found.verdict)


def test_the_other_way_round_it_became_slower(sessions):
    forward, back = compare(*sessions), compare(*sessions[::-1])
    assert back.step.change_us == pytest.approx(-forward.step.change_us)
    assert "as long" in back.verdict


def test_a_run_beside_itself(sessions):
    found = compare(sessions[0], sessions[0])
    assert not any(one.is_certain for one in [found.step, *found.parts, *found.stages])
    assert found.settings == []


def test_spread_within_the_runs_is_noise(sessions):
    """One slow batch of 60 moves the mean, and says nothing of the others."""
    outlier = made(replace(SLOW, slow_batches={30: 400_000}))
    assert not compare(sessions[0], outlier).step.is_certain


def test_what_was_set_otherwise_is_named(sessions):
    other = made(replace(FAST, workers=4, facts={"pin_memory": True}))
    settings = {name: (before, after) for name, before, after in compare(sessions[0], other).settings}
    assert settings["num_workers"] == ("2", "4")
    assert settings["pin_memory"][1] == "True"


def test_other_software_is_named():
    runs = [made(FAST), made(FAST)]
    for session, version in zip(runs, ("3.11.7", "3.12.1"), strict=True):
        session.process_of(session.trainers[0]).facts["process"] = {"python": version}
    assert compare(*runs).settings == [("Python", "3.11.7", "3.12.1")]


def test_a_busier_machine_is_a_doubt(sessions):
    busy = made(FAST, columns={"cpu_cores_other": 6.0, "cpu_cores_busy": 8.0})
    quiet = made(SLOW, columns={"cpu_cores_other": 0.1, "cpu_cores_busy": 2.0})
    assert any("Other programs used" in doubt for doubt in compare(quiet, busy).doubts)
    assert compare(*sessions).doubts == []


def test_without_steps_there_is_nothing_to_compare(sessions):
    with pytest.raises(SessionError, match="got none in the second"):
        compare(sessions[0], replace(sessions[1], trainers=[]))


def test_the_command_prints_it(sessions, tmp_path):
    paths = []
    for name, session in zip(("a", "b"), sessions, strict=True):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(document(session, None))
    done = CliRunner().invoke(app, ["compare", *map(str, paths)])
    assert done.exit_code == 0, done.output
    assert "as fast" in " ".join(done.output.split())
    missing = CliRunner().invoke(app, ["compare", str(paths[0]), str(tmp_path / "none.json")])
    assert missing.exit_code == 125
