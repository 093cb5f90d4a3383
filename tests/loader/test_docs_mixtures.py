"""The examples of docs/sampling.md, run as they stand there but for the number of steps."""

from __future__ import annotations

import numpy as np
import pytest
from docs_pages import examples
from loader_data import encode, photograph
from PIL import Image

EXAMPLES = examples("sampling.md", "Mixtures")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the examples, one after the other, beside two small datasets."""
    rng = np.random.default_rng(0)
    for name, count in (("hypersim", 36), ("vkitti", 9)):
        for kind in ("images", "depth"):
            (tmp_path / name / kind).mkdir(parents=True)
        for number in range(count):
            (tmp_path / name / "images" / f"{number}.jpg").write_bytes(encode(photograph(number, 96, 64), quality=80))
            depth = rng.integers(1, 9000, (64, 96)).astype(np.uint16)
            Image.fromarray(depth).save(tmp_path / name / "depth" / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    def execute(example):
        exec(example, names)
        return names

    return execute


def test_there_are_two_examples():
    assert len(EXAMPLES) == 2


def test_batches_of_one_source_each(run, capsys):
    mixed = run(EXAMPLES[0])["mixed"]
    lines = capsys.readouterr().out.splitlines()
    assert mixed.window == 10
    assert len(lines) == len(mixed) == 30  # vkitti's 3 batches at a tenth of all
    assert sum(line.startswith("vkitti") for line in lines) == 3
    assert {line.split(" ", 1)[1] for line in lines if line.startswith("vkitti")} >= {"torch.Size([4, 3, 192, 320])"}
    assert any("256, 256" in line for line in lines)


def test_mixed_batches(run, capsys):
    run(EXAMPLES[0])
    capsys.readouterr()
    names = run(EXAMPLES[1])
    assert len(names["mixed"]) == 100
    assert capsys.readouterr().out == "tensor(2)\n"
