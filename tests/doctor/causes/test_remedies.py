"""Each remedy both ways: where it helps, by how much and by what change; and where not."""

from __future__ import annotations

import re

import pytest
from machine_findings import quantities
from made_prescriptions import (
    GB,
    ROOMY,
    helping,
    is_listed,
    made,
    prescribed,
    respawned,
    why_not,
    with_copies,
    with_gpu,
)
from made_sessions import MadeRun, replace
from report_pages import text

from headrace.doctor.causes import diagnose
from headrace.doctor.report.view import report_view
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import FirstBatch
from headrace.doctor.simulate import Prediction

pytestmark = pytest.mark.usefixtures("kept_simulations")

FEW = MadeRun()
"""Two workers, a batch in 10 ms, a step of 3.5 ms: 5 ms a step, of which 1.5 ms are waited for."""
STAGES = {"lookup:tarfile member": 12_000, "decode:Pillow load": 8_000, "transform:RandomResizedCrop": 500}
TAR = MadeRun(stages=STAGES, facts={"length": 100})
"""12 + 8 + 0.5 ms a batch in two workers: a step takes 10.25 ms."""
BOUND = MadeRun(stages={"decode:Pillow load": 500})
"""Nothing is waited for."""


def predicted(prediction: Prediction | None, us: float) -> None:
    assert prediction is not None
    assert prediction.low_us <= prediction.step_us <= prediction.high_us
    assert prediction.step_us == pytest.approx(us, rel=0.1)


def test_more_workers() -> None:
    found = helping(made(FEW), "workers")
    assert quantities(found.title) == ["3", "2"]
    assert quantities(found.why) == ["2", "1.0", "8", "100 %", "1.5 ms"]
    assert quantities(found.costs[0]) == ["500 MB", "500 MB"]
    assert found.changes == {"loaders": {"0": {"num_workers": 3}}}
    assert found.confidence == "high"
    predicted(found.prediction, 3_500)


def test_one_report_has_one_figure_of_demanded_cores() -> None:
    """That of the finding, of the remedy, and of whatever else says it."""
    session = made(MadeRun(cpu=1.0, pickle=2_000, unpickle=500), facts=ROOMY | {"cores": 2})
    diagnosis = diagnose(session)
    finding = next(one for one in diagnosis.findings if one.code == "cores")
    page = " ".join(text(report_view(session, diagnosis, prescribed(session))).split())
    figures = re.findall(r"([\d.]+) cores(?:' worth)? of work", page)
    assert len(figures) > 1
    assert set(figures) == set(re.findall(r"([\d.]+) cores' worth", finding.text))


@pytest.mark.parametrize(("steps", "is_found"), [(12, False), (40, True)])
def test_few_steps_are_no_evidence_of_a_want_of_cores_or_workers(steps: int, is_found: bool) -> None:
    """Of 12 steps, six are measured after those that empty the queue."""
    sessions = (
        made(MadeRun(steps=steps, cpu=1.0, pickle=2_000, unpickle=500), facts=ROOMY | {"cores": 2}),
        made(MadeRun(steps=steps)),
    )
    found = [{one.code for one in diagnose(session).findings} & {"cores", "few-workers"} for session in sessions]
    assert found == ([{"cores"}, {"few-workers"}] if is_found else [set(), set()])


OPTIONS = """import argparse
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("-j", "--workers", default=2, type=int)
args = parser.parse_args()
loader = DataLoader(data, 4, num_workers=args.workers)
for _ in loader:
    pass
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("command", "option", "changed"),
    [
        (["train.py"], "--workers 3", "default=3, type=int"),
        (["train.py", "-j", "2"], "-j 3", None),
        (["train.py", "-j2"], "-j 3", None),
        (["train.py", "--workers=2"], "--workers 3", None),
    ],
)
def test_workers_by_the_scripts_own_option(command: list[str], option: str, changed: str | None) -> None:
    session = made(replace(FEW, facts={"file": "/home/ada/train.py", "line": 7}))
    session.outcome.command = ["python", *command]
    found = helping(session, "workers", {"/home/ada/train.py": OPTIONS})
    assert found.hint.endswith(f" {option}")
    if changed is None:
        assert found.edit is None
    else:
        assert found.edit is not None
        assert [line for line in found.edit.diff.splitlines() if line.startswith("+") and changed in line]
        assert "DataLoader(data, 4, num_workers=3" not in found.edit.diff


def test_workers_where_there_are_none() -> None:
    found = helping(made(MadeRun(workers=0)), "workers")
    assert quantities(found.why) == ["806 µs"]
    assert found.confidence == "medium"


def test_more_workers_than_cores_bear() -> None:
    assert quantities(why_not(made(MadeRun(cpu=1.0), facts=ROOMY | {"cores": 2}), "workers")) == ["2.9", "2"]


def test_workers_that_fit_into_no_memory() -> None:
    session = made(FEW, columns={"memory_available_bytes": 0.4 * GB})
    assert quantities(why_not(session, "workers"))[:1] == ["2"]


@pytest.mark.parametrize(
    ("run", "codes"),
    [
        (MadeRun(workers=0), {"persistent-workers"}),
        (MadeRun(), {"pin-memory", "device-prefetch"}),
        (MadeRun(stages={"getitem:rest": 9_000}), {"image-reader"}),
    ],
    ids=["no workers", "no GPU", "nothing decoded"],
)
def test_what_cannot_apply_is_not_listed(run: MadeRun, codes: set[str]) -> None:
    assert codes.isdisjoint(one.code for one in prescribed(made(run)).remedies)


@pytest.mark.parametrize(
    ("codes", "session"),
    [
        (["persistent-workers"], with_gpu(made(MadeRun(facts={"persistent_workers": True})))),
        (["pin-memory"], with_gpu(made(MadeRun(facts={"pin_memory": True})))),
        (["pin-memory", "device-prefetch"], with_copies(with_gpu(made(BOUND)), 20)),
    ],
    ids=["set already", "pinned already", "short copies"],
)
def test_what_gains_nothing_is_not_listed(codes: list[str], session: Session) -> None:
    assert not [code for code in codes if is_listed(session, code)]


def test_copies_on_a_side_stream() -> None:
    session = with_copies(with_gpu(made(BOUND)), 800)
    found = helping(session, "device-prefetch")
    assert quantities(found.why) == ["800 µs", "23 %"]
    assert found.changes == {"device_prefetch": True}
    predicted(found.prediction, 2_700)


def test_pinning_takes_an_assumption_and_says_so() -> None:
    found = helping(with_copies(with_gpu(made(BOUND)), 800), "pin-memory")
    assert found.confidence == "low"
    assert found.prediction is not None
    assert found.prediction.low_us < 2_800
    assert found.prediction.high_us > 3_450


def test_an_index_of_the_tar() -> None:
    found = helping(made(TAR), "indexed-tar")
    assert found.confidence == "low"
    assert quantities(found.why) == ["3.0 ms", "59 %", "0 %", "5.0 %"]
    assert found.changes == {"indexed_tar": True}
    predicted(found.prediction, 4_250)


def test_a_tar_that_is_compressed_has_no_places_to_go_to() -> None:
    session = made(TAR)
    session.makers[0].first = [FirstBatch(0, 0, files=["/data/train.tar.gz"])]
    assert not is_listed(session, "indexed-tar")
    session.makers[0].first = [FirstBatch(0, 0, files=["/data/train.tar"])]
    helping(session, "indexed-tar")


TEXTS = MadeRun(stages={"tokenise:BertTokenizer": 12_000, "collate:default": 1_000})


def test_texts_by_the_batch() -> None:
    found = helping(made(TEXTS), "batch-tokeniser")
    assert quantities(found.why)[:3] == ["4", "3.0 ms", "92 %"]
    assert found.confidence == "low"


def padded(session: Session, *, filled: int, longest: int) -> Session:
    """Its first batch was looked at: 4 rows of 512 tokens."""
    looks = session.trainers[0].padding
    looks.pass_, looks.index, looks.rows, looks.width = [0], [0], [4], [512]
    looks.filled, looks.longest = [filled], [longest]
    return session


def test_padding_to_the_batch() -> None:
    """Of a step of 3.5 ms, forward and backward take 3; a quarter of the tokens would be left."""
    found = helping(padded(made(BOUND), filled=400, longest=128), "pad-to-batch")
    assert quantities(found.why) == ["80 %", "512", "128", "86 %", "50 %", "100 %"]
    assert found.confidence == "low"
    predicted(found.prediction, 3_500 - 0.8 * 0.75 * 3_000)
    assert found.prediction is not None
    assert found.prediction.low_us - 1 < 3_500 - 0.75 * 3_000 < 3_500 - 0.5 * 0.75 * 3_000 < found.prediction.high_us


def test_padding_that_is_no_longer_than_it_must_be() -> None:
    assert not is_listed(padded(made(BOUND), filled=400, longest=512), "pad-to-batch")
    assert "pad-to-batch" not in [one.code for one in prescribed(made(BOUND)).remedies]


STORED = MadeRun(stages={"read:file": 9_000, "collate:default": 500}, cpu=0.1)


def two_ranks(second: str) -> Session:
    session = made(MadeRun(rank=0), MadeRun(rank=1, pid=200))
    session.trainers[1].shapes = [second]
    return session


def test_ranks_with_other_shapes() -> None:
    found = helping(two_ranks("float32[4,3,9,9]"), "same-shape")
    assert quantities(found.why)[:1] == ["100 %"]


def test_ranks_with_the_same_shapes() -> None:
    assert not is_listed(two_ranks("float32[4,3,8,8]"), "same-shape")


def test_workers_that_live_on() -> None:
    session = respawned(MadeRun(steps=60), start_us=100_000)
    found = helping(session, "persistent-workers")
    assert quantities(found.why)[:2] == ["3", "2"]
    assert found.changes == {"loaders": {"0": {"persistent_workers": True}}}
    assert quantities(found.costs[0]) == ["1.0 GB"]


def test_workers_of_a_loader_that_each_epoch_makes_anew() -> None:
    """The argument alone would gain nothing: `for epoch: for batch in DataLoader(…)`."""
    session = respawned(MadeRun(steps=60), start_us=100_000)
    trainer = session.trainers[0]
    trainer.loaders[0].facts["dataset"] = "torch.utils.data.dataset.Dataset"
    for one in trainer.passes[1:]:
        one.loader = one.number
        trainer.loaders.append(replace(trainer.loaders[0], number=one.number))
    found = helping(session, "persistent-workers")
    assert (found.edit, found.changes) == (None, None)
    assert "before the loop" in found.hint


def test_more_workers_on_storage_that_may_give_no_more() -> None:
    found = helping(made(STORED), "workers")
    assert found.confidence == "low"
    assert quantities(found.why)[-1:] == ["85 %"]
    assert found.prediction is not None
    assert found.prediction.high_us > 4_750
