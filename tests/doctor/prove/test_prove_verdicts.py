"""What came of a run, by the evidence that it left, and whether two runs trained on the same samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from made_sessions import UNASKED, MadeRun, process, write_evidence, write_run
from probing import probed, records
from torch.utils.data import DataLoader

from headrace.doctor.attach.command import CommandResult
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.prove.trial import ComparedSamples, Trial, TrialRequest, attempt, compare, compare_adopted
from headrace.doctor.session.trainers import BatchDigest

LIKE = ProbeSettings("measured", 0, 0, "", warmup=5, replay=40, scratch="measured/scratch")
CHANGES: dict[str, Any] = {"indexed_tar": True}
APPLIED = ["applied", 10, "indexed_tar", 7, "by an index"]


def left(
    *records: list[Any],
    status: int = 0,
    why: str = "finished",
    run: MadeRun | None = None,
    trainer: Sequence[list[Any]] = (),
) -> Trial:
    """Of a run that left these records, and the steps of `run`, with some more of its trainer's."""
    seen: list[ProbeSettings] = []

    def run_it(command: list[str], settings: ProbeSettings, environ: dict[str, str], most_s: float) -> CommandResult:
        seen.append(settings)
        folder = Path(settings.folder)
        if run is not None:
            write_run(folder, run)
            with next((folder / "evidence").glob(f"*-{run.pid}-0.jsonl")).open("a") as file:
                file.writelines(json.dumps(record) + "\n" for record in trainer)
        write_evidence(folder, "more", [process(900), *records])
        return CommandResult(command, status, why, 12_000_000, ["last line"])

    trial = attempt(["train"], LIKE, TrialRequest(CHANGES, 20, 60.0), run_it)
    assert not Path(seen[0].folder).exists()
    return trial


def test_steps_after_the_warm_up_are_measured() -> None:
    trial = left(APPLIED, run=MadeRun(steps=30))
    assert (trial.why, trial.detail) == ("measured", "by an index")
    assert len(trial.steps) == 20


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([], "nothing in the run took it"),
        ([["applied", 10, "indexed_tar", 0, "headrace is not installed"]], "headrace is not installed"),
        ([["note", 10, "hook-off", "remedy indexed_tar: KeyError: 'x'"]], "remedy indexed_tar: KeyError: 'x'"),
        ([["applied", 10, "loaders", 3, ""]], "nothing in the run took it"),
    ],
)
def test_what_nothing_took_was_not_applied(records: list[list[Any]], why: str) -> None:
    trial = left(*records, run=MadeRun(steps=30))
    assert (trial.why, trial.detail, trial.steps) == ("not applied", f"indexed_tar: {why}", [])


def test_what_went_off_in_the_run_was_not_applied() -> None:
    """Steps that were measured are partly those of the run without it."""
    trial = left(APPLIED, ["note", 20, "hook-off", "remedy indexed_tar: KeyError: 'x'"], run=MadeRun(steps=30))
    assert (trial.why, trial.detail.split(": ")[2:]) == ("not applied", ["KeyError", "'x'"])


def test_one_process_that_took_it_is_enough() -> None:
    refused = ["applied", 10, "indexed_tar", 0, "not here"]
    assert left(refused, APPLIED, run=MadeRun(steps=30)).why == "measured"


def test_a_command_that_fails_is_quoted() -> None:
    trial = left(APPLIED, ["error", 20, "Traceback\nKeyError: 'image'"], status=1, why="failed", run=MadeRun(steps=30))
    assert (trial.why, trial.detail, trial.steps) == ("broke", "Traceback\nKeyError: 'image'", [])
    assert left(status=1, why="failed").detail == "last line"


def test_a_command_that_does_not_run_twice_in_one_folder_refutes_no_remedy() -> None:
    error = ["error", 20, "Traceback\nFileExistsError: [Errno 17] File exists: 'runs/1'"]
    trial = left(APPLIED, error, status=1, why="failed", run=MadeRun(steps=30))
    assert (trial.why, trial.steps) == ("not applied", [])
    assert "runs/1" in trial.detail


@pytest.mark.parametrize(("why", "detail"), [("interrupted", ""), ("timed out", "after 12 s")])
def test_a_command_that_was_ended_says_so(why: str, detail: str) -> None:
    trial = left(APPLIED, status=137, why=why, run=MadeRun(steps=30))
    assert (trial.why, trial.detail, trial.steps) == (why, detail, [])


def settings_of_a_run() -> ProbeSettings:
    """As its processes read them."""
    seen: list[ProbeSettings] = []

    def run_it(command: list[str], settings: ProbeSettings, environ: dict[str, str], most_s: float) -> CommandResult:
        seen.append(ProbeSettings.read(settings.folder))
        return CommandResult(command, 0, "finished", 1)

    attempt(["train"], LIKE, TrialRequest(CHANGES, 20, 60.0), run_it)
    return seen[0]


def test_it_runs_with_the_settings_of_the_measured_run() -> None:
    seen = settings_of_a_run()
    assert (seen.warmup, seen.steps, seen.replay) == (5, 20, 0)
    assert seen.changes == CHANGES
    assert seen.digests > 0
    assert (seen.scratch, seen.proves) == (f"{seen.folder}/scratch", True)  # of its own


def test_samples_are_those_of_its_digests() -> None:
    records = [["loader", 0, 0, {}], ["pass", 0, 0, 0, 0, 0, [900]], ["pass", 1, 0, 0, 0, 0, [900]]]
    digests = [["digest", 0, "a", "k", []], ["digest", 1, "b", None, []]]
    trial = left(APPLIED, *records, *digests, ["facts", 9, {"draws": True}])
    assert [digest.content for digest in trial.samples.by_rank[0]] == ["a", "b"]
    assert trial.samples.draws
    assert trial.samples.later == {(0, 1)}


def digest(content: str, keys: str | None = "keys") -> BatchDigest:
    return BatchDigest(0, content, keys)


def samples(*digests: BatchDigest, draws: bool = False, rank: int = 0) -> ComparedSamples:
    return ComparedSamples({rank: list(digests)}, draws)


BEFORE = samples(digest("a"), digest("b"), digest("c"))


UNKEYED = samples(digest("a", None))


def in_ranks(second: str) -> ComparedSamples:
    return ComparedSamples({0: [digest("a")], 1: [digest(second)]}, False)


def in_passes(content: str, keys: str) -> ComparedSamples:
    """One batch of the first pass, and one of a later pass."""
    return ComparedSamples({0: [digest("a"), BatchDigest(1, content, keys)]}, False, frozenset({(0, 1)}))


@pytest.mark.parametrize(
    ("before", "after", "repeats", "said"),
    [
        (BEFORE, samples(digest("a"), digest("b")), UNASKED, "same"),
        (BEFORE, samples(digest("a", None), digest("b", "other")), UNASKED, "same"),
        (BEFORE, samples(digest("x")), True, "different"),
        (BEFORE, samples(digest("x")), False, None),
        (BEFORE, samples(digest("x")), None, None),
        (BEFORE, samples(digest("x", "other")), UNASKED, None),  # another order: what is injected changes no sampler
        (UNKEYED, samples(digest("x", None)), True, "different"),
        (UNKEYED, samples(digest("x", None)), False, None),
        (BEFORE, samples(digest("x"), draws=True), UNASKED, None),  # other draws for the same keys
        (in_ranks("b"), in_ranks("b"), UNASKED, "same"),
        (in_ranks("b"), in_ranks("x"), True, "different"),
        (in_passes("b", "keys"), in_passes("x", "other"), UNASKED, "same"),  # its order hangs on what was drawn before
        (in_passes("b", "keys"), in_passes("x", "keys"), True, "different"),
    ],
)
def test_samples_are_compared_as_far_as_both_go_and_the_run_repeats(
    before: ComparedSamples, after: ComparedSamples, repeats: bool | None, said: str | None
) -> None:
    assert compare(before, after, repeats) == said


def digested(folder: Path, sample: Any) -> ComparedSamples:
    """What the probe tells of a batch of that one sample."""
    with probed(folder, digests=1):
        list(DataLoader([sample], batch_size=None))
    (record,) = records(folder, "digest")
    _, number, content, keys, _ = record
    return samples(BatchDigest(number, content, keys))


def test_one_other_label_is_different(tmp_path: Path) -> None:
    image, labels = torch.rand(3, 8, 8), torch.arange(32)
    others = labels.clone()
    others[7] = 8
    before, after = digested(tmp_path / "1", (image, labels)), digested(tmp_path / "2", (image, others))
    assert compare(before, after, True) == "different"
    assert compare(before, digested(tmp_path / "3", (image, labels)), UNASKED) == "same"


def test_of_many_tensors_none_is_left_out(tmp_path: Path) -> None:
    """The last one differs."""
    tensors = [torch.full((4,), float(number)) for number in range(20)]
    before = digested(tmp_path / "1", tensors)
    after = digested(tmp_path / "2", [*tensors[:-1], torch.rand(4)])
    assert compare(before, after, True) == "different"


# A Loader in place of the DataLoader: another order, other draws.


def adopted(kind: str = "float32[3,8,8]") -> ComparedSamples:
    """A batch of images and labels."""
    return ComparedSamples({0: [BatchDigest(0, "", None, [kind, "int64[]"])]}, False)


@pytest.mark.parametrize(
    ("after", "said"), [(adopted(), "alike"), (adopted("uint8[3,8,8]"), "different"), (ComparedSamples(), None)]
)
def test_a_loader_has_samples_of_the_same_kinds(after: ComparedSamples, said: str | None) -> None:
    assert compare_adopted(adopted(), after) == said


def test_digests_tell_kinds(tmp_path: Path) -> None:
    labels = torch.tensor([4, 7, 4])
    pixels = torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2)
    with probed(tmp_path, observe=False, steps=10, digests=2):
        for _ in DataLoader([(image, label) for image, label in zip(pixels, labels, strict=True)], batch_size=3):
            pass
    (found,) = records(tmp_path, "digest")
    assert found[4] == ["uint8[2,2]", "int64[]"]
