"""Patches of faults mend them in real scripts, and there is none where the place or the meaning is not certain."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from made_reports import made_session
from test_process_faults import START, run_of

from headrace.doctor.causes import diagnose, prescribe
from headrace.doctor.edits import files_here
from headrace.doctor.faults import add_patches, session_faults
from headrace.doctor.report import Outputs
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import LoaderFacts

STEP = """
def step(batch):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()

class Legacy(Noisy):
    def draw(self, index):
        return np.random.rand()
"""
SAME_ORDER = """
sampler = DistributedSampler(range(48), num_replicas=2, rank=0)
loader = DataLoader(Legacy(), batch_size=4, sampler=sampler)
for turn in range(2):
    model.train()
    for number, batch in enumerate(loader):
        step(batch)
"""
SAME_DRAWS = """
def init(worker):
    random.seed(worker)
    np.random.seed(42)

def main():
    loader = DataLoader(Legacy(), batch_size=4, num_workers=2, shuffle=True, worker_init_fn=init)
    for batch in loader:
        step(batch)
main()
"""
CLASS_ORDER = """
loader = DataLoader(Legacy(), batch_size=4)
for batch in loader:
    step(batch)
"""


def patched(session: Session) -> str:
    add_patches(session, files_here())
    (fault,) = session.faults
    subprocess.run(["patch", "-p1"], input=fault.patch, text=True, check=True, capture_output=True)
    return "\n".join(line for line in fault.patch.splitlines()[2:] if line[0] in "+-")


def test_a_patched_script_has_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, change = SAME_DRAWS, "-    np.random.seed(42)\n+    np.random.seed(torch.initial_seed() % 2**32)"
    monkeypatch.chdir(tmp_path)
    session = run_of(STEP + script, tmp_path)
    session.faults = session_faults(session)
    place, _, line = session.faults[0].place.rpartition(":")
    iterated = (tmp_path / "train.py").read_text().splitlines()[int(line) - 1]
    assert (place, iterated.split(" in ")[0].strip()[:3]) == (str(tmp_path / "train.py"), "for")
    assert patched(session) == change
    again = tmp_path / "again"
    again.mkdir()
    text = (tmp_path / "train.py").read_text().removeprefix(START)
    assert session_faults(run_of(text, again)) == []


def faulty(script: str, code: str, folder: Path, **facts: object) -> Session:
    """Return a session of a script whose last `for` iterates over the loader."""
    (folder / "train.py").write_text(START + STEP + script)
    lines = (START + STEP + script).splitlines()
    line = max(number for number, text in enumerate(lines, 1) if text.lstrip().startswith("for "))
    session, path = made_session(), str(folder / "train.py")
    known = {"file": path, "line": line, "num_workers": 0, "batch_size": 4, "pin_memory": False}
    session.trainers[0].loaders = [LoaderFacts(0, {**known, **facts})]
    evidence = "Workers 0 and 1 of pass 0 drew the same numbers from numpy.random: its states"
    session.faults = [DataFault(code, "certain", evidence, place=f"{path}:{line}")]
    return session


FACTORY = """
def make(part):
    return DataLoader(Legacy(), batch_size=4)
loader, held_out = make("train"), make("val")
for batch in loader:
    step(batch)
"""
DISTRIBUTED = {"described": {"sampler": {"class": "torch.utils.data.distributed.DistributedSampler"}}}
WRAPPED = {"described": {**DISTRIBUTED["described"], "wrapper": {"class": "accelerate.DataLoaderShard"}}}


@pytest.mark.parametrize(
    ("script", "code", "facts", "change"),
    [
        (CLASS_ORDER, "class-order", {}, "+loader = DataLoader(Legacy(), batch_size=4, shuffle=True)"),
        (SAME_ORDER, "same-order", DISTRIBUTED, "+    loader.sampler.set_epoch(turn)"),
        (SAME_DRAWS, "same-draws", {"num_workers": 2}, "+    np.random.seed(torch.initial_seed() % 2**32)"),
    ],
)
def test_the_line_of_a_patch(
    script: str, code: str, facts: Any, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert patched(faulty(script, code, tmp_path, **facts)).splitlines()[-1] == change


@pytest.mark.parametrize(
    ("script", "code", "facts"),
    [
        (FACTORY, "class-order", {}),
        (CLASS_ORDER.replace("batch_size=4", "batch_size=4, sampler=range(48)"), "class-order", {}),
        (CLASS_ORDER.replace("batch_size=4", "batch_size=4, shuffle=sys.argv == 3"), "class-order", {}),
        (SAME_ORDER, "same-order", WRAPPED),
        (SAME_ORDER, "same-order", {}),
        (SAME_ORDER.replace("range(2)", "epochs"), "same-order", DISTRIBUTED),
        (SAME_ORDER.replace("for turn in range(2)", "while True"), "same-order", DISTRIBUTED),
        (SAME_ORDER.replace("for turn in range(2)", "def fit(turn)"), "same-order", DISTRIBUTED),
        (SAME_ORDER.replace("enumerate(loader)", "enumerate(shown(loader))"), "same-order", DISTRIBUTED),
        (SAME_ORDER.replace("    model.train()", "    own.set_epoch(turn)"), "same-order", DISTRIBUTED),
        (SAME_DRAWS.replace("=init", "=lambda worker: np.random.seed(42)"), "same-draws", {"num_workers": 2}),
        (SAME_DRAWS.replace("np.random.seed(42)", "torch.manual_seed(42)"), "same-draws", {"num_workers": 2}),
        (SAME_DRAWS.replace("random.seed(worker)", "torch.manual_seed(worker)"), "same-draws", {"num_workers": 2}),
        (SAME_DRAWS, "same-draws", {"num_workers": 3}),
        (SAME_ORDER, "never-visited", DISTRIBUTED),
    ],
)
def test_no_patch_where_it_is_not_certain(
    script: str, code: str, facts: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = faulty(script, code, tmp_path, **facts)
    add_patches(session, files_here())
    assert session.faults[0].patch == ""


def test_no_patch_of_what_may_be_intended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = faulty(SAME_ORDER, "same-order", tmp_path, **DISTRIBUTED)
    session.faults[0].certainty = "unless intended"
    add_patches(session, files_here())
    assert session.faults[0].patch == ""


def test_the_file_of_apply_has_patches_of_faults_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = made_session()
    session.faults = [
        DataFault("same-order", "certain", "e", patch="--- a/t.py\n"),
        DataFault("clipped", "certain", "e"),
    ]
    diagnosis = diagnose(session)
    outputs = Outputs(apply=tmp_path / "p.diff", verbose=True)
    assert outputs.put(session, diagnosis, prescribe(session, diagnosis), saved=None) == []
    assert (tmp_path / "p.diff").read_text() == "--- a/t.py\n"
    printed = capsys.readouterr()
    assert "mends the data, and applies by `patch -p1 -i " in printed.err
    assert "     --- a/t.py" in printed.out + printed.err
