"""Proofs: which are tried, in which order, the time they may take, and what ends them: by a clock and made runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_sessions import MadeRun, made_session, read, write_run, write_settings

from headrace.doctor.causes import Prescription, Remedy
from headrace.doctor.prove.prover import Prover, attempts, joined, remedy_attempts, tried_together
from headrace.doctor.prove.trial import (
    FEWEST_STEPS,
    GRACE_S,
    STEPS,
    BaselinePace,
    ComparedSamples,
    Trial,
    TrialRequest,
    step_durations,
)
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import BatchDigest
from headrace.doctor.simulate.prediction import Prediction

WORKERS = {"loaders": {"0": {"num_workers": 4}}}
PREFETCH = {"loaders": {"0": {"prefetch_factor": 4}}}
TAR = {"indexed_tar": True}
DIGESTS = [BatchDigest(0, "a", "k", [[1.0, 2.0]])]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Steps of 20 ms and a first one after 0.1 s at most, of an epoch of 1000 batches."""
    folder = tmp_path_factory.mktemp("session")
    write_settings(folder, warmup=5)
    slow = {"decode:PIL.Image.load": 38_000}
    write_run(folder, MadeRun(steps=60, workers=2, stages=slow, facts={"length": 1000}))
    session = read(folder)
    session.trainers[0].digests = DIGESTS
    return session


class Runs:
    """Stands in for the command: takes `seconds` of a clock, and comes to what `outcome` says of the changes."""

    def __init__(self, outcome: Callable[[dict[str, Any]], tuple[str, int]], seconds: float = 1.0) -> None:
        self._outcome = outcome
        self._seconds = seconds
        self.now = 0.0
        self.orders: list[TrialRequest] = []
        self.content = "a"
        self.lines: list[str] = []

    def __call__(self, order: TrialRequest) -> Trial:
        self.orders.append(order)
        self.now += self._seconds
        why, step_us = self._outcome(order.changes)
        samples = ComparedSamples({0: [BatchDigest(0, self.content, "k", [[9.0, 5.0]])]}, False)
        return Trial(why, "", round(self._seconds * 1e6), [step_us] * order.steps, samples)


OBSERVED_US = 100_000.0


def remedy(code: str, step_us: float | None, *, helps: bool = True, changes: dict[str, Any] | None = None) -> Remedy:
    predicted = None if step_us is None else Prediction(step_us, step_us, step_us, OBSERVED_US / step_us)
    return Remedy(code, code, helps, "why", predicted, "high", changes=changes)


def prove(session: Session, runs: Runs, *remedies: Remedy, budget_s: float = 120.0) -> Prover:
    pace = BaselinePace.of(session)
    assert pace is not None
    prover = Prover(session, pace, runs, runs.lines.append, budget_s, clock=lambda: runs.now)
    prover.prove(remedy_attempts(Prescription(None, "", "", list(remedies)), prover))
    return prover


def proofs_of(session: Session, runs: Runs, *remedies: Remedy, budget_s: float = 120.0) -> list[Proof]:
    """Proofs of remedies: those without are the command's, unchanged."""
    return [one for one in prove(session, runs, *remedies, budget_s=budget_s).proofs if one.remedies]


BOTH = (remedy("workers", 12_000.0, changes=WORKERS), remedy("indexed-tar", 15_000.0, changes=TAR))


def said(proofs: list[Proof]) -> list[tuple[list[str], str, str | None]]:
    return [(proof.remedies, proof.why, proof.samples) for proof in proofs]


def test_each_is_tried_and_then_all_together(session: Session) -> None:
    runs = Runs(lambda changes: ("measured", 12_000 if changes else 20_000))
    proofs = proofs_of(session, runs, *BOTH)
    together = ["workers", "indexed-tar"]
    tried = [["workers"], ["indexed-tar"], together]
    assert said(proofs) == [(each, "measured", "same") for each in tried]
    assert [order.changes for order in runs.orders] == [{}, WORKERS, {}, TAR, {}, {**WORKERS, **TAR}, {}]
    assert [order.steps for order in runs.orders] == [60] * 7


@pytest.mark.parametrize(("control_us", "are_tried"), [(30_000, True), (14_000, False)])
def test_what_is_together_gained_beside_the_shorter_run(session: Session, control_us: int, are_tried: bool) -> None:
    """Steps took 20 ms when they were measured."""
    runs = Runs(lambda changes: ("measured", 15_000 if changes else control_us))
    found = prove(session, runs, *BOTH).proofs
    proofs, controls = [one for one in found if one.remedies], [one for one in found if not one.remedies]
    assert [proof.remedies for proof in proofs[:2]] == [["workers"], ["indexed-tar"]]
    assert (len(proofs) == 3) is are_tried
    assert [one.steps for one in controls] == [[control_us] * 60] * (4 if are_tried else 3)


@pytest.mark.parametrize("why", ["broke", "timed out"])
def test_remedies_are_not_blamed_for_a_command_that_runs_only_once(session: Session, why: str) -> None:
    runs = Runs(lambda changes: (why, 0))
    proofs = proofs_of(session, runs, *BOTH)
    assert [proof.why for proof in proofs] == ["not tried", "not tried"]
    assert "without remedies" in proofs[0].detail
    assert len(runs.orders) == 1


def test_one_that_breaks_the_script_is_left_out_of_the_rest(session: Session) -> None:
    runs = Runs(lambda changes: ("broke", 0) if changes == TAR else ("measured", 12_000 if changes else 20_000))
    proofs = proofs_of(session, runs, *BOTH, remedy("prefetch", 16_000.0, changes=PREFETCH))
    assert [proof.why for proof in proofs] == ["measured", "broke", "measured", "measured"]
    assert proofs[-1].remedies == ["workers", "prefetch"]
    assert proofs[1].samples is None


@pytest.mark.parametrize(("again", "samples"), [("b", None), ("a", "different")])
def test_other_samples_count_where_the_run_itself_repeats(session: Session, again: str, samples: str | None) -> None:
    """As the control says."""

    def outcome(changes: dict[str, Any]) -> tuple[str, int]:
        runs.content = "x" if changes else again
        return "measured", 12_000

    runs = Runs(outcome)
    proofs = proofs_of(session, runs, *BOTH)
    assert [proof.samples for proof in proofs][:2] == [samples, samples]


def test_ctrl_c_in_a_run_ends_all_and_keeps_what_was_proved(session: Session) -> None:
    runs = Runs(lambda changes: ("interrupted", 0) if changes == TAR else ("measured", 12_000))
    proofs = proofs_of(session, runs, *BOTH, remedy("prefetch", 16_000.0, changes=PREFETCH))
    assert [proof.why for proof in proofs] == ["measured", "interrupted"]


def test_ctrl_c_around_a_run_does_the_same(session: Session) -> None:
    def outcome(changes: dict[str, Any]) -> tuple[str, int]:
        if changes == TAR:
            raise KeyboardInterrupt
        return "measured", 12_000

    proofs = proofs_of(session, Runs(outcome), *BOTH)
    assert said(proofs) == [(["workers"], "measured", "same"), (["indexed-tar"], "interrupted", None)]


def test_ctrl_c_once_a_run_is_announced_does_the_same(session: Session) -> None:
    class Interrupting(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            raise KeyboardInterrupt

    runs = Runs(lambda changes: ("measured", 12_000))
    runs.lines = Interrupting()
    assert said(prove(session, runs, *BOTH).proofs) == [([], "interrupted", None)]
    assert runs.orders == []


def test_what_does_not_fit_into_the_time_is_not_tried(session: Session) -> None:
    """Nor is what leaves no time for a control run."""
    runs = Runs(lambda changes: ("measured", 12_000), seconds=4.0)
    proofs = proofs_of(session, runs, *BOTH, budget_s=14.0)
    assert [proof.why for proof in proofs] == ["measured", "not tried"]
    assert "14 s" in proofs[1].detail
    assert [order.changes for order in runs.orders] == [{}, WORKERS, {}]


def test_fewer_steps_are_measured_where_time_is_short(session: Session) -> None:
    pace = BaselinePace.of(session)
    assert pace is not None
    runs = Runs(lambda changes: ("measured", 20_000), seconds=pace.seconds(20, None))
    one = remedy("workers", 20_000.0, changes=WORKERS)
    proofs = proofs_of(session, runs, one, budget_s=pace.seconds(30, 20_000.0) + pace.seconds(20, None))
    assert [len(proof.steps) for proof in proofs] == [pytest.approx(30, abs=1)]


def test_a_run_that_hangs_is_given_some_times_what_it_should_take(session: Session) -> None:
    runs = Runs(lambda changes: ("timed out" if changes else "measured", 12_000))
    [proof] = proofs_of(session, runs, BOTH[0])
    assert proof.why == "timed out"
    assert runs.orders[1].most_s == 30.0  # the least that any is given


def test_no_run_goes_far_beyond_the_time_for_all(session: Session) -> None:
    runs = Runs(lambda changes: ("timed out", 0))
    proofs_of(session, runs, BOTH[0], budget_s=8.0)
    assert 8.0 <= runs.orders[0].most_s <= 8.0 + GRACE_S


def test_whole_epochs_are_measured_where_one_is_short() -> None:
    pace = BaselinePace(1.0, 5, 10_000.0, 25)
    assert pace.steps_within(100.0, None) == 50
    assert replace(pace, epoch_steps=400).steps_within(100.0, None) == 60
    assert replace(pace, epoch_steps=7).steps_within(100.0, None) == 60
    assert pace.steps_within(4.1, None) == 0


PACE = BaselinePace(start_s=4.0, warmup=10, step_us=100_000.0, epoch_steps=500)
FIXED_S = 4.0 + 3.0 + 1.0  # the start, the end, the warm-up


def test_a_run_is_a_start_a_warm_up_steps_and_an_end() -> None:
    assert PACE.seconds(60, None) == pytest.approx(FIXED_S + 6.0)
    assert PACE.seconds(60, 50_000.0) == pytest.approx(FIXED_S + 3.0)
    assert PACE.seconds(60, 500_000.0) == pytest.approx(FIXED_S + 6.0)  # nothing is tried that is expected to be slower


@pytest.mark.parametrize(
    ("seconds", "steps"),
    [(1000.0, STEPS), (FIXED_S + 4.05, 40), (FIXED_S + 2.05, FEWEST_STEPS), (FIXED_S + 1.9, 0), (-5.0, 0)],
)
def test_as_many_steps_as_fit_are_measured_but_no_few(seconds: float, steps: int) -> None:
    assert PACE.steps_within(seconds, None) == steps


def test_steps_and_epochs_are_those_of_the_slowest_rank(tmp_path: Path) -> None:
    ranks = [MadeRun(rank=0, pid=100, facts={"length": 90}), MadeRun(rank=1, pid=200, logging=9_000, forward=30_000)]
    session = made_session(tmp_path, *ranks, settings={"warmup": 5})
    pace = BaselinePace.of(session)
    durations = step_durations(session)
    assert pace is not None
    assert len(durations) >= 30
    assert min(durations) >= 41_000  # 9 + 30 + 2, and the optimizer's half
    assert pace.step_us == pytest.approx(sum(durations) / len(durations))
    assert pace.warmup == 5


def test_an_epoch_is_counted_in_steps(tmp_path: Path) -> None:
    pace = BaselinePace.of(made_session(tmp_path, MadeRun(facts={"length": 90}), settings={"warmup": 5}))
    assert pace is not None
    assert pace.epoch_steps == 90


def proof(code: str, step_us: int, *, why: str = "measured", samples: str | None = "same", **changes: Any) -> Proof:
    return Proof([code], changes or {code: True}, why, steps=[step_us] * 20, samples=samples)


def test_those_that_help_and_can_be_injected_are_tried_the_shortest_step_first() -> None:
    loaders = {"loaders": {"0": {"num_workers": 4}}}
    prescription = Prescription(
        None,
        "",
        "",
        [
            remedy("larger-batch", None, changes=None),
            remedy("device-prefetch", None, changes={"device_prefetch": True}),
            remedy("prefetch", 90_000.0, changes={"loaders": {}}),
            remedy("workers", 50_000.0, changes=loaders),
            remedy("indexed-tar", 10_000.0, helps=False, changes={"indexed_tar": True}),
            remedy("ddp", 20_000.0),
        ],
    )
    tried = attempts(prescription)
    assert [one.remedies for one in tried] == [["workers"], ["prefetch"], ["device-prefetch"]]
    assert tried[0].changes == loaders
    assert [one.step_us for one in tried] == [50_000.0, 90_000.0, None]


def test_together_are_those_that_proved_to_be_of_use() -> None:
    few, other = proof("workers", 60_000), proof("cache", 50_000, samples="different")
    broke, unsure = proof("threads", 40_000, why="broke"), proof("indexed_tar", 30_000, samples=None)
    proofs = [few, other, broke, unsure, proof("staging", 101_000), proof("prefetch", 103_000)]
    found = tried_together(proofs, OBSERVED_US)
    assert found is not None
    assert found.remedies == ["indexed_tar", "workers"]  # the most useful first; none that gained nothing
    assert found.changes == {"indexed_tar": True, "workers": True}
    assert found.step_us == 30_000


@pytest.mark.parametrize("proofs", [[], [proof("workers", 60_000)], [proof("a", 60_000), proof("b", 110_000)]])
def test_one_alone_is_not_tried_again(proofs: list[Proof]) -> None:
    assert tried_together(proofs, OBSERVED_US) is None


def test_two_that_come_to_the_same_are_not_tried_again() -> None:
    few, many = ({"0": {"num_workers": count}} for count in (2, 8))
    assert tried_together([proof("few", 60_000, loaders=few), proof("many", 50_000, loaders=many)], OBSERVED_US) is None


def test_changes_of_one_loader_are_joined_and_the_more_useful_has_its_way() -> None:
    first = {"loaders": {"0": {"num_workers": 4, "prefetch_factor": 2}}}
    second = {"loaders": {"0": {"num_workers": 8, "pin_memory": True}, "1": {"num_workers": 1}}, "indexed_tar": True}
    both = {"0": {"num_workers": 4, "prefetch_factor": 2, "pin_memory": True}, "1": {"num_workers": 1}}
    assert joined(first, second) == {"loaders": both, "indexed_tar": True}
    assert first == {"loaders": {"0": {"num_workers": 4, "prefetch_factor": 2}}}
