"""The loader whose samples are looked at once a run has been measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from probed import run_probed

from headrace.doctor.explain.look import read_look

_SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(DataLoader(TensorDataset(torch.rand(400, 4)), batch_size=2))
for _ in range(150):
    model(next(batches)[0]).sum().backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_loader_that_its_iterator_alone_holds_is_looked_at(tmp_path: Path) -> None:
    script, evidence = tmp_path / "train.py", tmp_path / "evidence"
    script.write_text(_SCRIPT)
    evidence.mkdir()
    ran = run_probed([sys.executable, str(script)], evidence, observe=False, warmup=2, steps=6, replay=6, look_s=5.0)
    assert ran.returncode == 0, ran.stderr
    assert read_look(evidence / "look").length == 400
