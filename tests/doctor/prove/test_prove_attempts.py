"""Which remedies are tried, in which order, and which of them together."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.doctor.causes import Prescription, Remedy
from headrace.doctor.prove.remedies import attempts, joined, tried_together
from headrace.doctor.session.after_run import Proof
from headrace.doctor.simulate.prediction import Prediction

OBSERVED_US = 100_000.0


def remedy(code: str, step_us: float | None, *, helps: bool = True, changes: dict[str, Any] | None = None) -> Remedy:
    predicted = None if step_us is None else Prediction(step_us, step_us, step_us, OBSERVED_US / step_us)
    return Remedy(code, code, helps, "why", predicted, "high", changes=changes)


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
    proofs = [
        proof("workers", 60_000),
        proof("cache", 50_000, samples="different"),
        proof("threads", 40_000, why="broke"),
        proof("indexed_tar", 30_000, samples=None),
        proof("staging", 101_000),
        proof("prefetch", 103_000),
    ]
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
    assert joined(first, second) == {
        "loaders": {"0": {"num_workers": 4, "prefetch_factor": 2, "pin_memory": True}, "1": {"num_workers": 1}},
        "indexed_tar": True,
    }
    assert first == {"loaders": {"0": {"num_workers": 4, "prefetch_factor": 2}}}
