"""The schema of evidence: what the probe writes and what the documentation says are what it describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from evidence_checks import check_record
from probing import all_records, probed
from training_loops import Loop, loader

from headrace.doctor.session.evidence_schema import RECORDS

PAGE = Path(__file__).parents[3] / "docs" / "doctor" / "evidence.md"
ROW = re.compile(r'^\| `\["(\w+)", (.+?)\]` \|', re.MULTILINE)
COMMON = {"process", "name", "torch", "facts", "end", "loader", "pass", "get", "last", "step", "batch", "probe"}


def test_the_documentation_names_each_kind_once() -> None:
    assert sorted(kind for kind, _ in ROW.findall(PAGE.read_text())) == sorted(RECORDS)


@pytest.mark.parametrize("kind", RECORDS)
def test_the_documentation_names_a_records_fields_in_order(kind: str) -> None:
    fields = dict(ROW.findall(PAGE.read_text()))[kind]
    documented = [name.strip(" ?#").replace("…", "") for name in fields.split(",")]
    if documented != [""]:  # as another kind of record
        assert documented == [name.rstrip("_") for name in RECORDS[kind].__struct_fields__]


@pytest.mark.parametrize("line", [["step", 0], ["step", 0, 1, "late"], ["no such kind"], ["ready", 1, 2, 3]])
def test_a_record_that_does_not_fit_is_refused(line: list[object]) -> None:
    with pytest.raises(AssertionError):
        check_record(line)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_training_writes_fits(tmp_path: Path, workers: int) -> None:
    with probed(tmp_path, observe=False, steps=10_000, digests=2):
        Loop().train(loader(40, num_workers=workers))
        assert torch.is_grad_enabled()
    written = all_records(tmp_path)  # which compares each with the schema
    assert {line[0] for line in written} >= COMMON | {"digest"}
