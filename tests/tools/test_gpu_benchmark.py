"""benchmarks/gpu.py: what it says without a device, that all it names is there, and the page of made steps."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu", BENCHMARKS / "gpu.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu", module)
    spec.loader.exec_module(module)
    return module


def test_without_a_device_it_says_what_it_would_run_and_writes_nothing(gpu, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--page", str(tmp_path / "gpu.md"), "--photos", str(tmp_path)])
    gpu.main()
    said = capsys.readouterr().out
    assert said.startswith("torch sees no CUDA device here.")
    for name in ("device_loader.py", "device_colour.py", "device_training.py"):
        assert f"python benchmarks/{name}" in said
    assert "tests/device/test_device_cuda.py" in said
    assert not (tmp_path / "gpu.md").exists()


def test_what_it_names_is_there_and_fits_into_ten_minutes(gpu, tmp_path):
    planned = [*gpu.steps(tmp_path), *gpu.rehearsal(tmp_path)]
    files = [Path(part) for step in planned for part in step.command if part.endswith(".py")]
    assert files
    assert [file for file in files if not file.exists()] == []
    assert gpu.LIMIT_S < 600


def test_the_page_has_what_was_printed_and_how_each_ended(gpu):
    def step(title, code, limit_s=60):
        return gpu.Step(title, (sys.executable, "-S", "-c", code), limit_s)

    planned = [
        step("One", "print('figure 1')"),
        step("Two", "raise SystemExit('no device')"),
        gpu.Step("Three", ("sh", "-c", "echo begun; sleep 60"), 0.5),  # which starts soon on a busy machine, too
    ]
    outcomes = list(gpu.run(planned, 30))
    assert [outcome.ended for outcome in outcomes] == ["done", "failed", "out of time"]
    text = gpu.page(["a device"], outcomes)
    assert "- a device" in text
    for part in ("```\nfigure 1\n```", "**Failed.**\n\n```\nno device\n```", "**Out of time.**\n\n```\nbegun\n```"):
        assert part in text
    (late,) = gpu.run(planned[:1], 0)
    assert late.ended == "out of time"
