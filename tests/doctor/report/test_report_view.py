"""The view of a report, by codes and numbers: what it holds, in which order, and what it leaves unknown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from machine_findings import quantities
from made_reports import TRAINER, balanced_prescription, made_diagnosis, made_prescription, made_ranks, made_session
from made_sessions import replace
from report_pages import text

from headrace.doctor.causes import Prescription, recommended
from headrace.doctor.measure import Diagnosis, StagePart, TimePart
from headrace.doctor.report.remedy_text import proved
from headrace.doctor.report.run_text import ending
from headrace.doctor.report.view import ReportView, report_view
from headrace.doctor.session.model import CommandOutcome, SessionNote

PROVED = made_prescription().outcomes[0]


def view_of(diagnosis: Diagnosis | None = None, prescription: Prescription | None = None, **session: Any) -> ReportView:
    return report_view(replace(made_session(), **session), diagnosis or made_diagnosis(), prescription)


def lines_of(diagnosis: Diagnosis | None = None, prescription: Prescription | None = None) -> list[str]:
    """Lines of the whole report, without bars and repeated spaces."""
    shown = text(view_of(diagnosis, prescription))
    return [" ".join(re.sub("[█▏▎▍▌▋▊▉]", "", line).split()) for line in shown.splitlines()]


def test_a_step_has_the_parts_that_took_time_as_thread_and_gpu_have_them() -> None:
    lines = lines_of()
    at = next(place for place, line in enumerate(lines) if line.startswith("Step "))
    assert quantities(lines[at]) == ["100 ms", "98.0 ms", "95 %", "131 ms", "200", "16"]
    assert lines[at + 1] == "data wait 70.0 ms 70 % GPU 69.1 ms, 69 %"
    assert lines[at + 2] == "host to device 1.2 ms 1.2 % GPU –"
    names = ["forward", "backward", "optimizer", "other"]
    assert [line.startswith(name) for name, line in zip(names, lines[at + 3 :], strict=False)] == [True] * 4
    assert "not ready" in lines[at + 7]


def test_a_part_that_only_the_gpu_has_is_a_dash_for_the_thread() -> None:
    (budget,) = made_diagnosis().budgets
    budget = replace(budget, device=[*(budget.device or []), TimePart("data work", 500, 0.005)])
    lines = lines_of(replace(made_diagnosis(), budgets=[budget]))
    assert "data work – – GPU 500 µs, 0.5 %" in lines


def test_a_loader_has_its_stages_and_lines() -> None:
    (making,) = made_diagnosis().batch_production
    stages = [*making.stages[:1], StagePart("other", "", 0.1, 56, None, 0)]
    lines = lines_of(replace(made_diagnosis(), batch_production=[replace(making, stages=stages)]))
    at = lines.index("lookup tarfile.getmember 58 % 6.5 ms/sample, 97 % CPU, 16/batch")
    assert lines[at + 1] == "other 10 % 56 µs/sample"
    assert lines[at + 2].startswith("line ")
    assert lines[at + 2].endswith(" 57 %")
    assert quantities(lines[at + 3]) == ["1.2 s", "3"]


def test_the_rank_that_waits_longest_comes_first_with_its_loaders() -> None:
    (first,), (making,) = made_ranks().budgets, made_ranks().batch_production
    parts = [replace(part, share=0.9) if part.name == "data wait" else part for part in first.parts]
    both = [first, replace(first, rank=1, pid=101, parts=parts)]
    several = [making, replace(making, trainer=101, workers=3)]
    lines = lines_of(replace(made_ranks(), budgets=both, batch_production=several))
    assert [line[:6] for line in lines if re.match(r"Rank \d ", line)] == ["Rank 1", "Rank 0"]
    assert ["rank 1" in line for line in lines if re.match(r"\d workers? \(", line)] == [True, False]


def test_ranks_come_late_ones_first_with_what_makes_them_late() -> None:
    lines = [line for line in lines_of(made_ranks()) if re.match(r"rank \d \d", line)]
    assert [line[:6] for line in lines] == ["rank 1", "rank 0"]
    assert lines[0] == "rank 1 98 % 19.8 ms 20.5 ms – 2.1 ms decode PIL.Image.load"
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
    (reason,) = view_of(prescription=balanced_prescription()).bounds[-1:]
    assert reason.endswith(balanced_prescription().why_no_windows)


@pytest.mark.parametrize(("replay_us", "is_advised"), [(50_000.0, True), (99_000.0, False)])
def test_data_is_left_alone_if_a_step_on_cached_batches_takes_as_long(replay_us: float, is_advised: bool) -> None:
    bounds = replace(made_prescription().lower_bounds, replay_us=replay_us)  # type: ignore[type-var]
    found = recommended(made_diagnosis(), replace(made_prescription(), lower_bounds=bounds, remedies=[], outcomes=[]))
    assert (found is not None and bool(found.advice)) == is_advised


@pytest.mark.parametrize(
    ("outcomes", "refused"),
    [
        (made_prescription().outcomes, [False, True, True]),
        ([replace(made_prescription().outcomes[1], why="not tried")], [False, False]),
        ([], [False, False]),
    ],
)
def test_a_refuted_remedy_is_left_out_of_those_together(outcomes: list[Any], refused: list[bool]) -> None:
    rows = view_of(prescription=replace(made_prescription(), outcomes=outcomes)).remedies
    assert [one.is_refused for one in rows.helps] == refused
    assert rows.numbers == [1]


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
    assert [quantities(head) for head, _ in view.notes[:2]] == [["16 ×"], [str(TRAINER)]]


def test_what_was_not_measured_is_a_dash() -> None:
    making = replace(made_diagnosis().batch_production[0], start_up_us=None, first_batch_us=None)
    cost = replace(made_diagnosis().cost, step_us=None, step_share=None)
    diagnosis = replace(made_diagnosis(), batch_production=[making], cost=cost)
    (start_up,) = [line for line in lines_of(diagnosis) if line.startswith("start-up")]
    assert (start_up.count("–"), view_of(diagnosis).notes[-1][1].count("–")) == (2, 2)
