"""Predictions from sessions whose runs were simulated by others, beside what those runs take with the change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_sessions import MadeRun, machine, made_session, outcome
from made_work import recorded_in, recording_of

from headrace.doctor.measure.diagnosis import RankView
from headrace.doctor.measure.steps import training
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import MeasuredWindow
from headrace.doctor.simulate import FeedSetup, RecordedRun, StageChange, predicted

STAGES = {"read:bytes": 6_000, "decode:PIL.Image.load": 10_000, "collate:default": 4_000}
STEP = {"pickle": 500, "unpickle": 300, "forward": 3_000, "backward": 4_000, "optimizer": 1_000}
RUN = MadeRun(steps=60, workers=1, stages=STAGES, facts={"length": 10_000}, **STEP)


def recorded_of(folder: Path, run: MadeRun = RUN, **arguments: Any) -> RecordedRun:
    session = made_session(folder, run, **arguments)
    return recorded_in(session)


def observed_us(folder: Path, run: MadeRun) -> float:
    session = made_session(folder, run)
    measured = training(session, session.trainers[0])
    return measured.total_us / len(measured.steps)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.one_in(8)
def test_workers(before: int, after: int, tmp_path: Path) -> None:
    """Of one that has workers: of one without, what sending costs has to be assumed."""
    known = recorded_of(tmp_path / "before", replace(RUN, workers=before))
    truth = observed_us(tmp_path / "after", replace(RUN, workers=after))
    prediction = predicted(known, replace(known.setup, workers=after))
    assert prediction.step_us == pytest.approx(truth, rel=0.02)
    assert prediction.low_us < truth < prediction.high_us
    assert prediction.speedup == pytest.approx(known.observed_us / prediction.step_us)


def test_workers_where_there_were_none(tmp_path: Path) -> None:
    known = recorded_of(tmp_path / "before", replace(RUN, workers=0))
    truth = observed_us(tmp_path / "after", replace(RUN, workers=1))
    assert known.assumed >= {"sending", "start-up"}
    prediction = predicted(known, replace(known.setup, workers=1))
    assert prediction.low_us < truth < prediction.high_us


def test_prefetch_hides_rare_slow_batches(tmp_path: Path) -> None:
    slow = replace(RUN, workers=4, slow_batches=dict.fromkeys(range(13, 400, 25), 60000))
    known = recorded_of(tmp_path / "before", replace(slow, prefetch=1))
    truth = observed_us(tmp_path / "after", replace(slow, prefetch=6))
    assert predicted(known, replace(known.setup, prefetch=6)).step_us == pytest.approx(truth, rel=0.08)


@pytest.mark.parametrize("prefetch", [1, 4, 8, 16])
@pytest.mark.one_in(4)
def test_a_longer_queue_makes_no_batch_faster_at_any_point_of_a_pass(prefetch: int, tmp_path: Path) -> None:
    """Batches of 16 workers that began together arrive together: which steps of a pass are counted decides the mean."""
    bursts = replace(RUN, workers=16, stages={"decode:PIL.Image.load": 1_600_000}, facts={"length": 82})
    known = recorded_of(tmp_path, bursts)
    prediction = predicted(known, replace(known.setup, prefetch=prefetch))
    assert prediction.step_us == pytest.approx(known.observed_us, rel=0.1)


def test_a_stage_is_scaled(tmp_path: Path) -> None:
    """Half of the 10 ms is computing; 20.3 of a batch become 17.8."""
    known = recorded_of(tmp_path)
    changed = replace(known.setup, stages={"decode": StageChange(cpu=0.5)})
    assert predicted(known, changed).step_us == pytest.approx(17_500, rel=0.02)
    waits = replace(known.setup, stages={"decode:PIL.Image.load": StageChange(wait=0.0)})
    assert predicted(known, waits).step_us == pytest.approx(15_000, rel=0.02)


def test_less_is_sent(tmp_path: Path) -> None:
    """The device sets the pace: of each step the training thread unpickles 300 µs."""
    known = recorded_of(tmp_path, replace(RUN, workers=4))
    none = replace(known.setup, sent_bytes=0.0)
    assert known.observed_us - predicted(known, none).step_us == pytest.approx(300, abs=30)


def test_the_present_setup_takes_what_was_observed(tmp_path: Path) -> None:
    known = recorded_of(tmp_path)
    prediction = predicted(known, known.setup)
    assert prediction.step_us == pytest.approx(known.observed_us)
    assert prediction.speedup == pytest.approx(1.0)


def test_cores_of_the_machine_limit_workers(tmp_path: Path) -> None:
    """10 ms of computing a batch (half of each stage), 0.8 ms of sending; the trainer computes 8 ms a step as far as is
    known. On one core that is a step of 18.8 ms, however many workers there are."""
    known = recorded_of(tmp_path, machines=[machine(cores=1.0)])
    assert known.setup.cores == 1.0
    step_us = known.making_cpu_us + float(known.steps.compute.mean()) * known.team
    assert step_us / 18_800 == pytest.approx(1.0, rel=0.01)
    assert predicted(known, replace(known.setup, workers=16)).step_us == pytest.approx(18_800, rel=0.05)


def test_what_a_worker_waited_for_a_core_is_no_wait_of_its_own(tmp_path: Path) -> None:
    session = made_session(tmp_path, RUN)
    before = recorded_in(session)
    for maker in session.makers:
        maker.batches.delay = [5_000] * len(maker.batches.index)
    after = recorded_in(session)
    assert before.batches.wait.mean() - after.batches.wait.mean() == pytest.approx(5_000)
    assert before.batches.compute.mean() == after.batches.compute.mean()


@pytest.mark.parametrize(("cpu_us", "team", "computes_us"), [(2_300, 1, 2_000), (32_300, 4, 8_000)])
def test_the_trainers_cpu_time_tells_computing_from_waiting(
    cpu_us: int, team: int, computes_us: int, tmp_path: Path
) -> None:
    """Of 8 ms, with the 0.3 ms of CPU time that unpickling takes left out; several threads compute for all of them."""
    session = made_session(tmp_path, replace(RUN, workers=4))
    steps = session.trainers[0].steps
    steps.cpu, steps.delay = [cpu_us] * len(steps.number), [None] * len(steps.number)
    known = recorded_in(session)
    assert "cores" not in known.assumed
    assert known.team == team
    assert known.steps.compute.mean() == pytest.approx(computes_us)
    assert known.steps.wait.mean() == pytest.approx(8_000 - computes_us)


def test_the_floor_is_the_step_without_its_waits(tmp_path: Path) -> None:
    known = recorded_of(tmp_path, replace(RUN, logging=700))
    assert known.unhindered_us() == pytest.approx(8_700, rel=0.01)


def nothing() -> Session:
    return Session("", "measure", "", None, 10, outcome())


def without_batches(folder: Path) -> Session:
    session = made_session(folder, RUN)
    session.makers = []
    return session


def test_there_may_be_nothing_to_simulate(tmp_path: Path) -> None:
    for session in (nothing(), without_batches(tmp_path)):
        assert recording_of(session) is None


changes = st.fixed_dictionaries(
    {},
    optional={
        "workers": st.integers(0, 5),
        "prefetch": st.integers(1, 4),
        "persistent": st.booleans(),
        "pinned": st.booleans(),
        "in_order": st.booleans(),
        "cores": st.sampled_from([None, 0.5, 3.0]),
        "worker_threads": st.sampled_from([1.0, 3.5]),
        "pass_batches": st.sampled_from([None, 1, 7]),
        "stages": st.sampled_from([{"decode": StageChange(cpu=0.0, wait=0.0)}, {"read": StageChange(cpu=0.5)}]),
        "sent_bytes": st.floats(0, 3),
        "off_step_us": st.sampled_from([0.0, 1e6]),
        "storage": st.sampled_from([None, 50.0]),
    },
)


@pytest.fixture(scope="module")
def known_runs(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedRun]:
    runs = [replace(RUN, workers=workers, steps=12, gpu=gpu) for workers, gpu in ((0, False), (1, True), (3, False))]
    return [recorded_of(tmp_path_factory.mktemp("made"), run) for run in runs]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2), changes)
def test_any_setup_has_a_prediction(known_runs: list[RecordedRun], which: int, changes: dict[str, Any]) -> None:
    known = known_runs[which]
    setup: FeedSetup = replace(known.setup, **changes)
    prediction = predicted(known, setup)
    assert 0 < prediction.low_us <= prediction.step_us <= prediction.high_us < float("inf")


def replayed(folder: Path, step_us: int) -> RecordedRun:
    """Of 60 steps, 20 are observed; 20 were replayed, of which 4 belong to the change and the others take so long."""
    session = made_session(folder, replace(RUN, workers=4))
    trainer = session.trainers[0]
    ends = trainer.steps.end
    trainer.windows = [MeasuredWindow("observe", 8, 20, 0, ends[7], ends[27])]
    trainer.windows.append(MeasuredWindow("replay", 28, 20, 4, ends[27], ends[47]))
    for row in range(32, 48):
        trainer.steps.start[row] = trainer.steps.end[row] - step_us
    for column in msgspec.structs.astuple(trainer.gets):
        del column[28:]
    return recorded_in(session)


def test_the_floor_is_the_replayed_step_where_there_is_one(tmp_path: Path) -> None:
    known = replayed(tmp_path, 7_000)
    assert known.replay_us == known.unhindered_us() == pytest.approx(7_000)
    assert (known.steps.compute + known.steps.wait).mean() == pytest.approx(7_000)
    assert len(known.steps) == 20


def rank_view(rank: int, pid: int, *, peer_wait_us: float, data_wait_us: float) -> RankView:
    return RankView(rank, pid, 10_000, 0.5, 0.0, peer_wait_us, None, data_wait_us, None)


@pytest.mark.parametrize(("peers_data_wait_us", "left_us"), [(9_000, 5_000), (1_000, 7_000), (0, 8_000)])
def test_waiting_for_peers_that_wait_is_no_computing(peers_data_wait_us: float, left_us: float, tmp_path: Path) -> None:
    """Of 8 ms of a step, 3 are waiting for a peer: as far as that waits for data itself."""
    session = made_session(tmp_path, RUN)
    own = rank_view(0, 100, peer_wait_us=3_000, data_wait_us=0)
    peer = rank_view(1, 200, peer_wait_us=0, data_wait_us=peers_data_wait_us)
    known = recorded_in(session, [own, peer])
    assert (known.steps.compute + known.steps.wait).mean() == pytest.approx(left_us)


def test_other_programs_are_told_by_what_ours_waited_for_them(tmp_path: Path) -> None:
    """A batch takes 20 ms, of which 10 are waiting for the only core: another program had the other half of it."""
    run = replace(RUN, stages={"decode:PIL.Image.load": 20_000}, forward=100, backward=100, optimizer=100)
    ours = machine(cores=1.0)
    ours.time = list(range(0, 2_000_000, 100_000))
    ours.columns = {"cpu_cores_other": [0.5] * len(ours.time), "cpu_cores_busy": [1.0] * len(ours.time)}
    session = made_session(tmp_path, run, machines=[ours])
    for maker in session.makers:
        maker.batches.delay = [10_000] * len(maker.batches.index)
    known = recorded_in(session)
    assert known.setup.others == pytest.approx(1.0, abs=0.15)
    assert known.fit.gap == pytest.approx(0.0, abs=0.1)
    alone = predicted(known, replace(known.setup, others=0.0))
    assert alone.step_us == pytest.approx(10_300, rel=0.1)


def test_what_receiving_took_longer_than_usual_is_no_work(tmp_path: Path) -> None:
    session = made_session(tmp_path, replace(RUN, workers=4))
    before = recorded_in(session)
    gets = session.trainers[0].gets
    gets.unpickle_cpu = list(gets.unpickle)
    gets.unpickle = [40_000 if row % 9 == 0 else us for row, us in enumerate(gets.unpickle)]
    after = recorded_in(session)
    assert after.batches.receive.max() <= 3 * 300 + 1
    assert float(sum(sorted(after.batches.receive)[:40])) == float(sum(sorted(before.batches.receive)[:40]))


def test_a_late_hand_over_is_no_work_and_goes_with_what_it_waits_for(tmp_path: Path) -> None:
    """Of 20 ms that unpickling takes, 1 is computing, and as much a round trip. Of the 20 ms of the next batch, the
    only worker has 12 before it when it is asked for this one's tensors."""
    session = made_session(tmp_path, replace(RUN, unpickle=20_000))
    trainer = session.trainers[0]
    trainer.gets.unpickle_cpu = [1_000] * len(trainer.gets.start)
    known = recorded_in(session)
    assert known.batches.receive.mean() == pytest.approx(2_000, rel=0.1)
    assert known.batches.held.max() == pytest.approx(12_000)
    half = known.batches.changed({"decode": StageChange(cpu=0.0, wait=0.0)})
    assert half.held.mean() == pytest.approx(known.batches.held.mean() / 2, rel=0.1)


@pytest.mark.parametrize("computed_us", [40_500, 17_500])
def test_threads_that_share_the_work_are_counted(tmp_path: Path, computed_us: int) -> None:
    """Of 20 ms of a batch, the first thread computes 10."""
    session = made_session(tmp_path, RUN, machines=[machine(cores=16.0)])
    for maker in session.makers:
        maker.batches.cpu = [computed_us] * len(maker.batches.index)
    known = recorded_in(session)
    assert known.setup.worker_threads == pytest.approx((computed_us - 500) / 10_000)
    assert known.batches.wait.mean() == pytest.approx(10_000)


def test_a_pass_begins_when_its_workers_take_up_their_first_batches(tmp_path: Path) -> None:
    """worker_init_fn runs between the start of a worker's loop and that."""
    session = made_session(tmp_path, replace(RUN, workers=2, facts={"length": 30}))
    before = recorded_in(session)
    for maker in session.makers:
        maker.begun = maker.batches.start[0] - 70_000
    after = recorded_in(session)
    assert after.passes.begin == before.passes.begin


def test_what_first_batches_take_more_is_changed_with_their_stages(tmp_path: Path) -> None:
    """Of a dataset that is iterated, each pass has first ones. The first one of the only worker scans for 100 ms."""
    for is_iterable in (False, True):
        run = replace(RUN, facts={"iterable": is_iterable})
        session = made_session(tmp_path / str(is_iterable), run)
        (maker,) = session.makers
        maker.stages.append("scan:tarfile headers")
        maker.batches.stages[0].append((len(maker.stages) - 1, 1, 100_000, 100_000))
        known = recorded_in(session)
        assert known.passes.iterates is is_iterable
        assert "scan:tarfile headers" not in known.batches.stages
        assert known.first_batch["scan:tarfile headers"].compute == pytest.approx([100_000])
