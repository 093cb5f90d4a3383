"""Where the time of a step goes: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sessions import MadeRun, made_session, process, read, write_evidence, write_settings

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.steps import TimeSpan, segments, training
from headrace.doctor.measure.view import device_spans, step_budget
from headrace.doctor.session.model import CommandOutcome, Session
from headrace.doctor.session.trainers import OptimizerSteps, ReceivedBatches, Trainer, TrainerPass

times = st.integers(-50, 1_050)
spans = st.builds(TimeSpan, st.sampled_from("abc"), times, times)


@given(st.lists(spans, max_size=8))
def test_each_moment_belongs_to_the_span_that_began_last(found):
    pieces = list(segments(0, 1_000, found))
    for moment in range(0, 1_000, 7):
        (piece,) = [piece for piece in pieces if piece.start <= moment < piece.end]
        running = [span for span in found if span.start <= moment < span.end]
        innermost = max((span.start for span in running), default=None)
        names = {span.name for span in running if span.start == innermost}
        assert piece.name in names if names else not piece.name


def session_of(trainer: Trainer, **changes) -> Session:
    outcome = CommandOutcome(["python"], 0, "finished", 1)
    given = {"created": "", "mode": "observe", "headrace": "0", "warmup": 0, "steps": 100}
    return Session(**(given | changes), outcome=outcome, trainers=[trainer])


def trainer_of(steps, gets=(), passes=()) -> Trainer:
    """Steps as (start, end, spans), gets as (start, duration)."""
    columns = OptimizerSteps(
        number=list(range(len(steps))),
        start=[start for start, _, _ in steps],
        end=[end for _, end, _ in steps],
        spans=[list(of_step) for _, _, of_step in steps],
        probe=[None] * len(steps),
        device=[None] * len(steps),
        ready=[None] * len(steps),
    )
    none = [None] * len(gets)
    received = ReceivedBatches(
        pass_=[0] * len(gets),
        index=list(range(len(gets))),
        start=[start for start, _ in gets],
        duration=[duration for _, duration in gets],
        arrived=none,
        unpickle=none,
        pin_start=none,
        pin=none,
        bytes=none,
        shape=none,
    )
    return Trainer(1, "host", 0, steps=columns, gets=received, passes=list(passes))


def shares(trainer: Trainer) -> dict[str, float]:
    budget = step_budget(training(session_of(trainer), trainer))
    assert budget is not None
    return {part.name: part.us for part in budget.parts}


kinds = st.tuples(st.sampled_from("hbosce?"), st.integers(-200, 3_500), st.integers(-10, 2_000))
received = st.tuples(st.integers(0, 3_000), st.integers(0, 900))


@given(st.lists(kinds, max_size=15), st.lists(received, max_size=6))
def test_parts_sum_to_the_step_whatever_its_spans_are(found, gets):
    steps = [(0, 1_000, found), (1_000, 2_500, found), (2_500, 3_000, [])]
    trainer = trainer_of(steps, sorted(gets), [TrainerPass(0, 0, 0, 40, 0, [2])])
    budget = step_budget(training(session_of(trainer), trainer))
    assert budget is not None
    assert sum(part.share for part in budget.parts) == pytest.approx(1, abs=1e-9)
    assert sum(part.us for part in budget.parts) == pytest.approx(budget.mean_us)
    assert all(part.us >= 0 for part in budget.parts)


def test_a_plain_step_is_cut_at_its_turns():
    spans = [("h", 300, 50), ("b", 500, 200), ("o", 720, 80)]
    parts = {"data wait": 150, "host to device": 50, "forward": 50 + 150, "backward": 200, "optimizer": 80}
    assert shares(trainer_of([(0, 800, spans)], [(100, 150)])) == parts | {"other": 100 + 20}


def test_inner_spans_are_not_counted_in_outer_ones():
    """As with a closure: the optimizer begins first."""
    spans = [("o", 100, 500), ("b", 200, 100), ("c", 250, 20)]
    assert shares(trainer_of([(0, 700, spans)])) == {"optimizer": 400, "backward": 80, "collective": 20, "other": 200}


def test_micro_batches_each_have_their_forward():
    spans = [("b", 200, 100), ("b", 500, 100), ("o", 600, 100)]
    parts = shares(trainer_of([(0, 700, spans)], [(0, 100), (300, 100)]))
    assert parts == {"data wait": 200, "forward": 200, "backward": 200, "optimizer": 100}


def test_an_evaluation_is_no_part_of_the_step_and_its_batches_are_none_of_it():
    spans = [("e", 0, 500), ("b", 700, 100)]
    trainer = trainer_of([(0, 800, spans)], [(10, 300), (550, 100)])
    assert shares(trainer) == {"data wait": 100, "other": 50, "forward": 50, "backward": 100}
    (step,) = training(session_of(trainer), trainer).steps
    assert step.gets == [1]


def test_starting_and_ending_a_pass_is_waiting_for_data():
    passes = [TrainerPass(0, 0, 100, 160, 0, [2], last=30, last_start=50)]
    parts = shares(trainer_of([(0, 300, [("b", 250, 50)])], [(160, 40)], passes))
    assert parts == {"data wait": 30 + 60 + 40, "other": 50 + 20, "forward": 50, "backward": 50}


def test_a_pass_that_begins_with_its_first_batch_hides_it_not():
    """Both at the same moment, the one of no length."""
    trainer = trainer_of([(0, 300, [("b", 200, 100)])], [(0, 90)], [TrainerPass(0, 0, 0, 0, 0, [2])])
    assert shares(trainer)["data wait"] == 90


def test_the_warm_up_takes_what_had_been_prefetched_and_settles(tmp_path):
    """Twelve batches, one a step, and three steps more."""
    session = made_session(tmp_path, MadeRun(workers=3, prefetch=4, steps=40))
    (trainer,) = session.trainers
    measured = training(session, trainer)
    assert (measured.seen, measured.warmup, len(measured.steps)) == (40, 15, 25)


def test_warm_up_is_what_the_probe_counted_where_it_did(tmp_path):
    session = made_session(tmp_path, MadeRun(steps=40))
    session.processes[0].facts["facts"]["warmup_steps"] = 9
    assert training(session, session.trainers[0]).warmup == 9


@pytest.mark.parametrize(
    ("mode", "warmup", "steps", "numbers"),
    [
        ("measure", 5, 10, range(5, 15)),
        ("measure", 0, 3, range(3)),
        ("measure", None, 200, range(7, 40)),
        ("observe", 5, 10, range(5, 40)),
        ("measure", 99, 10, range(20, 30)),
    ],
)
def test_measured_steps_are_those_asked_for(tmp_path, mode, warmup, steps, numbers):
    session = made_session(tmp_path, MadeRun(steps=40), settings={"warmup": warmup, "steps": steps}, mode=mode)
    measured = training(session, session.trainers[0])
    assert [step.number for step in measured.steps] == list(numbers)


def test_without_an_optimizer_the_unit_is_a_batch(tmp_path):
    write_settings(tmp_path)
    gets = [["get", 0, index, 100 * index, 40] for index in range(10)]
    write_evidence(tmp_path, "a", [process(7), ["pass", 0, 0, 0, 0, 0, [7]], *gets])
    diagnosis = diagnose(read(tmp_path))
    (budget,) = diagnosis.budgets
    assert (budget.unit, budget.steps, budget.micro_batches) == ("batch", 7, 1.0)
    parts = {part.name: part.us for part in budget.parts}
    assert parts["data wait"] == 40
    assert parts["other"] == pytest.approx(60 * 6 / 7)  # the last batch ends with its own next()


def test_steps_apart_are_measured_each_by_itself():
    spans = [("b", 60, 20)]
    trainer = trainer_of([(0, 100, spans), (1_000, 1_100, [("b", 1_060, 20)])], [(0, 10), (500, 300), (1_000, 10)])
    assert shares(trainer) == {"data wait": 10, "forward": 50, "backward": 20, "other": 20}


def test_the_gpu_sees_less_wait_where_it_is_behind(tmp_path):
    (budget,) = diagnose(made_session(tmp_path, MadeRun(gpu=True))).budgets
    assert budget.device is not None
    device = {part.name: part.us for part in budget.device}
    assert device["backward"] == 2_000
    assert device["optimizer"] == 500
    assert device["forward"] == 1_000
    assert sum(part.share for part in budget.device) == pytest.approx(1)


def test_data_work_is_a_part_of_its_own_on_the_cpu_and_on_the_gpu():
    trainer = trainer_of([(0, 100, [("d", 20, 30), ("h", 30, 10), ("b", 70, 20), ("o", 90, 10)])], gets=[(0, 20)])
    parts = {"data wait": 20, "data work": 20, "host to device": 10, "forward": 20, "backward": 20, "optimizer": 10}
    assert shares(trainer) == parts
    marks = [("s", 0.0), ("w", 0.0), ("r", 5.0), ("w", 9.0), ("r", 12.0), ("m", 20.0), ("b", 40.0), ("c", 60.0)]
    found = [(span.name, span.start, span.end) for span in device_spans(marks)]
    waits = [("data wait", 0.0, 5.0), ("data work", 5.0, 9.0), ("data wait", 9.0, 12.0)]
    assert found == [*waits, ("data work", 12.0, 20.0), ("backward", 40.0, 60.0)]


def test_without_a_mark_of_the_model_a_batch_in_hand_is_no_work():
    marks = [("s", 0.0), ("w", 0.0), ("r", 5.0), ("w", 9.0), ("r", 12.0), ("b", 40.0), ("c", 60.0)]
    assert [span.name for span in device_spans(marks)] == ["data wait", "data wait", "backward"]


def test_what_comes_before_the_model_is_not_seen_where_nothing_gave_a_batch():
    trainer = trainer_of([(0, 100, [("n", 0, 60), ("b", 80, 10), ("o", 90, 10)])])
    assert shares(trainer) == {"not seen": 60, "forward": 20, "backward": 10, "optimizer": 10}
