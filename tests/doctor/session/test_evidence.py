"""Declared records: what the probe writes fits them, they reach session and documentation, and stay small."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from probing import all_records, check_record, probed
from training_loops import Loop, loader

from headrace.doctor.probe.training import steps, windows
from headrace.doctor.session import producers, trainers
from headrace.doctor.session.evidence import KINDS

COMMON = {"process", "name", "torch", "facts", "end", "loader", "pass", "get", "last", "step", "batch"}
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
    assert letters | {steps.WORK, steps.UNSOURCED} == set(trainers.SPANS)
    assert {windows.OBSERVE, windows.REPLAY} == set(trainers.WINDOWS)


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


PROMISED_BYTES = 50_000_000
PROMISED_STEPS = 10_000 * 8
"""Of all ranks."""
LONGER_TIMES = 30
"""Bytes a step that times late in a run need beyond those of its first seconds: three digits in each of ten."""


@pytest.fixture
def make_evidence(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    from made_evidence import make_evidence

    yield make_evidence
    del sys.modules["made_evidence"]


def test_a_steps_evidence_keeps_the_promise(make_evidence, tmp_path):
    sizes = []
    for count in (100, 400):
        folder = tmp_path / str(count)
        make_evidence(folder, steps=count, ranks=1, workers=4)
        sizes.append(sum(path.stat().st_size for path in (folder / "evidence").iterdir()))
    a_step = (sizes[1] - sizes[0]) / 300
    assert 300 < a_step + LONGER_TIMES <= PROMISED_BYTES / PROMISED_STEPS
