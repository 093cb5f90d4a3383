"""The whole prescription: its order, what goes together, the patch, when to stop; and that nothing makes it fail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from file_trees import patch
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from machine_findings import quantities
from made_prescriptions import COLUMNS, GB, ROOMY, made, prescribed, respawned, with_batches, with_copies, with_gpu
from made_sessions import MadeRun, replace

from headrace.doctor.causes import diagnose, prescribe
from headrace.doctor.causes.stages import NAMES
from headrace.doctor.edits.script_source import files_here, read_file
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import CommandOutcome, Session, SessionNote
from headrace.doctor.simulate import Prediction

pytestmark = pytest.mark.usefixtures("kept_simulations")

TAR = MadeRun(stages={"lookup:tarfile member": 12_000, "decode:Pillow load": 8_000, "transform:RandomResizedCrop": 500})
SCRIPT = """import tarfile
from torch.utils.data import DataLoader


class Members:
    def __init__(self, path):
        self.tar = tarfile.open(path)

    def __getitem__(self, name):
        return self.tar.extractfile(name).read()


loader = DataLoader(Members("a.tar"), batch_size=4, num_workers=2)
for batch in loader:
    train(batch)
"""
FILES = {"train.py": SCRIPT}


def test_what_helps_comes_first_the_most_gain_before_others() -> None:
    remedies = prescribed(made(TAR)).remedies
    assert [one.helps for one in remedies] == sorted([one.helps for one in remedies], reverse=True)
    steps = [one.prediction.step_us for one in remedies if one.prediction is not None]
    # Of steps within 2 % of each other the smaller change comes first.
    assert all(step >= 0.98 * max(steps[:place], default=0) for place, step in enumerate(steps))
    assert len(steps) > 2


def test_together_they_gain_as_much_as_the_best_of_them_or_more() -> None:
    found = prescribed(made(TAR))
    assert found.together[0] == "indexed-tar"
    assert len(found.together) == len(set(found.together)) > 1
    steps = [one.prediction.step_us for one in found.remedies if one.prediction is not None]
    assert found.best is not None
    assert found.best.step_us <= 1.01 * min(steps)


def predicted_of(session: Session, codes: list[str]) -> Prediction | None:
    """What is predicted beside a proof of these remedies together, which was not tried."""
    (outcome,) = prescribed(replace(session, proofs=[Proof(codes, {}, "not tried")])).outcomes
    return outcome.predicted


def test_the_same_session_gives_the_same_prescription(kept_simulations: dict[bytes, Any]) -> None:
    session = made(TAR)
    first = prescribed(session, FILES)
    kept_simulations.clear()
    assert prescribed(session, FILES) == first


def test_stop_says_what_bounds_the_step() -> None:
    found = prescribed(made(MadeRun(stages={"decode:Pillow load": 500})))
    assert quantities(found.stop)[-2:] == ["57 %", "29 %"]
    assert re.findall("backward|forward", found.stop) == ["backward", "forward"]
    assert found.best is None
    assert not any(one.helps for one in found.remedies)


def test_nothing_that_trained_nothing_to_do() -> None:
    session = Session("", "measure", "0", None, 200, CommandOutcome([], 0, "finished", 0))
    found = prescribed(session)
    assert (found.remedies, found.best, found.stop, found.patch) == ([], None, "", "")


def test_the_patch_makes_all_certain_changes_at_once(tmp_path: Path) -> None:
    session = made(MadeRun(stages={"getitem:rest": 24_000}))
    found = prescribe(session, diagnose(session), files_here_of(tmp_path))
    (tmp_path / "all.diff").write_text(found.patch)
    patch(tmp_path, "all.diff")
    text = (tmp_path / "train.py").read_text()
    assert "num_workers=8" in text


def files_here_of(folder: Path) -> Any:
    """The script as it lies in a folder, though the session names it without one."""
    (folder / "train.py").write_text(SCRIPT)
    here = files_here()
    return type(here)(lambda path: read_file(str(folder / path)), ".")


def test_each_remedy_has_its_own_diff() -> None:
    edits = {one.code: one.edit for one in prescribed(made(TAR), FILES).remedies if one.edit is not None}
    assert set(edits) == {"workers"}
    workers = edits["workers"]
    assert (workers.file, workers.line) == ("train.py", 13)
    assert "num_workers=6" in workers.diff


def test_a_file_that_is_gone_leaves_hints() -> None:
    found = prescribed(made(TAR))
    assert found.patch == ""
    assert all(one.edit is None and one.hint for one in found.remedies if one.helps)


LABELS = st.sampled_from([*NAMES, "new"]).map(lambda category: f"{category}:label") | st.sampled_from([*TAR.stages])
RUNS = st.builds(
    MadeRun,
    steps=st.integers(1, 12),
    workers=st.integers(0, 5),
    prefetch=st.integers(1, 4),
    stages=st.dictionaries(LABELS, st.integers(0, 20_000), min_size=1),
    slow_batches=st.dictionaries(st.integers(0, 12), st.integers(0, 90_000), max_size=2),
    cpu=st.floats(0, 1),
    samples=st.integers(1, 4),
    pickle=st.integers(0, 4_000),
    unpickle=st.integers(0, 4_000),
    forward=st.integers(0, 5_000),
    backward=st.integers(0, 5_000),
    optimizer=st.integers(1, 500),
    begun=st.integers(0, 50_000),
    gpu=st.booleans(),
    facts=st.fixed_dictionaries(
        {},
        optional={
            "length": st.none() | st.integers(0, 10**9),
            "start_method": st.sampled_from(["fork", "spawn", None]),
            "persistent_workers": st.booleans(),
            "pin_memory": st.booleans(),
            "batch_size": st.none() | st.integers(1, 64),
            "file": st.none() | st.just("train.py"),
            "num_workers": st.none() | st.integers(0, 4),
        },
    ),
)


@examples(max_examples=10, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    run=RUNS,
    facts=st.sampled_from([ROOMY, {}, {"cores": 1}, {"cores": 0.5, "shm_bytes": 0}]),
    columns=st.sampled_from([COLUMNS, {}, {"memory_available_bytes": 1.0}]),
    shape=st.sampled_from(["", "float32[4,3,64,64] int64[4]", "int64[4,512]", "uint8[]", "odd"]),
    is_on_gpu=st.booleans(),
    passes=st.sampled_from([1, 3]),
)
@pytest.mark.long
def test_no_session_fails_it(run: MadeRun, facts: Any, columns: Any, shape: str, is_on_gpu: bool, passes: int) -> None:
    session = made(run, facts=facts, columns=columns) if passes == 1 or not run.workers else respawned(run)
    session = with_batches(session, shape, 5 * GB)
    if is_on_gpu:
        session = with_copies(with_gpu(session), 300)
        session.notes.append(SessionNote("data-parallel", "", 100))
    found = prescribed(session, FILES)
    predictions = [found.best, *(one.prediction for one in found.remedies)]
    assert all(_is_ordered(one) for one in predictions if one is not None)
    for one in found.remedies:
        assert one.title
        assert one.why.endswith("."), one.why
        assert not (one.helps and one.hint == "" and one.edit is None)
        assert one.helps or (one.prediction is None and one.changes is None)


def _is_ordered(prediction: Prediction) -> bool:
    return 0 < prediction.low_us <= prediction.step_us <= prediction.high_us


CONTROL = Proof([], {}, "measured", steps=[10**6] * 40)


def test_a_proof_stands_beside_what_was_predicted_of_it() -> None:
    session = made(TAR)
    session.proofs = [
        Proof(["indexed-tar"], {"indexed_tar": True}, "measured", steps=[5_000] * 40, samples="same"),
        Proof(["indexed-tar", "workers"], {}, "broke", detail="no such file"),
    ]
    session.controls = [CONTROL]
    found = prescribed(session)
    one, both = found.outcomes
    by_code = {each.code: each.prediction for each in found.remedies}
    assert (one.predicted, one.recommended) == (by_code["indexed-tar"], True)
    assert both.predicted is not None
    assert both.predicted.step_us < (one.predicted.step_us if one.predicted is not None else 0)
    assert both.recommended is False


def test_a_gain_is_told_beside_the_run_once_more_as_it_is() -> None:
    """Which was faster than the measured run, on a machine that has become so."""
    session = made(TAR)
    session.proofs = [Proof(["indexed-tar"], {}, "measured", steps=[5_000] * 40, samples="same")]
    session.controls = [CONTROL]
    [gain] = prescribed(session).outcomes
    session.controls = [Proof([], {}, "measured", steps=[5_050] * 40)]
    found = prescribed(session)
    [none] = found.outcomes
    assert found.again_us == 5_050
    assert none.speedup == pytest.approx(1.01)
    assert gain.speedup is not None
    assert gain.speedup > 1.01
    assert (gain.recommended, none.recommended) == (True, False)
    assert none.predicted == gain.predicted


@pytest.mark.long
def test_a_gain_is_told_by_the_shorter_run_and_harm_by_the_longer() -> None:
    session = made(TAR)
    session.proofs = [harm(["indexed-tar"])]
    [before] = prescribed(session).outcomes
    session.controls = [Proof([], {}, "measured", steps=[10**9] * 40)]
    assert prescribed(session).outcomes[0].speedup == before.speedup
    both = prescribed(session).together[:2]
    session.proofs = [harm(both, steps=[10**8] * 40)]
    assert set(both) <= set(prescribed(session).together)
    session.controls = []
    assert not set(both) <= set(prescribed(session).together)


def harm(codes: list[str], **said: Any) -> Proof:
    return Proof(codes, {}, **({"why": "measured", "steps": [5_000] * 40, "samples": "same"} | said))


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "said",
    [
        {"why": "broke", "steps": []},
        {"samples": "different"},
        pytest.param({"steps": [10**9] * 40}, marks=pytest.mark.long),
        {"steps": [10_250] * 40},
    ],
    ids=["broke", "other samples", "longer", "no certain gain"],
)
def test_what_a_proof_spoke_against_is_not_to_be_made(said: dict[str, Any]) -> None:
    session = made(TAR)
    assert "indexed-tar" in prescribed(session, FILES).together
    session.proofs = [harm(["indexed-tar"], **said)]
    session.controls = [Proof([], {}, "measured", steps=[10_045] * 40)]
    found = prescribed(session, FILES)
    assert "indexed-tar" not in found.together
    assert found.left_out == ["indexed-tar"]
    assert [one.is_refused for one in found.outcomes] == [True]
    assert found.best == predicted_of(session, found.together)


def test_of_what_broke_the_run_together_one_stays() -> None:
    session = made(TAR)
    before = prescribed(session).together
    session.proofs = [harm(before[:2]), harm(before[:2], why="broke", steps=[])]
    found = prescribed(session).together
    assert before[0] in found
    assert before[1] not in found


@pytest.mark.parametrize(
    "said", [{"samples": None}, *({"why": why, "steps": []} for why in ("not tried", "timed out", "interrupted"))]
)
@pytest.mark.one_in(4)
def test_what_no_proof_spoke_against_stays(said: dict[str, Any]) -> None:
    session = made(TAR)
    before = prescribed(session, FILES)
    session.proofs = [harm(["indexed-tar"], **said)]
    assert prescribed(session, FILES).patch == before.patch
