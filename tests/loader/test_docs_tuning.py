"""The example of docs/tuning.md, run as it stands there, and what its tables promise."""

from __future__ import annotations

import pytest
from docs_pages import examples, section
from loader_data import write_folder

from headrace.loader.autotuning.tuned_pass import WINDOW_S, WINDOW_STEPS
from headrace.loader.autotuning.tuner import MOST_PREFETCH, START_PREFETCH, tuner_of


def test_the_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "train", 8)
    scope: dict = {}
    exec(examples("tuning.md")[0], scope)
    out = capsys.readouterr().out
    assert out.startswith(f"{scope['loader'].threads} 3\n")
    assert "prefetch 3 (tuned: as it began)" in out
    assert (scope["fixed"].threads, scope["fixed"].prefetch) == (2, 4)


@pytest.mark.parametrize(
    "words", [f"begins with {START_PREFETCH} batches; 2 to {MOST_PREFETCH}", f"at least {WINDOW_S} s"]
)
def test_its_numbers(words):
    assert words in " ".join(section("tuning.md").split())


def test_a_window_begins_after_the_first_four():
    assert tuner_of(1, None).setting.prefetch + 1 == WINDOW_STEPS == 4
