"""The trial of a Loader: against real Loaders on made images, and against modules that fail in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from headrace.doctor.adoption.trial import LoaderTrialRequest, tried_loader
from headrace.doctor.session.after_run import LoaderTrial

SHORT_S = 0.2
MOST_S = 60.0
"""Time limit of a trial on a machine that others use, too."""
IMAGES = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of small JPEGs."""
    root = tmp_path_factory.mktemp("images")
    pixels = np.random.default_rng(0).integers(0, 255, (IMAGES, 40, 60, 3), dtype=np.uint8)
    for number in range(IMAGES):
        path = root / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels[number]).save(path)
    return root


def module(folder: Path, first: str = "") -> str:
    """A module as `adoption` writes it; `first` comes before all that."""
    return textwrap.dedent(
        f"""
        {first}
        import headrace as hr

        def make_loader(batch_size=8):
            fields = {{"image": hr.Image(), "label": hr.Label()}}
            return hr.Loader({str(folder)!r}, fields, view=hr.Resize((32, 32)), batch_size=batch_size, shuffle=True)

        def batches(loader):
            for batch in loader:
                yield batch["image"], batch["label"]
        """
    )


def tried(text: str, **changes: object) -> LoaderTrial:
    given: dict[str, object] = {"alone_s": SHORT_S, "alongside_s": SHORT_S, "most_s": MOST_S}
    return tried_loader(LoaderTrialRequest(text, **(given | changes)))  # type: ignore[arg-type]


def files_in(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.long
def test_a_loader_is_measured(folder: Path) -> None:
    before = files_in(folder)
    found = tried(module(folder, 'print("junk", flush=True)'), step_us=(2_000.0, 20_000.0), team=1)
    assert (found.why, found.detail) == ("measured", "")
    assert found.batch_size == 8
    assert found.threads is not None
    assert found.cpu_us is not None
    assert found.peak_bytes is not None
    assert min(found.threads, found.cpu_us, found.first_us or 0) > 0
    assert found.batch_us
    assert all(us > 0 for us in found.batch_us)
    # A step of the stand-in waits for 20 ms at least, however fast batches come.
    assert found.stand_in_us is not None
    assert found.stand_in_us >= 20_000
    assert all(us >= 20_000 for us in found.loaded_us)
    assert found.samples >= 8 * (len(found.batch_us) + len(found.loaded_us))
    assert found.module == module(folder, 'print("junk", flush=True)')
    assert found.leaves == {"0": "uint8[8, 3, 32, 32]", "1": "int64[8]"}
    assert files_in(folder) == before


@pytest.mark.parametrize(
    ("first", "why", "detail"),
    [
        ('raise RuntimeError("no such <column>")', "failed", "RuntimeError: no such <column>"),
        ("raise SystemExit(3)", "failed", "SystemExit: 3"),
        ("import os; os.write(2, b'out of luck'); os._exit(7)", "failed", "exit status 7\nout of luck"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "failed", "signal 11"),
        ("import threading; threading.Event().wait()", "timed out", "importing took more than 1 s"),
        ("kept = [bytearray(b'x') * (1 << 26) for _ in range(10 ** 6)]", "out of memory", "it took more than 1.1 GB"),
    ],
)
@pytest.mark.one_in(6)
@pytest.mark.long
def test_a_module_that_goes_wrong_is_an_outcome(folder: Path, first: str, why: str, detail: str) -> None:
    most_s = 1.0 if why == "timed out" else MOST_S
    before = psutil.Process().children()
    found = tried(module(folder, first), most_s=most_s, most_bytes=1 << 30)
    assert found.why == why
    assert detail in found.detail
    assert psutil.Process().children() == before


def test_a_module_that_is_no_python_is_an_outcome() -> None:
    found = tried("def make_loader(:\n")
    assert found.why == "failed"
    assert "SyntaxError" in found.detail


@pytest.mark.long
def test_a_loader_without_samples_is_an_outcome(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = tried(module(tmp_path))
    assert found.why == "failed"
    assert str(tmp_path) in found.detail


@pytest.mark.long
def test_a_python_without_headrace_gives_way_to_the_next(tmp_path: Path, folder: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'headrace'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    text = module(folder, "raise SystemExit(3)")
    assert "headrace" in tried(text, interpreters=[str(bare)]).detail
    assert "SystemExit: 3" in tried(text, interpreters=[str(bare), sys.executable]).detail
    assert "/no/such/python" in tried(module(folder), interpreters=["/no/such/python"]).detail


@pytest.mark.long
def test_a_trial_ends_with_the_doctor(tmp_path: Path) -> None:
    """However the doctor ends: it is killed, and what the trial has started by then goes, too."""
    pids = tmp_path / "pids"
    text = f"""
        import os, subprocess, threading
        child = subprocess.Popen(["sleep", "1000"])
        open({str(pids)!r} + ".new", "w").write(f"{{os.getpid()}} {{child.pid}}")
        os.rename({str(pids)!r} + ".new", {str(pids)!r})
        threading.Event().wait()
    """
    code = (
        "from headrace.doctor.adoption.trial import LoaderTrialRequest, tried_loader\n"
        f"tried_loader(LoaderTrialRequest({textwrap.dedent(text)!r}, most_s=600))"
    )
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as doctor:
        _until(pids.exists)
        alive = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
        os.kill(doctor.pid, signal.SIGKILL)
    gone, left = psutil.wait_procs(alive, timeout=30)
    assert (len(gone), left) == (2, [])


def _until(is_so: object, limit_s: float = 60.0) -> None:
    until = time.monotonic() + limit_s
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.01)
