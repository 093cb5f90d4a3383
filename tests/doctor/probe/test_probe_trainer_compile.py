"""torch.compile in a process that is observed: nothing of ours is compiled, and no graph is broken or built anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from probing import notes, records, settings

from headrace.doctor.attach.injection import probe_environment

SCRIPT = str(Path(__file__).parents[1] / "compile_cases.py")


def _compiled(folder: Path | None, *cases: str) -> dict[str, Any]:
    """What the script prints; observed, where there is a folder."""
    env = dict(os.environ)
    if folder is not None:
        settings(folder).write()
        env = probe_environment(folder, env)
    run = subprocess.run([sys.executable, SCRIPT, *cases], env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


@pytest.mark.long
def test_whole_graphs_stay_whole(tmp_path: Path) -> None:
    cases = _compiled(tmp_path, "eager", "collective")
    assert [case["result"] for case in cases.values()] == [[0.0, 2.0, 4.0], [2.0, 2.0]]
    assert {(case["graphs"], case["breaks"], case["recompiles"]) for case in cases.values()} == {(1, 0, 0)}
    assert "compile" in notes(tmp_path)


@pytest.mark.long
def test_all_is_compiled_as_without_the_probe(tmp_path: Path) -> None:
    plain, observed = _compiled(None), _compiled(tmp_path)
    for case in (*plain.values(), *observed.values()):
        case.pop("frames")  # those without a graph: an optimizer's frames are fewer where hooks are called in them
    assert observed == plain
    assert "hook-off" not in notes(tmp_path)
    assert len(records(tmp_path, "step")) == 12  # of compiled autograd, whose optimizer is not compiled
    assert records(tmp_path, "ready") == []
