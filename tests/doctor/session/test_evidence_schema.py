"""Declared records: what the probe writes fits them, and a field declared once reaches session and documentation."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import torch
from evidence_checks import check_record
from made_sessions import process, read, write_evidence, write_settings
from probing import all_records, probed
from training_loops import Loop, loader

from headrace.doctor.probe.training import steps, windows
from headrace.doctor.session import declaring, evidence_reader, trainers
from headrace.doctor.session.declaring import KINDS, Table, Tenths, Time, listed, recorded, told
from headrace.doctor.session.storage import encode_session

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


@dataclass
class Bumps(Table):
    """Bumps of the desk."""

    start: list[Time] = listed("when the desk was bumped")
    force: list[Tenths | None] = listed("of the bump")


def test_a_field_is_declared_once(tmp_path, monkeypatch, pages):
    monkeypatch.setattr(declaring, "KINDS", kinds := dict(KINDS))
    recorded("trainer", {"bump": "Bump of the desk."})(Bumps)
    monkeypatch.setattr(pages, "KINDS", kinds)
    assert '| `["bump", start, force]` | Bump of the desk. start: when the desk was bumped. force: of the bump. |' in (
        "".join(pages.records())
    )

    @dataclass
    class BumpedTrainer(trainers.Trainer):
        bumps: Bumps = told("bumps of the desk", default_factory=Bumps, rows_of="bump")

    monkeypatch.setattr(evidence_reader, "KINDS", kinds)
    monkeypatch.setattr(evidence_reader.trainers, "Trainer", BumpedTrainer)
    lines = msgspec.json.Decoder(kinds["bump"].line | kinds["process"].line | kinds["step"].line)
    monkeypatch.setattr(evidence_reader, "decode_record", lines.decode)
    write_settings(tmp_path)
    write_evidence(tmp_path, "one", [process(7), ["step", 0, 1, 2], ["bump", 5, 25], ["bump", 6]])
    session = read(tmp_path)
    (trainer,) = session.trainers
    assert trainer.bumps == Bumps(start=[5, 6], force=[2.5, None])
    assert declaring.marks_of(Bumps)["start"] == declaring.TIME  # merging moves it to the other clock
    (document,) = json.loads(encode_session(session))["trainers"]
    assert document["bumps"] == {"start": [5, 6], "force": [2.5, None]}
