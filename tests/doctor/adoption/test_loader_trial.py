"""The trial of a Loader: when it is tried, on real Loaders and made images, and modules that fail in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from machine_findings import quantities
from made_prescriptions import ROOMY, made
from made_sessions import MadeRun, replace
from made_work import recorded_in
from PIL import Image

from headrace.doctor.adoption import Adoption, LoaderRecipe, loader_trial, module_text, trial, trial_process
from headrace.doctor.adoption.trial import LoaderTrialRequest, tried_loader
from headrace.doctor.causes import diagnose
from headrace.doctor.causes.loader import coverage, is_lost, is_unsure
from headrace.doctor.measure import main_view_of
from headrace.doctor.session.after_run import AdoptedPart, LoaderTrial
from headrace.doctor.session.model import Session

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


WAITING = MadeRun(stages={"decode:Pillow load": 36_000}, cpu=1.0)
BOUND = MadeRun(stages={"decode:Pillow load": 500})
PART = AdoptedPart("Resize(256)", "view", "hr.Resize(256)", "check", "the filter is not known")
RECIPE = LoaderRecipe(parts=(PART,), reason="One part is unknown.", degree="part")
LOOK = Path("/session/look")
DRAFT = Adoption(RECIPE, "import headrace as hr\n")


def asked_of(session: Session, adoption: Adoption | None) -> tuple[LoaderTrial | None, list[str]]:
    """What came of it, and what was said before."""
    view, said = main_view_of(session), list[str]()
    assert view is not None
    return loader_trial(session, view, diagnose(session).ranks, adoption, LOOK, said.append), said


def measured(run: MadeRun = WAITING, **outcome: Any) -> Session:
    session = made(run, facts=ROOMY | {"cores": 2})
    session.mode = "measure"
    for name, value in outcome.items():
        setattr(session.outcome, name, value)
    return session


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[LoaderTrialRequest]:
    """Requests of trials, none of which is made."""
    found: list[LoaderTrialRequest] = []

    def tried(request: LoaderTrialRequest) -> LoaderTrial:
        found.append(request)
        return LoaderTrial("failed", "not here", request.module)

    monkeypatch.setattr(trial, "tried_loader", tried)
    return found


def test_a_loader_that_is_waited_for_is_tried(requests: list[LoaderTrialRequest]) -> None:
    session = measured()
    found, said = asked_of(session, DRAFT)
    assert found is not None
    assert (found.why, found.degree, found.reason) == ("failed", "part", DRAFT.recipe.reason)
    assert found.parts == [PART]
    assert [quantities(line) for line in said] == [["10 s", "15 s"]]
    (request,) = requests
    run = recorded_in(session)
    assert (request.module, request.look) == (DRAFT.module_text, str(LOOK))
    assert request.cores == 2
    assert request.team == run.team
    assert sum(request.step_us) == pytest.approx(run.unhindered_us(), rel=0.01)


MADE = {"image": "float32[4, 3, 8, 8]", "label": "int64[4]", "path": "str"}


def exact(monkeypatch: pytest.MonkeyPatch, **outcome: Any) -> LoaderTrial:
    """The outcome for a recipe that was exact before its trial."""
    monkeypatch.setattr(trial, "tried_loader", lambda request: LoaderTrial("measured", **outcome))
    recipe = LoaderRecipe(fields={"image": "hr.Image()"}, degree="exact", covered=("image", "label"))
    found, _ = asked_of(measured(), Adoption(recipe, module_text(recipe, {})))
    assert found is not None
    assert found.covered == ["image", "label"]
    return found


def test_a_loader_whose_samples_differ_is_no_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = {"image": "same", "label": "different: by 3", "path": "drawn: 8 samples compared"}
    found = exact(monkeypatch, leaves=MADE, verified=verified)
    assert (found.degree, [part.part for part in found.parts]) == ("part", ["label"])
    for text in (found.reason, found.module):
        assert "by 3" in text
    assert exact(monkeypatch, leaves=MADE, verified=verified | {"label": "same"}).degree == "exact"


def test_a_drawn_array_is_told_with_the_samples_that_were_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = {"image": "drawn: 8 samples compared", "label": "same"}
    found = exact(monkeypatch, leaves=MADE, verified=verified)
    (part,) = found.parts
    assert (found.degree, part.part, part.certainty) == ("exact", "image", "drawn")
    assert not is_unsure(part)
    for text in (coverage(found), found.module):
        assert "8 samples" in text
    many = replace(found, parts=[replace(part, part=str(number)) for number in range(4)])
    assert "4 arrays" in coverage(many)


def test_a_batch_that_lacks_an_array_of_the_scripts_is_no_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = exact(monkeypatch, leaves=MADE, verified={"image": "same", "label": "same", "path": "different: leaves"})
    assert (found.degree, [part.part for part in found.parts]) == ("part", ["path"])
    assert all(is_lost(part) for part in found.parts)


@pytest.mark.parametrize(
    ("session", "figures"),
    [
        (measured(BOUND), ["0 %"]),
        (measured(why="failed"), []),
        (measured(why="interrupted"), []),
        (replace(measured(), mode="observe"), []),
    ],
    ids=["nothing waits", "failed", "interrupted", "observed"],
)
def test_where_it_is_not_tried(session: Session, figures: list[str], requests: list[LoaderTrialRequest]) -> None:
    found, said = asked_of(session, DRAFT)
    assert found is not None
    assert (found.why, quantities(found.detail), found.module, said) == ("not tried", figures, DRAFT.module_text, [])
    assert requests == []


def test_data_that_is_not_known_is_said_with_its_reason(requests: list[LoaderTrialRequest]) -> None:
    recipe = LoaderRecipe(reason="ffmpeg decodes.")
    found, _ = asked_of(measured(), Adoption(recipe, None))
    assert found is not None
    assert (found.why, found.degree, found.reason, found.module) == ("not tried", "no", "ffmpeg decodes.", "")
    assert asked_of(measured(), None)[0] is None
    assert requests == []


def test_the_scripts_own_python_comes_first(requests: list[LoaderTrialRequest]) -> None:
    session = measured()
    trainer = session.processes[0]
    argv = ["/opt/python", "-u", "/home/ada/train.py", "--lr", "1"]
    trainer.facts["process"] = {"executable": "/opt/python", "argv": argv}
    asked_of(session, DRAFT)
    assert requests[0].interpreters == ["/opt/python", sys.executable]
    assert requests[0].paths == ["/home/ada", os.getcwd()]


def test_batches_of_a_step_are_taken_in_turn_with_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, they would empty a queue that the step's own time fills."""
    calls: list[str] = []

    class StandIn:
        step_us = 1.0

        def __init__(self, order: LoaderTrialRequest) -> None:
            calls.clear()

        def step(self, parts: int) -> None:
            calls.append(f"part of {parts}")

    def endless(module: object, loader: object) -> Iterator[dict[str, np.ndarray]]:
        while True:
            calls.append("batch")
            yield {"x": np.zeros(2)}

    monkeypatch.setattr(trial_process, "TrainingStandIn", StandIn)
    monkeypatch.setattr(trial_process, "endless", endless)
    monkeypatch.setattr(trial_process, "module_of", lambda *_: SimpleNamespace(make_loader=lambda: None))
    order = LoaderTrialRequest("", alone_s=0.01, alongside_s=0.01, batches_a_step=3)
    trial_process.measure(order, tmp_path, lambda **_: None)
    assert calls[:6] == ["batch", "part of 3"] * 3
    assert len(calls) % 6 == 0
