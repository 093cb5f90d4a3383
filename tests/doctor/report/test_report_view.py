"""The view of a report, by codes and numbers: what it holds, in which order, and what it leaves unknown."""

from __future__ import annotations

from typing import Any

import pytest
from machine_findings import quantities
from made_reports import TRAINER, balanced_prescription, made_diagnosis, made_prescription, made_ranks, made_session
from made_sessions import replace

from headrace.doctor.causes import Prescription
from headrace.doctor.measure import Diagnosis, StagePart, TimePart
from headrace.doctor.report.remedy_text import proved
from headrace.doctor.report.run_text import ending
from headrace.doctor.report.view import ReportView, report_view
from headrace.doctor.session.model import CommandOutcome, SessionNote

PROVED = made_prescription().outcomes[0]


def view_of(diagnosis: Diagnosis | None = None, prescription: Prescription | None = None, **session: Any) -> ReportView:
    return report_view(replace(made_session(), **session), diagnosis or made_diagnosis(), prescription)


def test_a_step_has_the_parts_that_took_time_as_thread_and_gpu_have_them() -> None:
    (step,) = view_of().steps
    assert [(part.label, part.share) for part in step.parts] == [
        *(("data wait", 0.7), ("host to device", 0.012), ("forward", 0.09)),
        *(("backward", 0.16), ("optimizer", 0.034), ("other", 0.004)),
    ]
    assert step.parts[0].cells == ("70.0 ms", "70 %", "GPU 69.1 ms, 69 %")
    assert step.parts[1].cells == ("1.2 ms", "1.2 %", "GPU –")
    assert [quantities(one)[:1] for one in step.summary] == [["100 ms"], ["98.0 ms"], ["95 %"], ["200"], ["16"]]
    assert [one.label for one in step.wait] == ["not ready", "pin"]


def test_a_part_that_only_the_gpu_has_is_a_dash_for_the_thread() -> None:
    (budget,) = made_diagnosis().budgets
    budget = replace(budget, device=[*(budget.device or []), TimePart("data work", 500, 0.005)])
    part = view_of(replace(made_diagnosis(), budgets=[budget])).steps[0].parts[-1]
    assert (part.label, part.cells[:2], part.share) == ("data work", ("–", "–"), None)


def test_a_loader_has_its_stages_and_lines() -> None:
    (making,) = made_diagnosis().batch_production
    stages = [*making.stages[:1], StagePart("other", "", 0.1, 56, None, 0)]
    made = replace(making, stages=stages)
    (loader,) = view_of(replace(made_diagnosis(), batch_production=[made])).loaders
    stages = [("lookup tarfile.getmember", ("58 %", "6.5 ms", "97 %", "16")), ("other", ("10 %", "56 µs", "–", ""))]
    assert [(one.label, one.cells) for one in loader.stages] == stages
    assert [(one.share, one.cells) for one in loader.lines] == [(0.57, ("57 %",))]
    assert quantities(loader.start_up) == ["1.2 s", "3"]


def test_the_rank_that_waits_longest_comes_first_with_its_loaders() -> None:
    (first,), (making,) = made_ranks().budgets, made_ranks().batch_production
    parts = [replace(part, share=0.9) if part.name == "data wait" else part for part in first.parts]
    both = [first, replace(first, rank=1, pid=101, parts=parts)]
    several = [making, replace(making, trainer=101, workers=3)]
    view = view_of(replace(made_ranks(), budgets=both, batch_production=several))
    assert [step.title for step in view.steps] == ["Rank 1", "Rank 0"]
    assert ["rank 1" in one.title for one in view.loaders] == [True, False]


def test_trainings_of_one_rank_are_told_apart() -> None:
    (budget,) = made_diagnosis().budgets
    view = view_of(replace(made_diagnosis(), budgets=[replace(budget, pid=pid) for pid in (11, 12)]))
    assert [step.title for step in view.steps] == ["Process 11, rank 0", "Process 12, rank 0"]


def test_ranks_come_late_ones_first_with_what_makes_them_late() -> None:
    view = view_of(made_ranks())
    assert [one.label for one in view.ranks] == ["rank 1", "rank 0"]
    late, _ = view.ranks
    assert late.cells == ("100 ms", "98 %", "19.8 ms", "20.5 ms", "–", "2.1 ms", "decode PIL.Image.load")
    assert view_of().ranks == []


def test_a_finding_has_its_advice_unless_the_first_screen_gives_it() -> None:
    first, second = view_of().findings
    assert (first.weight, first.advice) == (0.41, "")
    assert (second.weight, second.advice) == (0.03, made_diagnosis().findings[1].advice)
    assert view_of(prescription=made_prescription()).findings[0].advice == made_diagnosis().findings[0].advice


def test_bounds_are_those_that_were_measured() -> None:
    bounds = replace(made_prescription().lower_bounds, replay_us=None)  # type: ignore[type-var]
    prescription = replace(made_prescription(), lower_bounds=bounds, again_us=91_300.0)
    assert view_of(prescription=prescription).bounds == ["baseline 100 ms", "again 91.3 ms"]
    assert view_of(prescription=balanced_prescription()).no_bounds == balanced_prescription().why_no_windows


@pytest.mark.parametrize(
    ("outcomes", "refused", "gains", "numbers"),
    [
        (made_prescription().outcomes, [False, True, True], ["2.6 ×", "not recommended", "not recommended"], [1]),
        ([replace(made_prescription().outcomes[1], why="not tried")], [False, False], ["2.6 ×", "1.41 ×"], [1]),
        ([], [False, False], ["2.6 ×", "1.41 ×"], [1]),
    ],
)
def test_best_known_gains(outcomes: list[Any], refused: list[bool], gains: list[str], numbers: list[int]) -> None:
    rows = view_of(prescription=replace(made_prescription(), outcomes=outcomes)).remedies
    assert [one.is_refused for one in rows.helps] == refused
    assert [one.gain for one in rows.helps] == gains
    assert rows.numbers == numbers


@pytest.mark.parametrize(
    ("outcome", "figures"),
    [
        (PROVED, ["39.0 ms", "2.6 ×"]),
        (replace(PROVED, recommended=False, unclear="no control run"), ["39.0 ms", "2.6 ×", "38.1", "40.2 ms"]),
        (replace(PROVED, low_us=0.0, high_us=float("inf"), recommended=False), ["39.0 ms", "2.6 ×"]),
        (replace(PROVED, why="not tried", detail="9 s"), ["9 s"]),
    ],
)
def test_a_proof_is_told_by_its_figures(outcome: Any, figures: list[str]) -> None:
    assert quantities(proved(outcome)) == figures


@pytest.mark.parametrize(
    ("share", "prescription", "waits"),
    [(0.7, None, 0.7), (None, None, None), (0.7, balanced_prescription(), 0.0), (None, balanced_prescription(), None)],
)
def test_colours_suit_the_verdict(share: float | None, prescription: Prescription | None, waits: float | None) -> None:
    assert view_of(replace(made_diagnosis(), wait_share=share), prescription).waits == waits


@pytest.mark.parametrize(
    ("outcome", "figures"),
    [
        (CommandOutcome(["x"], 0, "finished", 1_000_000), ["1.0 s"]),
        (CommandOutcome(["x"], 3, "failed", 1_000_000), ["1.0 s", "3"]),
        (CommandOutcome(["x"], 137, "failed", 1_000_000), ["9", "1.0 s"]),
        (CommandOutcome(["x", "a b"], 127, "not found", 0), ["127"]),
        (CommandOutcome(["x"], 130, "interrupted", 5_000), ["5.0 ms", "130"]),
    ],
)
def test_says_how_the_command_ended(outcome: CommandOutcome, figures: list[str]) -> None:
    assert quantities(ending(outcome)) == figures


def test_equal_notes_of_many_processes_come_once() -> None:
    notes = [SessionNote("hook-off", "PIL: TypeError", pid) for pid in range(16)]
    view = view_of(notes=[*notes, SessionNote("scaler", "3 steps", TRAINER, 5)])
    assert [quantities(head) for head, _ in view.notes] == [["16 ×"], [str(TRAINER)]]


def test_what_was_not_measured_is_a_dash() -> None:
    making = replace(made_diagnosis().batch_production[0], start_up_us=None, first_batch_us=None)
    cost = replace(made_diagnosis().cost, step_us=None, step_share=None)
    view = view_of(replace(made_diagnosis(), batch_production=[making], cost=cost))
    assert (view.loaders[0].start_up.count("–"), view.cost.count("–")) == (2, 2)
