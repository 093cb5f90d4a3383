"""Declared records: what the probe writes fits them, and they reach session and documentation."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from evidence_checks import check_record
from probing import all_records, probed
from training_loops import Loop, loader

from headrace.doctor.probe.training import steps, windows
from headrace.doctor.session import producers, trainers
from headrace.doctor.session.evidence import KINDS

COMMON = {"process", "name", "torch", "facts", "end", "loader", "pass", "get", "last", "step", "batch", "probe"}
PAGES = Path(__file__).parents[3] / "scripts" / "doctor_pages.py"


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("doctor_pages", PAGES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_what_is_declared(pages):
    for page in pages.PAGES.glob("*.md"):
        assert pages.written(page.read_text()) == page.read_text(), "run scripts/doctor_pages.py"


@pytest.mark.parametrize("line", [["step", 0], ["step", 0, 1, "late"], ["no such kind"], ["ready", 1, 2, 3]])
def test_a_record_that_does_not_fit_is_refused(line: list[object]) -> None:
    with pytest.raises(AssertionError):
        check_record(line)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_training_writes_fits(tmp_path: Path, workers: int) -> None:
    with probed(tmp_path, observe=False, steps=10_000, digests=2):
        Loop().train(loader(40, num_workers=workers))
        assert torch.is_grad_enabled()
    written = all_records(tmp_path)  # which compares each with the declaration
    assert {line[0] for line in written} >= COMMON | {"digest"}


def test_the_probe_writes_spans_and_windows_that_are_declared():
    letters = {steps.BACKWARD, steps.OPTIMIZER, steps.SKIPPED, steps.COPY, steps.COLLECTIVE, steps.EVALUATION}
    assert letters | {steps.WORK, steps.UNSOURCED, steps.AHEAD} == set(trainers.SPANS)
    assert {windows.OBSERVE, windows.REPLAY, windows.LOAD, windows.DRAIN} == set(trainers.WINDOWS)


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (trainers.ReceivedBatches, "get"),
        (trainers.ReplayedBatches, "replayed"),
        (trainers.OptimizerSteps, "step"),
        (trainers.Collectives, "collective"),
        (trainers.BatchPadding, "padding"),
        (producers.ProducedBatches, "batch"),
    ],
)
def test_every_field_of_a_record_is_a_column(table: type[producers.Table], kind: str) -> None:
    assert set(KINDS[kind].__struct_fields__) <= set(table.__struct_fields__)
