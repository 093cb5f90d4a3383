"""Padding of sequences, from made sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine_findings import quantities
from made_sessions import MadeRun, read, simulate, write_evidence, write_settings
from report_pages import said

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Diagnosis, Finding

RUN = MadeRun(forward=6_000, backward=12_000, stages={"getitem:x": 1_000})
"""The model takes nearly all of a step."""


def examined(folder: Path, *padding: tuple[int, int, int, int], pass_: int = 0) -> Diagnosis:
    """`padding`: rows, width, filled and longest of the batches that were looked at."""
    write_settings(folder)
    for name, records in simulate(RUN).items():
        looks = [["padding", pass_, 8 * place, *counts] for place, counts in enumerate(padding)]
        write_evidence(folder, name, [*records, *(looks if name.split("-")[1] == str(RUN.pid) else [])])
    return diagnose(read(folder))


def padding(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.code == "padding"]


def test_padding_to_a_maximum_costs_what_shorter_batches_would_save(tmp_path: Path) -> None:
    diagnosis = examined(tmp_path, (8, 512, 800, 200), (8, 512, 1_000, 312))
    (finding,) = padding(diagnosis)
    assert quantities(finding.text) == ["78 %", "512", "256"]
    assert quantities(finding.evidence)[:2] == ["50 %", "2"]
    model = sum(part.us for part in diagnosis.budgets[0].parts if part.name in ("forward", "backward"))
    assert finding.weight == pytest.approx(0.5 * model / diagnosis.budgets[0].mean_us)
    assert finding is diagnosis.findings[0]
    assert said(diagnosis).startswith("Not input-bound")
    assert said(diagnosis).endswith(finding.text)


def test_padding_to_the_batchs_longest_is_worth_a_word_where_it_is_much(tmp_path: Path) -> None:
    (finding,) = padding(examined(tmp_path, (8, 512, 2_048, 512)))
    assert quantities(finding.text)[:1] == ["50 %"]
    assert finding.weight == 0
    assert "about one length" in finding.advice


@pytest.mark.parametrize("counts", [(8, 512, 4_000, 500), (8, 512, 4_096, 512)])
def test_little_padding_is_not_spoken_of(tmp_path: Path, counts: tuple[int, int, int, int]) -> None:
    assert padding(examined(tmp_path, counts)) == []


def test_batches_that_no_step_waited_for_say_nothing(tmp_path: Path) -> None:
    assert padding(examined(tmp_path, (8, 512, 800, 200), pass_=7)) == []


def test_without_sequences_there_is_none(tmp_path: Path) -> None:
    assert padding(examined(tmp_path)) == []
